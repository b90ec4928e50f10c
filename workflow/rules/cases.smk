# Cases from the source, in shards, every row accounted for.
from triagesim.mimic import source_files

try:
    SOURCE_FILES = source_files(find_path(CONFIG.data.source))
except TriageSimError as error:
    sys.exit(f"error: {error}")


rule build_cases:
    input:
        SOURCE_FILES,
    output:
        expand("results/cases/{shard}.jsonl", shard=SHARDS),
        selected="results/cases/cases.csv",
        rejects=report(
            "results/cases/rejects.csv",
            caption="../report/rejects.rst",
            category="Tables",
            labels={"what": "rejected rows"},
        ),
        flow="results/cases/flow.json",
        notice="results/NOTICE.txt",
    log:
        "logs/build_cases.log",
    benchmark:
        "logs/benchmarks/build_cases.tsv"
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "build_cases.py",
        source=find_path(CONFIG.data.source),
        provenance=CONFIG.data.provenance,
        scale=f"--scale {CONFIG.data.scale}" if CONFIG.data.scale else "",
        select=CONFIG.data.select.model_dump_json(),
        shards=CONFIG.shards,
        rules=digest(
            [
                load_yaml(f"{name}.yaml")
                for name in ("quality", "mimic_demo", "notices")
            ]
        ),
        code=code_of(
            "build.py", "cases.py", "mimic.py", "quality.py", "shards.py", "sources.py"
        ),
    shell:
        "python {params.script:q} --source {params.source:q} --provenance {params.provenance} {params.scale}"
        " --select {params.select:q} --shards {params.shards} --out-dir results/cases"
        " --notice {output.notice} > {log} 2>&1"
