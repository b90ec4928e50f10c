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
        "results/episodes/{pairing}/{shard}.jsonl",
    log:
        "logs/simulate/{pairing}/{shard}.log",
    conda:
        "../../envs/core.yaml"
    threads: simulate_threads
    params:
        script=SCRIPTS / "simulate.py",
        journal=lambda wildcards: f"{CONFIG.journal.dir}/{wildcards.pairing}",
    shell:
        "python {params.script:q} --pairing {input.pairing} --cases {input.cases}"
        " --selected results/cases/cases.csv --nurse-personas {input.nurse}"
        " --patient-personas {input.patient} --journal {params.journal:q} --out {output}"
        " 2>&1 | tee -i {log}"
