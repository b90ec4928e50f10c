# What is known of the spoken dialogues: manifests for speech tools. Nothing of it where nothing is spoken.
SPEECH_CHECKS = (
    []
    if CONFIG.audio.max_dialogues == 0
    else ["results/audio/dialogues/metadata.jsonl"]
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
        words=digest(load_yaml("speech/corpus.yaml")),
        code=code_of("speech/corpus.py", "speech/manifests.py", "splits.py"),
    shell:
        "python {params.script:q} {input.manifests} --pool {input.pool} --out results/audio/manifests"
        " --metadata {output.metadata} --splits {params.splits:q} --seed {params.seed} > {log} 2>&1"
