# Cases from the source, in shards, every row accounted for.
rule build_cases:
    input:
        find_path(CONFIG.data.source),
    output:
        expand("results/cases/{shard}.jsonl", shard=SHARDS),
        selected="results/cases/cases.csv",
        rejects="results/cases/rejects.csv",
        flow="results/cases/flow.json",
    log:
        "logs/build_cases.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "build_cases.py",
        provenance=CONFIG.data.provenance,
        scale=f"--scale {CONFIG.data.scale}" if CONFIG.data.scale else "",
        select=CONFIG.data.select.model_dump_json(),
        shards=CONFIG.shards,
        code=code_of("build.py", "cases.py"),
    shell:
        "python {params.script:q} --source {input:q} --provenance {params.provenance} {params.scale}"
        " --select {params.select:q} --shards {params.shards} --out-dir results/cases > {log} 2>&1"
