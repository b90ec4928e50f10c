# The evaluation pool: episodes whose nurse reached the ground truth.
rule select_pool:
    input:
        episodes_of_run(),
    output:
        pool="results/pool.jsonl",
        coverage=report(
            "results/metrics/coverage.csv",
            caption="../report/coverage.rst",
            category="Tables",
            labels={"what": "coverage of the pool"},
        ),
    log:
        "logs/select_pool.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "select_episodes.py",
        no_flags="--no-flags" if CONFIG.pool.no_flags else "",
        nurse_ended="--nurse-ended" if CONFIG.pool.nurse_ended else "",
        code=code_of("pool.py", "scoring.py"),
    shell:
        "python {params.script:q} {input} --out {output.pool} --coverage {output.coverage}"
        " {params.no_flags} {params.nurse_ended} > {log} 2>&1"
