# Task completion (judged by the model that the configuration names, if any), drop-off and rewrites of every episode.
from triagesim.completion import as_json as judge_as_json
from triagesim.completion import resolve_judge

JUDGED = PAIRINGS if CONFIG.measures.judge else []
REVIEWS = [find_path(CONFIG.measures.reviews)] if CONFIG.measures.reviews else []
MEASURES = expand(
    "results/measures/{pairing}/{shard}.csv", pairing=PAIRINGS, shard=SHARDS
)


localrules:
    resolve_judge,


rule resolve_judge:
    output:
        "results/completion/judge.json",
    log:
        "logs/resolve_judge.log",
    conda:
        "../../envs/core.yaml"
    params:
        spec=lambda wildcards: json.dumps(
            judge_as_json(resolve_judge(CONFIG)), sort_keys=True
        ),
    shell:
        "printf '%s\\n' {params.spec:q} > {output} 2> {log}"


rule judge_completion:
    input:
        lambda wildcards: weights_of([CONFIG.models[CONFIG.measures.judge]]),
        episodes="results/episodes/{pairing}/{shard}.jsonl",
        judge="results/completion/judge.json",
    output:
        verdicts="results/completion/{pairing}/{shard}.jsonl",
        usage="results/usage/_completion-{pairing}/{shard}.json",
    log:
        "logs/judge_completion/{pairing}/{shard}.log",
    conda:
        lambda wildcards: environment_of([CONFIG.models[CONFIG.measures.judge]])
    threads: lambda wildcards: threads_of([CONFIG.models[CONFIG.measures.judge]])
    resources:
        **resources_of(lambda wildcards: [CONFIG.models[CONFIG.measures.judge]]),
    params:
        script=SCRIPTS / "judge_completion.py",
        journal=lambda wildcards: f"{CONFIG.journal.dir}/_completion-{wildcards.pairing}",
        most=CONFIG.measures.max_error_rate,
    shell:
        "python {params.script:q} {input.episodes} --judge {input.judge} --journal {params.journal:q}"
        " --max-error-rate {params.most} --out {output.verdicts} --usage {output.usage} 2>&1 | tee -i {log}"
