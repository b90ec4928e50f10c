# Scores of each episode, and the summary and the tables of agreement by pairing; from stored episodes alone.
from triagesim.summary import TABLES


# One job a shard for all that is said of single episodes: where there are a thousand shards, jobs are what costs.
rule score:
    input:
        REVIEWS,
        episodes="results/episodes/{pairing}/{shard}.jsonl",
        verdicts=(
            "results/completion/{pairing}/{shard}.jsonl"
            if CONFIG.measures.judge
            else []
        ),
    output:
        scores="results/scores/{pairing}/{shard}.csv",
        measures="results/measures/{pairing}/{shard}.csv",
        language="results/language/{pairing}/{shard}.csv",
        leaks="results/leaks/{pairing}/{shard}.csv",
    log:
        "logs/score/{pairing}/{shard}.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "score.py",
        verdicts=lambda wildcards: (
            f"--verdicts results/completion/{wildcards.pairing}/{wildcards.shard}.jsonl"
            if CONFIG.measures.judge
            else ""
        ),
        reviews=f"--reviews {shlex.quote(str(REVIEWS[0]))}" if REVIEWS else "",
        data=data_of(
            "language.yaml",
            "speech/dialogue.yaml",
            "agenda/lexicon.yaml",
            "agenda/master.yaml",
            "personas/nurse.yaml",
            "personas/patient.yaml",
        ),
        code=code_of(
            "artifact.py",
            "environment_view.py",
            "language.py",
            "leaks.py",
            "measured.py",
            "phrasing.py",
            "protocol.py",
            "score_rows.py",
            "lenient.py",
            "scoring.py",
            "backends/agenda/checks.py",
            "backends/agenda/understanding.py",
            "measures/adapters.py",
            "measures/rewrites.py",
            "measures/sessions.py",
            "speech/dialogue.py",
        ),
    shell:
        "python {params.script:q} {input.episodes} --out {output.scores} --measures {output.measures}"
        " --language {output.language} --leaks {output.leaks} {params.verdicts} {params.reviews} > {log} 2>&1"


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
        judge="results/completion/judge.json" if JUDGED else [],
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
        scores=listed("results/scores/{pairing}/{shard}.csv"),
        usage=listed(
            "results/usage/{pairing}/{shard}.json",
            [*PAIRINGS, *(f"_completion-{name}" for name in JUDGED)],
        ),
        measures=listed("results/measures/{pairing}/{shard}.csv"),
        score=CONFIG.score.model_dump_json(),
        judge="--judge results/completion/judge.json" if JUDGED else "",
        data=data_of("references.yaml", "report/cautions.yaml"),
        code=code_of(
            "agreement.py",
            "agreement_tables.py",
            "bootstrap.py",
            "course_tables.py",
            "estimates.py",
            "measured.py",
            "metric_tables.py",
            "score_rows.py",
            "lenient.py",
            "scoring.py",
            "summary.py",
        ),
    shell:
        "python {params.script:q} {params.scores} --pairings {input.pairings} --selected {input.selected}"
        " --usage {params.usage} --measures {params.measures} --score {params.score:q} {params.judge} --out-dir results/metrics > {log} 2>&1"
