# What is known of the spoken dialogues: manifests for speech tools, acoustics, recognition. Nothing where nothing is spoken.
from triagesim.speech.recognise import files_of_recogniser

SPEECH_CHECKS = (
    []
    if CONFIG.audio.max_dialogues == 0
    else ["results/audio/dialogues/metadata.jsonl", "results/metrics/acoustics.csv"]
)


rule audio_manifests:
    input:
        manifests=AUDIO,
        pool="results/pool.jsonl",
    output:
        expand(
            "results/audio/manifests/{name}",
            name=(
                "dialogues.rttm",
                "dialogues.stm",
                "dialogues.ctm",
                "recordings.jsonl.gz",
                "supervisions.jsonl.gz",
            ),
        ),
        directory("results/audio/manifests/webvtt"),
        directory("results/audio/manifests/textgrid"),
        metadata="results/audio/dialogues/metadata.jsonl",
    log:
        "logs/audio_manifests.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "audio_manifests.py",
        splits=json.dumps(CONFIG.dataset.splits),
        seed=CONFIG.dataset.seed,
        data=data_of("speech/corpus.yaml"),
        code=code_of("speech/corpus.py", "speech/manifests.py", "splits.py"),
    shell:
        "python {params.script:q} {input.manifests} --pool {input.pool} --out results/audio/manifests"
        " --metadata {output.metadata} --splits {params.splits:q} --seed {params.seed} > {log} 2>&1"


rule acoustics:
    input:
        manifests=AUDIO,
        pool="results/pool.jsonl",
    output:
        measured="results/metrics/acoustics.csv",
        checks="results/metrics/audio_checks.csv",
    log:
        "logs/acoustics.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "acoustics.py",
        seed=CONFIG.simulation.seed,
        data=data_of("speech/acoustics.yaml", "speech/corpus.yaml"),
        code=code_of(
            "bootstrap.py", "estimates.py", "speech/acoustics.py", "speech/corpus.py"
        ),
    shell:
        "python {params.script:q} {input.manifests} --pool {input.pool} --out {output.measured}"
        " --checks {output.checks} --seed {params.seed} > {log} 2>&1"


# Speech recognition of what was spoken, where the configuration asks for it.
TRANSCRIBE = CONFIG.audio.transcribe if SPEECH_CHECKS else None

try:
    RECOGNISER_FILES = files_of_recogniser(TRANSCRIBE.model) if TRANSCRIBE else []
except TriageSimError as error:
    sys.exit(f"error: {error}")

if TRANSCRIBE:
    SPEECH_CHECKS.append("results/metrics/asr.csv")

    rule transcribe:
        input:
            manifest="results/audio/manifest-{shard}.jsonl",
            fetched=expand("results/models/{model}.json", model=RECOGNISER_FILES),
        output:
            "results/audio/asr-{shard}.jsonl",
        log:
            "logs/transcribe/{shard}.log",
        conda:
            "../../envs/asr.yaml"
        threads: 4
        params:
            script=SCRIPTS / "transcribe.py",
            model=TRANSCRIBE.model,
            padding=load_yaml("speech/asr.yaml")["padding"],
        shell:
            "python {params.script:q} {input.manifest} --out {output} --model {params.model:q} --threads {threads}"
            " 2>&1 | tee -i {log}"

    rule asr_metrics:
        input:
            heard=expand("results/audio/asr-{shard}.jsonl", shard=AUDIO_SHARDS),
            pool="results/pool.jsonl",
        output:
            "results/metrics/asr.csv",
        log:
            "logs/asr_metrics.log",
        conda:
            "../../envs/asr.yaml"
        params:
            script=SCRIPTS / "asr_metrics.py",
            seed=CONFIG.simulation.seed,
            rules=digest([load_yaml("speech/asr.yaml"), rules_digest()]),
            code=code_of("bootstrap.py", "speech/heard.py"),
        shell:
            "python {params.script:q} {input.heard} --pool {input.pool} --out {output} --seed {params.seed} > {log} 2>&1"
