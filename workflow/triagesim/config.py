"""The run's configuration: pydantic models are its one source, defaults, schema and checks come from them.

`config/README.md` explains every key to a user; the JSON Schema in `workflow/schemas/config.schema.json` is generated
from these models (`python -m triagesim.schemas`) and serves editors and Snakemake's `validate`.
"""

from __future__ import annotations

import datetime as dt
import difflib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, field_validator

from triagesim.cases import Scale
from triagesim.errors import InputError
from triagesim.governance import OPEN, Provenance, provider_of, reason, unattested
from triagesim.yaml_files import read_yaml

SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Slug = Annotated[str, Field(pattern=rf"^{SLUG.pattern}$")]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(pattern=r"\S")]
SplitName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
Sampling = dict[str, float | int | list[str]]
Speculation = Literal["auto", "off", "reading", "full"]


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Select(Section):
    """Which of the accepted cases are simulated; all of them unless a key says otherwise."""

    per_acuity: Positive | None = Field(None, description="at most so many cases of each level, drawn with `seed`")
    sample: Positive | None = Field(None, description="at most so many cases in all, drawn with `seed`")
    stays: list[str | int] | None = Field(None, description="only these case ids")
    drop_ambulance_level1: bool = Field(False, description="leave out level-1 cases that arrive by ambulance")
    seed: int = 0


class Data(Section):
    """Where the cases come from."""

    source: str = Field(description="a .jsonl, .json or .csv of cases, or a folder of MIMIC-IV-ED")
    provenance: Provenance = Field(description="what kind of data this is; decides where it may be sent")
    scale: Scale | None = Field(None, description="the scale of `acuity` for cases that don't say it themselves")
    select: Select = Select()


class PersonaPool(Section):
    """Which personas one role is drawn from."""

    sampling: Literal["uniform", "all", "prevalence", "covering"] = "uniform"
    n: Positive = Field(500, description="how many personas `uniform` and `prevalence` draw from the registry")
    file: str | None = Field(None, description="own personas (.jsonl or .yaml) instead of the registry's")


class Personas(Section):
    """The persona pools."""

    patient: PersonaPool = PersonaPool()
    nurse: PersonaPool = PersonaPool()


class _Model(Section):
    """What every language model has."""

    sampling: Sampling = Field(default_factory=dict, description="temperature, top_p, max_tokens … over its defaults")
    prompts: Literal["full", "compact"] = "full"


class AgendaModel(Section):
    """The baseline without a language model."""

    backend: Literal["agenda"]


class LlamaCppModel(_Model):
    """A small model on the CPU, in this process."""

    backend: Literal["llamacpp"]
    model: str = Field(description="a name in resources/models/catalogue.yaml, or a path to a .gguf file")
    context: Positive = Field(4096, description="tokens that one call may take")
    max_string: Positive = Field(240, description="longest text in an answer, in characters")
    slots: Positive = Field(4, description="runtime: calls at once")
    threads: Positive | None = Field(None, description="runtime: threads; all of the machine's unless set")


class VllmModel(_Model):
    """A model on vLLM, in this process; further keys are vLLM engine arguments."""

    model_config = ConfigDict(extra="allow", frozen=True)

    backend: Literal["vllm"]
    model: str = Field(description="a path or a hub id")
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict, description="for the model's chat template")


#: Where OpenRouter is asked, unless `base_url` says otherwise.
OPENROUTER = "https://openrouter.ai/api/v1"


class HostedModel(_Model):
    """A model behind an HTTP API that speaks OpenAI's chat protocol."""

    model: str = Field(description="the model's id at the endpoint")
    reasoning: str | dict[str, Any] | None = Field(None, description="effort: none, low, medium, high; or the field")
    extra_body: dict[str, Any] = Field(default_factory=dict, description="sent with every request")
    max_workers: Positive = Field(16, description="runtime: calls at once")
    timeout: Annotated[float, Field(gt=0)] = Field(300, description="runtime: seconds until a call counts as lost")
    base_url: str | None = Field(None, description="runtime: the endpoint, up to and with /v1")


class OpenRouterModel(HostedModel):
    """A model at OpenRouter."""

    backend: Literal["openrouter"]


