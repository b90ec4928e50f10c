# Weights and voices that aren't shipped: fetched once, verified, kept outside the run.
localrules:
    fetch,


rule fetch:
    output:
        "results/models/{model}.json",
    log:
        "logs/fetch/{model}.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "fetch.py",
    shell:
        "python {params.script} --model {wildcards.model} --out {output} 2>&1 | tee -i {log}"
