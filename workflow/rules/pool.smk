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
        audit="results/metrics/audit.csv",
    log:
        "logs/select_pool.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "select_episodes.py",
        episodes=EPISODES,
        options=pool_options(),
        code=code_of(
            "pool.py",
            "audit.py",
            "language.py",
            "lenient.py",
            "score_rows.py",
            "scoring.py",
        ),
    shell:
        "python {params.script:q} {params.episodes} --out {output.pool} --coverage {output.coverage}"
        " --audit {output.audit} {params.options} > {log} 2>&1"