class OpenAIModel(HostedModel):
    """A model at any server that speaks OpenAI's chat protocol (vLLM's, llama.cpp's, a provider's)."""

    backend: Literal["openai"]
    local: bool = Field(False, description="true only if the endpoint runs on machines that may see your data")
    identity: str | None = Field(None, description="what the server serves: weights and revision")


def _backend_of(value: Any) -> str | None:
    return value.get("backend") if isinstance(value, Mapping) else getattr(value, "backend", None)


#: What `backend` may be.
BACKENDS = ("agenda", "llamacpp", "vllm", "openrouter", "openai")

Model = Annotated[
    Annotated[AgendaModel, Tag("agenda")]
    | Annotated[LlamaCppModel, Tag("llamacpp")]
    | Annotated[VllmModel, Tag("vllm")]
    | Annotated[OpenRouterModel, Tag("openrouter")]
    | Annotated[OpenAIModel, Tag("openai")],
    Discriminator(
        _backend_of,
        custom_error_type="backend",
        custom_error_message=f"needs `backend`, one of {', '.join(BACKENDS)}",
    ),
]

#: Options of a model that can't change an answer: they stay out of identities and journal keys.
RUNTIME_OPTIONS = frozenset(
    {"slots", "threads", "gpu_memory_utilization", "tensor_parallel_size", "pipeline_parallel_size"}
    | {"base_url", "local", "max_num_seqs", "max_num_batched_tokens", "max_workers", "timeout"}
)


class Features(Section):
    """Optional parts of an episode."""

    appearance: bool = Field(False, description="the nurse is told what can be seen of the patient; needs a judge")
    belief_state: bool = Field(False, description="the nurse is shown its own last assessment")
    feedback: bool = Field(False, description="the nurse is told how near its level is: leaks the label")


class CaseLimit(Section):
    """Which cases a pairing takes."""

    limit: Positive | None = Field(None, description="only the first so many selected cases, as the source orders them")


class _PairingOptions(Section):
    algorithm: Scale | None = Field(None, description="instead of simulation.algorithm")
    features: Features | None = Field(None, description="instead of simulation.features")
    cases: CaseLimit = CaseLimit()
    max_turns: Positive | None = Field(None, description="instead of simulation.max_turns")
    max_error_rate: Share | None = Field(None, description="instead of simulation.max_error_rate")


class Pairing(_PairingOptions):
    """One combination of models; each name is a key of `models`."""

    name: Slug | None = Field(None, description="names its folders; made from the models unless given")
    nurse: str
    patient: str
    judge: str | None = None

    @property
    def slug(self) -> str:
        """The name that its files carry."""
        if self.name:
            return self.name
        same = self.nurse == self.patient and self.judge is None
        return self.nurse if same else "--".join(filter(None, (self.nurse, self.patient, self.judge)))


class Grid(Section):
    """Every combination of these."""

    nurse: Annotated[list[str], Field(min_length=1)]
    patient: Annotated[list[str], Field(min_length=1)]
    judge: Annotated[list[str | None], Field(min_length=1)] = [None]


class PairingGrid(_PairingOptions):
    """A sweep: every nurse with every patient (and judge), with `mirror` also the other way round."""

    grid: Grid
    mirror: bool = False

    def expand(self) -> list[Pairing]:
        """Each combination once, in the grid's order, mirrors last."""
        pairs = list(itertools.product(self.grid.nurse, self.grid.patient, self.grid.judge))
        if self.mirror:
            pairs += [(patient, nurse, judge) for nurse, patient, judge in pairs]
        options = self.model_dump(exclude={"grid", "mirror"}, exclude_unset=True)
        return [Pairing(nurse=n, patient=p, judge=j, **options) for n, p, j in dict.fromkeys(pairs)]


Pairings = Annotated[
    Annotated[list[Pairing], Tag("list")] | Annotated[PairingGrid, Tag("grid")],
    Discriminator(
        lambda value: (
            "list" if isinstance(value, list) else ("grid" if isinstance(value, dict | PairingGrid) else None)
        ),
        custom_error_type="pairings",
        custom_error_message="expected a list of {nurse: …, patient: …}, or {grid: {nurse: […], patient: […]}}",
    ),
]


