# The run's dialogues as a dataset: three tables by split, a card and a Croissant description.
from triagesim.dataset.columns import TABLES as DATASET_PARTS
from triagesim.dataset.files import paths
from triagesim.resources import RESOURCES

DATASET_TABLES = [
    str(path)
    for table in DATASET_PARTS
    for split in CONFIG.dataset.splits
    for path in paths(Path("results/dataset"), table, split).values()
]
# A run on data that isn't open ends without it; asked for by name, the rule says why.
EXPORTED = CONFIG.dataset.include_credentialed or not PRIVATE
DATASET = ["results/dataset/README.md"] if EXPORTED else []


rule export:
    input:
        episodes=(
            "results/pool.jsonl" if CONFIG.dataset.of == "pool" else episodes_of_run()
        ),
        audio=AUDIO,
    output:
        DATASET_TABLES,
        card="results/dataset/README.md",
        croissant="results/dataset/croissant.json",
    log:
        "logs/export.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "export.py",
        episodes=(
            EPISODES
            if CONFIG.dataset.of != "pool"
            else lambda wildcards, input: input.episodes
        ),
        salt=f"{CONFIG.journal.dir}/_salt",
        splits=json.dumps(CONFIG.dataset.splits),
        seed=CONFIG.dataset.seed,
        chosen="--chosen" if CONFIG.dataset.of == "pool" else "",
        credentialed=(
            "--include-credentialed" if CONFIG.dataset.include_credentialed else ""
        ),
        columns=digest(
            [
                load_yaml("dataset.yaml"),
                load_yaml("notices.yaml"),
                (RESOURCES / "dataset_card.md.j2").read_text(encoding="utf-8"),
            ]
        ),
        code=code_of(
            *(
                f"dataset/{name}.py"
                for name in (
                    "card",
                    "columns",
                    "croissant",
                    "export",
                    "files",
                    "licences",
                    "rows",
                )
            ),
            "artifact.py",
            "lenient.py",
            "scoring.py",
            "splits.py",
        ),
    shell:
        "python {params.script:q} {params.episodes} --audio {input.audio} --out-dir results/dataset --salt {params.salt:q}"
        " --splits {params.splits:q} --seed {params.seed} {params.chosen} {params.credentialed} > {log} 2>&1"
