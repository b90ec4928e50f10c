# Scores of each episode, and the summary and the tables of agreement by pairing; from stored episodes alone.
from triagesim.summary import TABLES


rule score:
    input:
        "results/episodes/{pairing}/{shard}.jsonl",
    output:
        "results/scores/{pairing}/{shard}.csv",
    log:
        "logs/score/{pairing}/{shard}.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "score.py",
        code=code_of("score_rows.py", "scoring.py"),
    shell:
        "python {params.script:q} {input} --out {output} > {log} 2>&1"


rule summarise:
    input:
        scores=expand(
            "results/scores/{pairing}/{shard}.csv", pairing=PAIRINGS, shard=SHARDS
        ),
        pairings=expand("results/pairings/{pairing}.json", pairing=PAIRINGS),
        usage=expand(
            "results/usage/{pairing}/{shard}.json",
            pairing=[*PAIRINGS, *(f"_completion-{name}" for name in JUDGED)],
            shard=SHARDS,
        ),
        measures=MEASURES,
        selected="results/cases/cases.csv",
    output:
        report(
            "results/metrics/summary.csv",
            caption="../report/summary.rst",
            category="Tables",
            labels={"what": "summary by pairing"},
        ),
        "results/metrics/summary.json",
        "results/metrics/usage.json",
        "results/metrics/metrics.json",
        expand("results/metrics/{table}.csv", table=TABLES),
    log:
        "logs/summarise.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "summarise.py",
        score=CONFIG.score.model_dump_json(),
        references=digest(load_yaml("references.yaml")),
        code=code_of(
            "agreement.py",
            "agreement_tables.py",
            "bootstrap.py",
            "course_tables.py",
            "estimates.py",
            "measured.py",
            "metric_tables.py",
            "score_rows.py",
            "scoring.py",
            "summary.py",
        ),
    shell:
        "python {params.script:q} {input.scores} --pairings {input.pairings} --selected {input.selected}"
        " --usage {input.usage} --measures {input.measures} --score {params.score:q} --out-dir results/metrics > {log} 2>&1"