class Simulation(Section):
    """The episodes' rules."""

    algorithm: Scale | None = Field(None, description="the scale the nurse uses; each case's own unless set")
    max_turns: Positive = Field(12, description="questions that the nurse may ask")
    min_questions: Annotated[int, Field(ge=0)] = 3
    max_regenerations: Annotated[int, Field(ge=0)] = 1
    episodes_per_case: Positive = 1
    seed: int = 0
    features: Features = Features()
    sampling: dict[Literal["nurse", "patient", "judge", "script"], Sampling] = Field(default_factory=dict)
    max_error_rate: Share = Field(0, description="share of a shard's episodes that may fail without failing the job")


class Measures(Section):
    """What is measured beside agreement."""

    judge: str | None = Field(None, description="a model that judges whether each finished episode did its task")
    sampling: Sampling = Field(default_factory=dict, description="of this judge, over the model's own")
    max_error_rate: Share = Field(0, description="share of a shard's episodes that may go without its verdict")
    reviews: str | None = Field(None, description="a review file: lines as clinicians would have them")


class Score(Section):
    """How the figures of agreement are made."""

    bootstrap: Annotated[int, Field(ge=100)] = Field(2000, description="draws for each interval")
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    seed: int = 0
    cluster: Literal["case", "subject"] = Field("case", description="what is drawn: cases, or patients with all theirs")
    prevalence: Annotated[list[Share], Field(min_length=5, max_length=5)] | None = Field(
        None, description="shares of levels 1 to 5 where the nurse would work, for accuracy_reweighted"
    )

    @field_validator("prevalence")
    @classmethod
    def _add_up(cls, shares: list[float] | None) -> list[float] | None:
        if shares is not None and abs(sum(shares) - 1) > 0.005:
            raise ValueError(f"the shares of levels 1 to 5 must add up to 1, these add up to {sum(shares):g}")
        return shares


class Pool(Section):
    """Which episodes are kept."""

    no_flags: bool = Field(True, description="drop episodes with a line that failed its checks and wasn't mended")
    nurse_ended: bool = Field(True, description="drop episodes that ran out of questions")
    per_level: Positive | None = Field(None, description="at most so many episodes of each level")
    per_case: Positive | None = Field(
        None, description="at most so many episodes of each case, of all pairings together"
    )
    balanced: Literal["none", "quota", "weights"] = Field(
        "none", description="quota: as many of each level; weights: with them the pool has the run's mix of personas"
    )
    seed: int = Field(0, description="of the choice where there are more than a quota allows")


class Xtts(Section):
    """The engine that clones voices, whose weights have a licence that only the user can accept."""

    model: str = Field(
        "tts_models/multilingual/multi-dataset/xtts_v2", description="a folder, or a name that coqui-tts fetches"
    )
    accept_license: bool = Field(False, description="whether you accept the weights' licence (CPML: non-commercial)")
    speakers: str = Field("resources/voices/xtts.yaml", description="whose recordings are cloned, with their consent")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="runtime: where it runs")
    language: str = "en"
    sampling: dict[
        Literal["temperature", "length_penalty", "repetition_penalty", "top_k", "top_p"], Annotated[float, Field(gt=0)]
    ] = Field(default_factory=dict, description="over the model's own")


class Transcribe(Section):
    """What hears the spoken dialogues, to say what of them can be understood."""

    model: str = Field("whisper-tiny", description="whisper-tiny, whisper-base, or a folder of a model for CTranslate2")


class Audio(Section):
    """What is spoken, and how."""

    engine: Literal["espeak", "kokoro", "xtts"] = Field(
        "espeak", description="kokoro sounds better, espeak is instant, xtts clones recordings"
    )
    pairings: list[str] | None = Field(None, description="only these pairings; all unless set")
    max_dialogues: Annotated[int, Field(ge=0)] | None = Field(None, description="shortest first; all unless set")
    shards: Positive = 1
    channel: Literal["clean", "room", "telephone"] = Field("clean", description="what the voices pass through")
    format: Literal["flac", "wav"] = "flac"
    seed: int = Field(0, description="of casting, gaps, rooms and engine")
    disjoint_splits: bool = Field(False, description="no voice is heard in two of dataset.splits")
    max_error_rate: Share = Field(0, description="share of a shard's dialogues that may fail without failing the job")
    workers: Positive = Field(1, description="runtime: processes that speak in a job, each with an engine of its own")
    xtts: Xtts = Xtts()
    transcribe: Transcribe | None = Field(None, description="speech recognition of what was spoken; off unless set")


