# Where everything comes from, once everything that the run is for is there. Included behind `rule all`.
CRATE = "results/ro-crate-metadata.json"


localrules:
    manifest,


rule manifest:
    input:
        [target for target in rules.all.input if target != CRATE],
    output:
        CRATE,
    log:
        "logs/manifest.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "manifest.py",
        code=code_of("provenance.py"),
    shell:
        "python {params.script:q} results > {log} 2>&1"
