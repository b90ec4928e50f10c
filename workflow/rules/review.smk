# Review by clinicians, asked for by name: a blinded kit goes out, filled-in files come back.
from triagesim.review.questions import asked

# A Mac lays a hidden file of its own beside each.
RETURNED = sorted(map(str, Path(CONFIG.review.returned).glob("[!.]*.csv")))

try:
    check_names(RETURNED, "review.returned")
except TriageSimError as error:
    sys.exit(f"error: {error}")


rule review_kit:
    input:
        episodes_of_run(),
    output:
        form="results/review/form.html",
        table="results/review/form.csv",
        key="results/review/key.csv",
    log:
        "logs/review_kit.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "review_kit.py",
        episodes=EPISODES,
        sample=CONFIG.review.sample,
        repeats=CONFIG.review.repeats,
        seed=CONFIG.review.seed,
    shell:
        "python {params.script:q} {params.episodes} --out-dir results/review --sample {params.sample}"
        " --repeats {params.repeats} --seed {params.seed} 2>&1 | tee -i {log}"


rule review:
    input:
        returned=RETURNED,
        key="results/review/key.csv",
        episodes=episodes_of_run(),
    output:
        expand(
            "results/review/{table}.csv",
            table=["ratings", "means", "agreement", "rewrites"],
        ),
    log:
        "logs/review.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "review.py",
        episodes=EPISODES,
        folder=CONFIG.review.returned,
        questions=digest(asked().model_dump(mode="json")),
        code=code_of(
            *(
                f"review/{name}.py"
                for name in ("questions", "reliability", "results", "returned")
            )
        ),
    shell:
        "python {params.script:q} {input.returned:q} --folder {params.folder:q} --key {input.key}"
        " --episodes {params.episodes} --out-dir results/review 2>&1 | tee -i {log}"
