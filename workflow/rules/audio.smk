# Speech of pooled dialogues; each line is rendered once and kept beside the journal.
rule render_audio:
    input:
        pool="results/pool.jsonl",
        fetched=expand("results/models/{model}.json", model=SPEECH_FILES),
    output:
        "results/audio/manifest-{shard}.jsonl",
    log:
        "logs/render_audio/{shard}.log",
    benchmark:
        "logs/benchmarks/render_audio/{shard}.tsv"
    conda:
        "../../envs/core.yaml"
    resources:
        gpu=int(SPEECH_ENGINE == "xtts"),
    params:
        script=SCRIPTS / "render_audio.py",
        store=f"{CONFIG.journal.dir}/_speech",
        engine=SPEECH_ENGINE,
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
    shell:
        "python {params.script:q} --pool {input.pool} --out {output} --store {params.store:q}"
        " --engine {params.engine} --fetched {input.fetched} --fallback espeak"
        " --shard {wildcards.shard} {params.pairings} {params.most}"
        " 2>&1 | tee -i {log}"
