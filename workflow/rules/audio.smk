# Speech of pooled dialogues; each line is rendered once and kept beside the journal.
from triagesim.speech.dialogue import SETTINGS
from triagesim.speech.speakers import recordings_of
from triagesim.speech.spoken import rules_digest

XTTS = CONFIG.audio.xtts.model_dump(exclude={"device"})
CLONED = SPEECH_ENGINE == "xtts"

try:
    # Named here already, so that a job isn't queued for hours to say that a speaker didn't consent.
    RECORDINGS = recordings_of(CONFIG.audio.xtts.speakers) if CLONED else []
except TriageSimError as error:
    sys.exit(f"error: {error}")


rule render_audio:
    input:
        pool="results/pool.jsonl",
        fetched=expand("results/models/{model}.json", model=SPEECH_FILES),
        recordings=RECORDINGS,
    output:
        manifest="results/audio/manifest-{shard}.jsonl",
        errors="results/audio/errors-{shard}.jsonl",
    log:
        "logs/render_audio/{shard}.log",
    benchmark:
        "logs/benchmarks/render_audio/{shard}.tsv"
    conda:
        "../../envs/audio.yaml" if CLONED else "../../envs/core.yaml"
    threads: CONFIG.audio.workers
    resources:
        gpu=int(CLONED and CONFIG.audio.xtts.device != "cpu"),
    params:
        script=SCRIPTS / "render_audio.py",
        store=f"{CONFIG.journal.dir}/_speech",
        engine=SPEECH_ENGINE,
        xtts=f"--xtts {shlex.quote(json.dumps(XTTS))}" if CLONED else "",
        fallback="" if CLONED else "--fallback espeak",
        style=" ".join(
            f"--{name} {getattr(CONFIG.audio, name)}"
            for name in ("channel", "format", "seed")
        ),
        splits=(
            f"--splits {shlex.quote(json.dumps(CONFIG.dataset.splits))}"
            f" --split-seed {CONFIG.dataset.seed}"
            if CONFIG.audio.disjoint_splits
            else ""
        ),
        pairings=(
            f"--pairings {' '.join(CONFIG.audio.pairings)}"
            if CONFIG.audio.pairings
            else ""
        ),
        most=(
            ""
            if CONFIG.audio.max_dialogues is None
            else f"--max-dialogues {CONFIG.audio.max_dialogues}"
        ),
        errors=f"--max-error-rate {CONFIG.audio.max_error_rate}",
        settings=digest(
            [load_yaml(SETTINGS), load_yaml("speech/direction.yaml"), rules_digest()]
        ),
        code=code_of(
            "speech/casting.py",
            "speech/dialogue.py",
            "speech/render.py",
            "speech/sound.py",
        ),
    shell:
        "python {params.script:q} --pool {input.pool} --out {output.manifest} --errors {output.errors}"
        " --store {params.store:q} --engine {params.engine} --fetched {input.fetched} {params.xtts}"
        f" --device {CONFIG.audio.xtts.device} --workers {{threads}}"
        " {params.fallback} {params.style} {params.splits} {params.errors}"
        " --shard {wildcards.shard} {params.pairings} {params.most}"
        " 2>&1 | tee -i {log}"
