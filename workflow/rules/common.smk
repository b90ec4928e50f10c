# The checked configuration and the names that the rules share.
import json
import shlex

from snakemake.settings.types import DeploymentMethod

from triagesim.backends.keys import check_keys
from triagesim.clock import settle_times
from triagesim.config import check_config
from triagesim.demand import demand
from triagesim.environment import as_seen, prepare
from triagesim.governance import OPEN, close_folders
from triagesim.jsonl import digest, write_json
from triagesim.limits import clear_mark
from triagesim.pairing import as_json, check_files, resolve, runtime
from triagesim.resources import find_path, load_yaml
from triagesim.source_code import code_digest
from triagesim.speech.recognise import check_installed
from triagesim.summary import closing_lines

try:
    CONFIG = check_config(
        config,
        ", ".join(str(as_seen(Path(path))) for path in workflow.configfiles)
        or "config",
    )
    PROVENANCE = check_files(CONFIG)
    PAIRINGS = {pairing.slug: resolve(CONFIG, pairing) for pairing in CONFIG.expanded()}
except TriageSimError as error:
    sys.exit(f"error: {error}")
prepare(HERE, runtime(CONFIG))
# Every process of the workflow inherits it: what is made from data that isn't open is the owner's alone.
PRIVATE = PROVENANCE not in OPEN
if PRIVATE:
    os.umask(0o077)

SCRIPTS = HERE / "scripts"
SHARDS = [f"{number}-of-{CONFIG.shards}" for number in range(1, CONFIG.shards + 1)]
AUDIO_SHARDS = [
    f"{number}-of-{CONFIG.audio.shards}" for number in range(1, CONFIG.audio.shards + 1)
]
AUDIO = expand("results/audio/manifest-{shard}.jsonl", shard=AUDIO_SHARDS)


wildcard_constraints:
    pairing=r"[A-Za-z0-9][A-Za-z0-9._-]*",
    shard=r"\d+-of-\d+",
    model=r"[A-Za-z0-9][A-Za-z0-9._-]*",
    role="nurse|patient",


def code_of(*modules):
    """A hash of the code of a cheap stage, so that a change of it reruns the stage."""
    return code_digest([HERE / "triagesim" / name for name in modules])[:16]


def data_of(*names):
    """A hash of what files in resources/ say, for a cheap stage that reads them."""
    return digest([load_yaml(name) for name in names])[:16]


def pool_options():
    """The filters and quotas of the pool, as the script takes them."""
    pool = CONFIG.pool
    flags = {"--no-flags": pool.no_flags, "--nurse-ended": pool.nurse_ended}
    values = {"--per-level": pool.per_level, "--per-case": pool.per_case}
    given = [flag for flag, on in flags.items() if on]
    given += [f"{option} {value}" for option, value in values.items() if value]
    return " ".join([*given, f"--balanced {pool.balanced} --seed {pool.seed}"])


def episodes_of_run():
    """Every shard of every pairing, in the configuration's order."""
    return expand(
        "results/episodes/{pairing}/{shard}.jsonl", pairing=PAIRINGS, shard=SHARDS
    )


def listed(path, pairings=PAIRINGS):
    """The files of all pairings and shards in the few words that bash makes the list of, in the order of `expand`.

    A shell command may have 128 kB, which a thousand shards fill; what bash starts with it may be given 2 MB. It is a
    function because Snakemake would take the braces for wildcards.
    """
    names = f"{{{','.join(pairings)}}}" if len(pairings) > 1 else "".join(pairings)
    shards = f"{{1..{CONFIG.shards}}}-of-{CONFIG.shards}"
    text = path.format(pairing=names, shard=shards) if pairings else ""
    return lambda wildcards: text


EPISODES = listed("results/episodes/{pairing}/{shard}.jsonl")


def registry_content(wildcards):
    """A hash of the traits that a role's personas are made of."""
    return digest(load_yaml(f"personas/{wildcards.role}.yaml"))


def own_personas(wildcards):
    """The user's own personas of a role, if the configuration names any."""
    own = getattr(CONFIG.personas, wildcards.role).file
    return [find_path(own)] if own else []