class Dataset(Section):
    """What is handed on as a dataset, and how its patients are split."""

    of: Literal["pool", "all"] = Field("pool", description="the pool's dialogues, or every finished one")
    splits: dict[SplitName, Annotated[float, Field(ge=0)]] = Field(
        {"train": 0.8, "dev": 0.1, "test": 0.1}, description="share of the patients by name of the split"
    )
    seed: int = 0
    include_credentialed: bool = Field(False, description="also text that comes from credentialed or identifiable data")


class Review(Section):
    """What is given to clinicians, and where their files come back to."""

    sample: Positive = Field(50, description="dialogues, as evenly over levels and pairings as they go")
    repeats: Annotated[int, Field(ge=0)] = Field(5, description="of these shown twice, at most half of them")
    seed: int = 0
    returned: str = Field("results/review/returned", description="the folder of the filled-in files")


class Journal(Section):
    """Where every model answer is kept."""

    dir: Annotated[str, Field(min_length=1)] = "journal"


class Budget(Section):
    """What all answers in `journal.dir` may have cost together; then every job stops, and goes on once it is raised."""

    usd: Annotated[float, Field(gt=0)] | None = Field(None, description="US dollars, as the providers report them")
    tokens: Positive | None = Field(None, description="prompt and answer tokens")


class HostedAttestation(Section):
    """What a person attests of a hosted model, so that data that isn't open may be sent to it; every key is needed."""

    user: Text = Field(description="who attests it")
    date: dt.date = Field(description="when; it counts for 180 days")
    provider: Text = Field(description="the host of the endpoint's base_url, as in openrouter.ai")
    model: Text = Field(description="as in models.<name>.model")
    zero_retention: Literal[True] = Field(description="the provider keeps nothing of what it is sent or answers")
    no_training: Literal[True] = Field(description="nothing of it trains a model")
    no_human_review: Literal[True] = Field(description="nobody at the provider reads it")
    agreement_ref: Text = Field(description="the contract or terms that say so")


Attestations = Annotated[
    Annotated[list[HostedAttestation], Tag("list")] | Annotated[HostedAttestation, Tag("block")],
    Discriminator(lambda value: "list" if isinstance(value, list) else "block"),
]


class Governance(Section):
    """What a person answers for."""

    hosted_attestation: Attestations | None = Field(None, description="a block, or a list of one a hosted model")

    @property
    def attestations(self) -> list[HostedAttestation]:
        """All of them."""
        found = self.hosted_attestation
        return [] if found is None else found if isinstance(found, list) else [found]


class Runtime(Section):
    """How the work is done. Nothing here changes a result, so nothing here reruns a rule."""

    concurrency: Positive = Field(64, description="episodes in flight in a shard")
    speculation: Speculation = Field(
        "auto",
        description="calls before the check they depend on: off, reading, full; auto: full where it costs nothing",
    )
    time_limit: Positive | None = Field(None, description="seconds after which a simulate job stops by itself, exit 75")
    key_file: str | None = Field(None, description="a file of API keys (NAME=value), instead of .env; yours alone")


class Config(Section):
    """The whole run."""

    data: Data
    personas: Personas = Personas()
    models: dict[Slug, Model]
    pairings: Pairings
    simulation: Simulation = Simulation()
    measures: Measures = Measures()
    shards: Positive = Field(4, description="jobs that a pairing is cut into")
    shards_per_job: Positive = Field(1, description="shards that one simulate job does, loading its models once")
    score: Score = Score()
    pool: Pool = Pool()
    audio: Audio = Audio()
    dataset: Dataset = Dataset()
    review: Review = Review()
    journal: Journal = Journal()
    budget: Budget = Budget()
    governance: Governance = Governance()
    runtime: Runtime = Runtime()

    def expanded(self) -> list[Pairing]:
        """The pairings one by one."""
        return self.pairings.expand() if isinstance(self.pairings, PairingGrid) else self.pairings


