# Persona pools from the trait registry, or the user's own.
rule generate_personas:
    input:
        own_personas,
    output:
        pool="results/personas/{role}.jsonl",
        weights="results/personas/{role}.weights.csv",
    log:
        "logs/generate_personas/{role}.log",
    conda:
        "../../envs/core.yaml"
    params:
        script=SCRIPTS / "generate_personas.py",
        options=persona_options,
        seed=CONFIG.simulation.seed,
        registry=registry_content,
        code=code_of("personas.py", "sampling.py"),
    shell:
        "python {params.script:q} --role {wildcards.role} --out {output.pool} --seed {params.seed}"
        " {params.options} > {log} 2>&1"
