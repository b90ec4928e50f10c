# The page that people open: what the run says and whether to trust it, with every dialogue.
#: What it shows of results/metrics; a section whose table isn't made by this workflow is left out.
REPORT_TABLES = [
    "summary.csv",
    "usage.json",
    "coverage.csv",
    *(f"{table}.csv" for table in TABLES),
    "audit.csv",
    "traits.csv",
    "fidelity.csv",
    "leaks.csv",
    "duplicates.csv",
    *(("acoustics.csv", "audio_checks.csv") if SPEECH_CHECKS else ()),
    *(("asr.csv",) if TRANSCRIBE else ()),
]
REPORT_LOOK = sorted((ROOT / "resources" / "report").iterdir())


rule report:
    input:
        tables=expand("results/metrics/{table}", table=REPORT_TABLES),
        flow="results/cases/flow.json",
        selected="results/cases/cases.csv",
        pairings=expand("results/pairings/{pairing}.json", pairing=PAIRINGS),
        episodes=episodes_of_run(),
        pool="results/pool.jsonl",
        audio=AUDIO,
        weights=expand("results/personas/{role}.weights.csv", role=["patient", "nurse"]),
    output:
        page=report(
            "results/report.html",
            caption="../report/report.rst",
            category="Report",
            labels={"what": "the page of the run"},
        ),
        data=directory("results/report"),
    log:
        "logs/report.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "report.py",
        episodes=EPISODES,
        data=data_of("notices.yaml"),
        look=digest([path.read_text(encoding="utf-8") for path in REPORT_LOOK]),
        code=code_of(
            "cautions.py",
            "lenient.py",
            "score_rows.py",
            "scoring.py",
            *[
                f"report/{path.name}"
                for path in sorted((HERE / "triagesim/report").glob("*.py"))
            ],
        ),
    shell:
        "python {params.script:q} --tables {input.tables} --flow {input.flow} --selected {input.selected}"
        " --pairings {input.pairings} --episodes {params.episodes} --pool {input.pool} --audio {input.audio}"
        " --weights {input.weights} --out {output.page} --data {output.data} > {log} 2>&1"
