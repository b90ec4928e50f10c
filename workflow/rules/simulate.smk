# One job a pairing and shard. Every model answer is in the journal, which no rule declares, so nothing ever deletes it.
localrules:
    resolve_pairing,


rule resolve_pairing:
    output:
        "results/pairings/{pairing}.json",
    log:
        "logs/resolve_pairing/{pairing}.log",
    conda:
        "../../envs/core.yaml"
    params:
        spec=pairing_spec,
    shell:
        "printf '%s\\n' {params.spec:q} > {output} 2> {log}"


rule simulate:
    input:
        simulate_inputs,
        pairing="results/pairings/{pairing}.json",
        cases="results/cases/{shard}.jsonl",
        nurse="results/personas/nurse.jsonl",
        patient="results/personas/patient.jsonl",
    output:
        episodes="results/episodes/{pairing}/{shard}.jsonl",
        usage="results/usage/{pairing}/{shard}.json",
    log:
        "logs/simulate/{pairing}/{shard}.log",
    conda:
        lambda wildcards: environment_of(models_of(wildcards))
    threads: lambda wildcards: threads_of(models_of(wildcards))
    params:
        script=SCRIPTS / "simulate.py",
        journal=lambda wildcards: f"{CONFIG.journal.dir}/{wildcards.pairing}",
    shell:
        "python {params.script:q} --pairing {input.pairing} --cases {input.cases}"
        " --selected results/cases/cases.csv --nurse-personas {input.nurse}"
        " --patient-personas {input.patient} --journal {params.journal:q}"
        " --out {output.episodes} --usage {output.usage}"
        " 2>&1 | tee -i {log}"