def check_syntax(path: Path) -> None:
    """Say where a file isn't YAML or has a key twice, which Snakemake wouldn't.

    Raises:
        InputError: with file and line.
    """
    read_yaml(path, "see config/README.md")


def check_config(raw: Mapping[str, Any], name: str = "config") -> Config:
    """Validate a configuration and fill in its defaults.

    Raises:
        InputError: with every error at once, one a line: path, what was expected, a near name for a mistyped key.
    """
    try:
        config = Config.model_validate(dict(raw))
    except ValidationError as error:
        problems = list(_explain(error, dict(raw)))
    else:
        problems = list(_across(config))
        if not problems:
            return config
    lines = "\n".join(f"  {problem}" for problem in dict.fromkeys(problems))
    raise InputError(f"{name}: {len(lines.splitlines())} error(s); every key is explained in config/README.md\n{lines}")


def identity_options(model: BaseModel) -> dict[str, Any]:
    """The options of a model that can change its answers."""
    return {key: value for key, value in model.model_dump(mode="json").items() if key not in RUNTIME_OPTIONS}


def runtime_options(model: BaseModel) -> dict[str, Any]:
    """The options of a model that can't change its answers, as far as they are set."""
    options = model.model_dump(mode="json", exclude_none=True)
    return {key: value for key, value in options.items() if key in RUNTIME_OPTIONS}


def leaves(model: BaseModel) -> bool:
    """Whether what is sent to a model leaves the machines that the user declared as the own ones."""
    return isinstance(model, HostedModel) and not getattr(model, "local", False)


def nearest(name: str, names: list[str]) -> str:
    """` (did you mean x?)` for a near name, else the empty text."""
    near = difflib.get_close_matches(name, names, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _across(config: Config) -> Iterator[str]:
    """Errors between keys."""
    for name, model in config.models.items():
        if isinstance(model, OpenAIModel) and model.base_url is None:
            yield f"models.{name}.base_url: is required, as in http://localhost:8000/v1"
    pairings = config.expanded()
    if not pairings:
        yield "pairings: nothing to simulate; add at least one {nurse: …, patient: …}"
    slugs: dict[str, int] = {}
    for number, pairing in enumerate(pairings):
        where = _place(config, number)
        yield from _unknown(config, _seats(pairing, where))
        if pairing.judge is None and (pairing.features or config.simulation.features).appearance:
            yield f"{where}.features.appearance: needs a dialogue master; name a judge"
        if first := slugs.get(pairing.slug.lower()):
            yield f"{where}.name: {pairing.slug!r} is the name of pairings[{first - 1}] already; give each its own name"
        slugs.setdefault(pairing.slug.lower(), number + 1)
    yield from refused(config, config.data.provenance)
    judge = config.models.get(config.measures.judge or "")
    yield from _unknown(config, [("measures.judge", config.measures.judge)])
    if isinstance(judge, AgendaModel):
        yield "measures.judge: the agenda is no language model and can't judge a dialogue as a whole; name one that is"
    if Path(os.path.normpath(config.journal.dir)).parts[:1] == ("results",):
        yield "journal.dir: lies in results/, which is deleted to start afresh; name a folder outside it"
    if not any(config.dataset.splits.values()):
        yield "dataset.splits: no share is above 0, as in {train: 0.8, dev: 0.1, test: 0.1}"
    if config.audio.engine == "xtts" and not config.audio.xtts.accept_license:
        yield (
            "audio.xtts.accept_license: the engine xtts needs weights under the Coqui Public Model License, which "
            "allows no commercial use; set it to true if you have read and accept it"
        )
    for name in config.audio.pairings or []:
        if name not in (known := [p.slug for p in pairings]):
            yield f"audio.pairings: no pairing {name!r}{nearest(name, known)}; there are {', '.join(known)}"


def refused(config: Config, provenance: Provenance) -> Iterator[str]:
    """The hosted models of the run that data of this provenance may not be sent to."""
    if provenance in OPEN:
        return
    for where, name in _asked(config):
        model = config.models.get(name or "")
        if not isinstance(model, HostedModel) or not leaves(model):
            continue
        at = provider_of(model.base_url or OPENROUTER)
        why_not = unattested(provenance, config.governance.attestations, at, model.model, dt.date.today())
        if why_not is None:
            continue
        own = f", or set models.{name}.local: true if the endpoint runs on machines that may see the data"
        yield (
            f"{where}: data.provenance {provenance} may not be sent to the hosted model {name!r}"
            f"{reason(provenance)}, and {why_not}; use a local model{own if isinstance(model, OpenAIModel) else ''}"
        )


def _asked(config: Config) -> Iterator[tuple[str, str | None]]:
    """Every key that names a model which is asked, with that name."""
    for number, pairing in enumerate(config.expanded()):
        yield from _seats(pairing, _place(config, number))
    yield "measures.judge", config.measures.judge


def _place(config: Config, number: int) -> str:
    """The key that a pairing stands under."""
    return f"pairings[{number}]" if isinstance(config.pairings, list) else "pairings.grid"


def _seats(pairing: Pairing, where: str) -> Iterator[tuple[str, str | None]]:
    """The keys of a pairing that name a model, with that name."""
    yield from ((f"{where}.{role}", getattr(pairing, role)) for role in ("nurse", "patient", "judge"))


def _unknown(config: Config, asked: Iterable[tuple[str, str | None]]) -> Iterator[str]:
    """Which of these names, each after its key, is no model; None asks for none."""
    known = list(config.models)
    for where, name in asked:
        if name is not None and name not in known:
            yield f"{where}: no model {name!r} in models{nearest(name, known)}; there are {', '.join(known)}"


def _explain(error: ValidationError, raw: dict[str, Any]) -> Iterator[str]:
    for item in error.errors():
        keys = _data_path(item["loc"], raw)
        path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).lstrip(".") or "config"
        if item["type"] == "extra_forbidden":
            known = sorted(_known_keys(keys[:-1], raw))
            hint = nearest(str(keys[-1]), known) or f"; known here: {', '.join(known)}"
            yield f"{path}: unknown key{hint}"
        elif item["type"] == "missing":
            yield f"{path}: is required and isn't there"
        else:
            yield f"{path}: {item['msg'].removeprefix('Value error, ')} (found {item['input']!r:.80})"


