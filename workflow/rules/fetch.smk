# Weights and voices that aren't shipped: fetched once, verified, kept outside the run.
from triagesim.fetch import next_attempt
from triagesim.speech.engine import files_of

# Where nothing is spoken, nothing is fetched for it.
SPEECH_ENGINE = "espeak" if CONFIG.audio.max_dialogues == 0 else CONFIG.audio.engine
# A run can do without these: espeak speaks then.
SPEECH_FILES = files_of(SPEECH_ENGINE)


localrules:
    fetch,


rule fetch:
    output:
        "results/models/{model}.json",
    log:
        "logs/fetch/{model}.log",
    retries: 0  # a profile's retries are for a cluster's jobs
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "fetch.py",
        optional=lambda wildcards: (
            f"--optional {next_attempt(Path(f'results/models/{wildcards.model}.json'))}"
            if wildcards.model in SPEECH_FILES
            else ""
        ),
    shell:
        "python {params.script:q} --model {wildcards.model} --out {output} {params.optional} 2>&1 | tee -i {log}"