def persona_options(wildcards):
    """How the pool of a role is made. What depends on `input` too is no rerun trigger, so this doesn't."""
    pool = getattr(CONFIG.personas, wildcards.role)
    if pool.file:
        return f"--file {shlex.quote(str(find_path(pool.file)))}"
    count = f" --n {pool.n}" if pool.sampling in ("uniform", "prevalence") else ""
    return f"--sampling {pool.sampling}{count}"


def pairing_spec(wildcards):
    """Everything that the episodes of a pairing depend on, as JSON."""
    return json.dumps(as_json(PAIRINGS[wildcards.pairing]), sort_keys=True)


def simulate_inputs(wildcards):
    """Beside the shard: the order of the cases where the pairing is limited, and the weights that it needs."""
    pairing = PAIRINGS[wildcards.pairing]
    inputs = ["results/cases/cases.csv"] if pairing.limit is not None else []
    return inputs + weights_of(models_of(wildcards))


def models_of(wildcards):
    """The models of a pairing, as the configuration describes them."""
    return [seated.options for seated in PAIRINGS[wildcards.pairing].models.values()]


def weights_of(models):
    """The fetched weights that models need."""
    return sorted(
        {
            f"results/models/{model.model}.json"
            for model in models
            if model.backend == "llamacpp" and not model.model.endswith(".gguf")
        }
    )


def environment_of(models):
    """The environment with vLLM only where a model runs on it: it is large."""
    name = "vllm" if any(model.backend == "vllm" for model in models) else "core"
    return f"../../envs/{name}.yaml"


def shards_of_jobs():
    """The shards that share a job, job by job; with one shard a job that is a single entry with the wildcard."""
    size = CONFIG.shards_per_job
    if size == 1:
        return [["{shard}"]]
    return [SHARDS[start : start + size] for start in range(0, len(SHARDS), size)]


def given_resources(rule):
    """What --set-resources says of a rule, for rules that are made from it under other names."""
    given = workflow.resource_settings.overwrite_resources.get(rule, {})
    return {name: getattr(value, "raw", value) for name, value in given.items()}


def resources_of(models):
    """What a job asks of a cluster in which models run; `models`: of its wildcards."""
    return {
        "ncpus": lambda wildcards: demand(models(wildcards)).cpus,
        "gpu": lambda wildcards: demand(models(wildcards)).gpus,
        "mem_mb": lambda wildcards: demand(models(wildcards)).memory_mb,
        "runtime": 120,
    }


def threads_of(models):
    """On this machine more than half of its cores for a model that runs here, so that no two jobs share a GPU.

    The baseline and hosted models still run beside it, but for a model on the CPU, which takes every core. A cluster's
    scheduler keeps jobs apart by itself.
    """
    needs = demand(models)
    if workflow.nodes or workflow.remote_exec or needs.cpus == 1:
        return 1
    cores = workflow.cores or 1
    return cores // 2 + 1 if needs.gpus else cores


def check_hearing():
    """Say before any job that what hears isn't there, if a job will need it in the environment that is on now."""
    elsewhere = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
    if elsewhere or not workflow.local_exec:
        return
    # A module's rules have a prefix.
    if any(job.rule.name.endswith("transcribe") for job in workflow.dag.needrun_jobs()):
        check_installed()


def check_keys_of_jobs():
    """Say before any job that a model can't be asked for want of a key, if a job will need it."""
    # Beside a module's rules there may be others.
    asking = [
        job
        for job in workflow.dag.needrun_jobs()
        if job.params.get("journal") and job.wildcards.get("pairing") in PAIRINGS
    ]
    jobs = [(Path(job.params.journal), models_asked_by(job)) for job in asking]
    if warning := check_keys(jobs, here=workflow.local_exec):
        print(f"warning: {warning}", file=sys.stderr)


def models_asked_by(job):
    """The models that a job asks: the pairing's, or the judge of completion."""
    if job.rule.name.endswith("judge_completion"):
        return [CONFIG.models[CONFIG.measures.judge]]
    return models_of(job.wildcards)
