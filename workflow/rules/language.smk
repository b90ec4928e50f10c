# The language of the dialogues by pairing: near-duplicates, fidelity, effects of traits and leaks.
rule duplicates:
    input:
        episodes_of_run(),
    output:
        "results/metrics/duplicates.csv",
    log:
        "logs/duplicates.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "find_duplicates.py",
        episodes=EPISODES,
        data=data_of("fidelity.yaml"),
        code=code_of("duplicates.py", "language.py", "phrasing.py"),
    shell:
        "python {params.script:q} {params.episodes} --out {output} > {log} 2>&1"


rule describe:
    input:
        language=expand(
            "results/language/{pairing}/{shard}.csv", pairing=PAIRINGS, shard=SHARDS
        ),
        leaks=expand(
            "results/leaks/{pairing}/{shard}.csv", pairing=PAIRINGS, shard=SHARDS
        ),
        scores=expand(
            "results/scores/{pairing}/{shard}.csv", pairing=PAIRINGS, shard=SHARDS
        ),
        duplicates="results/metrics/duplicates.csv",
    output:
        "results/metrics/fidelity.csv",
        "results/metrics/traits.csv",
        "results/metrics/leaks.csv",
    log:
        "logs/describe.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "describe.py",
        language=listed("results/language/{pairing}/{shard}.csv"),
        leaks=listed("results/leaks/{pairing}/{shard}.csv"),
        scores=listed("results/scores/{pairing}/{shard}.csv"),
        score=CONFIG.score.model_dump_json(),
        data=data_of("fidelity.yaml", "contrasts.yaml"),
        code=code_of(
            "bootstrap.py",
            "describing.py",
            "estimates.py",
            "fidelity.py",
            "traits.py",
        ),
    shell:
        "python {params.script:q} {params.language} --leaks {params.leaks} --duplicates {input.duplicates}"
        " --scores {params.scores} --score {params.score:q} --out-dir results/metrics > {log} 2>&1"
