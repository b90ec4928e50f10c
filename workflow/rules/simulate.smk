# One job a pairing and shard, or for several shards (shards_per_job). Every model answer is in the journal, which no rule declares, so nothing ever deletes it.
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


# What a job asks of a cluster; --set-resources simulate:… changes it for each of these rules.
SIMULATE_RESOURCES = {**resources_of(models_of), **given_resources("simulate")}

for NUMBER, TOGETHER in enumerate(shards_of_jobs(), 1):

    rule:
        name:
            "simulate" if CONFIG.shards_per_job == 1 else f"simulate_{NUMBER}"
        input:
            simulate_inputs,
            pairing="results/pairings/{pairing}.json",
            cases=expand("results/cases/{shard}.jsonl", shard=TOGETHER),
            nurse="results/personas/nurse.jsonl",
            patient="results/personas/patient.jsonl",
        output:
            episodes=expand(
                "results/episodes/{{pairing}}/{shard}.jsonl", shard=TOGETHER
            ),
            usage=expand("results/usage/{{pairing}}/{shard}.json", shard=TOGETHER),
        log:
            f"logs/simulate/{{pairing}}/{TOGETHER[0]}.log",
        benchmark:
            f"logs/benchmarks/simulate/{{pairing}}/{TOGETHER[0]}.tsv"
        conda:
            lambda wildcards: environment_of(models_of(wildcards))
        threads: lambda wildcards: threads_of(models_of(wildcards))
        resources:
            **SIMULATE_RESOURCES,
        params:
            script=SCRIPTS / "simulate.py",
            journal=lambda wildcards: f"{CONFIG.journal.dir}/{wildcards.pairing}",
        shell:
            "python {params.script:q} --pairing {input.pairing} --cases {input.cases}"
            " --selected results/cases/cases.csv --nurse-personas {input.nurse}"
            " --patient-personas {input.patient} --journal {params.journal:q}"
            " --out {output.episodes} --usage {output.usage}"
            " 2>&1 | tee -i {log}"