def _data_path(loc: tuple[int | str, ...], raw: Any) -> list[int | str]:
    """The keys of `loc` that stand in the user's file: pydantic's union tags are left out."""
    path: list[int | str] = []
    value = raw
    for position, key in enumerate(loc):
        inside = (isinstance(value, Mapping) and key in value) or (isinstance(value, list) and isinstance(key, int))
        if inside:
            path.append(key)
            value = value[key]
        elif position == len(loc) - 1:
            path.append(key)
    return path


def _known_keys(path: list[int | str], raw: Any) -> set[str]:
    """The keys that the schema knows at a path, over the alternatives that fit the `backend` named there."""
    schema = Config.model_json_schema()
    nodes, value = [schema], raw
    for key in path:
        nodes = [child for node in nodes for child in _children(schema, node, key)]
        value = value[key]
    backend = value.get("backend") if isinstance(value, dict) else None
    found: set[str] = set()
    for alternative in (alternative for node in nodes for alternative in _alternatives(schema, node)):
        properties = alternative.get("properties", {})
        backends = properties.get("backend", {})
        if backend is None or backend in (backends.get("const"), *backends.get("enum", ())):
            found |= properties.keys()
    return found


def _children(schema: dict[str, Any], node: dict[str, Any], key: int | str) -> Iterator[dict[str, Any]]:
    for alternative in _alternatives(schema, node):
        if isinstance(key, int):
            yield from filter(None, [alternative.get("items")])
        elif key in alternative.get("properties", {}):
            yield alternative["properties"][key]
        else:
            other = alternative.get("additionalProperties")
            patterns = alternative.get("patternProperties", {}).values()
            yield from (child for child in (other, *patterns) if isinstance(child, dict))


def _alternatives(schema: dict[str, Any], node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in node:
        yield from _alternatives(schema, schema["$defs"][node["$ref"].rsplit("/", 1)[1]])
        return
    yield node
    for child in (*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())):
        yield from _alternatives(schema, child)
