# Scores of each episode, and the summary by pairing; from stored episodes alone.
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
        code=code_of("scoring.py", "summary.py"),
    shell:
        "python {params.script:q} {input} --out {output} > {log} 2>&1"


rule summarise:
    input:
        scores=expand(
            "results/scores/{pairing}/{shard}.csv", pairing=PAIRINGS, shard=SHARDS
        ),
        pairings=expand("results/pairings/{pairing}.json", pairing=PAIRINGS),
        usage=expand(
            "results/usage/{pairing}/{shard}.json", pairing=PAIRINGS, shard=SHARDS
        ),
        selected="results/cases/cases.csv",
    output:
        "results/metrics/summary.csv",
        "results/metrics/summary.json",
        "results/metrics/usage.json",
    log:
        "logs/summarise.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "summarise.py",
        code=code_of("scoring.py", "summary.py"),
    shell:
        "python {params.script:q} {input.scores} --pairings {input.pairings} --selected {input.selected}"
        " --usage {input.usage} --out-dir results/metrics > {log} 2>&1"
