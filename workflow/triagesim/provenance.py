"""Where a run's results come from, as an RO-Crate: data, configuration, code, packages, models, device, times.

The one artifact with clock times in it. Vocabulary: RO-Crate 1.1 (https://w3id.org/ro/crate/1.1) with its run terms
(`CreateAction`), and `sha256` of schema.org, which the 1.1 context doesn't have yet.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import platform
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from triagesim.backends import configured_backend
from triagesim.config import Config
from triagesim.dataset.licences import licences
from triagesim.errors import InputError
from triagesim.jsonl import digest, dumps, read_lines, sha256_of, write_json
from triagesim.mimic import provenance_of, source_files
from triagesim.resources import RESOURCES, find_path, load_yaml
from triagesim.shards import of_run
from triagesim.source_code import code_digest
from triagesim.stored import read_model

CRATE = "ro-crate-metadata.json"
#: What stands in results/ and is written at every start, or brought by people: no result of the run.
NOT_RECORDED = ("config.json", CRATE, "review/returned")

#: What has a folder for each pairing, below results.
_BY_PAIRING = frozenset({"episodes", "usage", "scores", "measures", "completion", "language", "leaks"})

Entity = dict[str, Any]


class Job(NamedTuple):
    """A finished job, as Snakemake noted it: seconds since the epoch."""

    rule: str
    start: float
    end: float


def write_crate(results: Path, snakemake: Path, root: Path) -> None:
    """Write `ro-crate-metadata.json` into a finished run's results.

    Args:
        snakemake: Snakemake's own folder, for the times; without it there are none.
        root: the folder of the workflow.

    Raises:
        InputError: the start of the run left no configuration.
    """
    if not (results / "config.json").is_file():
        raise InputError(
            f"{results}: holds no config.json, which the start of a run writes; a workflow that uses this one as the "
            "module NAME needs `onstart: NAME.onstart()` in its own Snakefile"
        )
    config = read_model(results / "config.json", Config)
    entities = [
        *_code(root),
        *_packages(),
        *_data(config),
        *_models(config, results),
        *_voices(config, results),
        _device(),
        *_content(config),
    ]
    files = [_file(path, results) for path in recorded(results, config)]
    jobs = _jobs(snakemake)
    entities += _actions(jobs, entities, files)
    licences = [entity["license"] for entity in entities if entity["@id"].startswith("#data-")]
    whole: Entity = {
        "@id": "./",
        "@type": "Dataset",
        "name": "Results of a TriageSim run",
        "description": "Simulated, scored and spoken triage dialogues, with everything that they were made from.",
        "datePublished": _moment(max((job.end for job in jobs), default=datetime.now(UTC).timestamp())),
        "license": licences[0],
        "hasPart": [{"@id": file["@id"]} for file in files],
        "mentions": [{"@id": "#run"}],
    }
    about = {
        "@id": CRATE,
        "@type": "CreativeWork",
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
        "about": {"@id": "./"},
    }
    context = ["https://w3id.org/ro/crate/1.1/context", {"sha256": "https://schema.org/sha256"}]
    write_json(results / CRATE, {"@context": context, "@graph": [about, whole, *entities, *files]})


def recorded(results: Path, config: Config) -> list[Path]:
    """The files of a run whose hashes are recorded, in order.

    What is being written, hidden, or left from an earlier configuration isn't.
    """
    found, slugs = [], {pairing.slug for pairing in config.expanded()}
    for path in sorted(results.rglob("*")):
        name = path.relative_to(results)
        outside = any(name.as_posix() == other or Path(other) in name.parents for other in NOT_RECORDED)
        hidden = any(part.startswith(".") for part in name.parts)
        if path.is_file() and not outside and not hidden and not _left(name, config, slugs):
            found.append(path)
    return found


def _left(name: Path, config: Config, slugs: Set[str]) -> bool:
    """Whether a file is of another number of shards, or of a pairing that the configuration doesn't have any more."""
    top = name.parts[0]
    if top == "pairings":
        return name.stem not in slugs
    if not of_run([name], config.audio.shards if top == "audio" else config.shards):
        return True
    return top in _BY_PAIRING and len(name.parts) > 2 and name.parts[1] not in slugs


def recorded_hashes(results: Path) -> dict[str, str]:
    """The hash of each file that a run's crate names, by its path in results."""
    graph = json.loads((results / CRATE).read_text(encoding="utf-8"))["@graph"]
    return {entity["@id"]: entity["sha256"] for entity in graph if entity["@type"] == "File"}


def _file(path: Path, results: Path) -> Entity:
    name = path.relative_to(results).as_posix()
    size = str(path.stat().st_size)
    return {"@id": name, "@type": "File", "name": name, "contentSize": size, "sha256": sha256_of(path)}


def _value(identifier: str, name: str, value: Any) -> Entity:
    """Something that can be said in one value."""
    return {"@id": identifier, "@type": "PropertyValue", "name": name, "value": value}


def _code(root: Path) -> Iterator[Entity]:
    """The workflow: its commit where it is a checkout, and a hash of what its code says in any case."""
    code = sorted(path for folder in ("triagesim", "scripts") for path in (root / "workflow" / folder).rglob("*.py"))
    rules = sorted((root / "workflow").rglob("*.smk"))
    commit, dirty = _commit(root)
    yield {
        "@id": "#workflow",
        "@type": ["SoftwareSourceCode", "ComputationalWorkflow"],
        "name": "TriageSim workflow",
        "license": "https://spdx.org/licenses/MIT",
        "programmingLanguage": "Python, Snakemake",
        "version": commit or "not a checkout",
        "additionalProperty": [{"@id": "#dirty"}, {"@id": "#code"}],
    }
    yield _value("#dirty", "the checkout held changes that aren't in the commit", dirty)
    yield _value(
        "#code", "hash of the code's statements and the rules", digest([code_digest(code), _hashes(rules, root)])
    )


def _commit(root: Path) -> tuple[str | None, bool | None]:
    """The commit of a checkout, and whether anything was changed since; None where there is no checkout."""
    said = [
        _said(["git", "-C", str(root), *words]) for words in (["rev-parse", "--show-toplevel"], ["rev-parse", "HEAD"])
    ]
    if said[0] is None or Path(said[0]) != root.resolve():
        return None, None
    changes = _said(["git", "-C", str(root), "status", "--porcelain"])
    return said[1], bool(changes)


def _said(command: list[str]) -> str | None:
    """What a program prints; None if it isn't there or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _packages() -> Iterator[Entity]:
    versions = {one.metadata["Name"]: one.version for one in distributions() if one.metadata["Name"]}
    yield {
        "@id": "#python",
        "@type": "SoftwareApplication",
        "name": platform.python_implementation(),
        "softwareVersion": platform.python_version(),
    }
    for name, version in sorted(versions.items(), key=lambda item: item[0].lower()):
        yield {
            "@id": f"#package-{name}",
            "@type": "SoftwareApplication",
            "name": name,
            "softwareVersion": version,
        }


def _data(config: Config) -> Iterator[Entity]:
    """The source's files and own personas, each with its hash, and the licence that follows from what the source is."""
    source = find_path(config.data.source)
    [licence] = licences([provenance_of(source, config.data.provenance)])
    terms = {"license": licence.url or licence.name, "usageInfo": licence.notice}
    for number, path in enumerate(map(Path, source_files(source)), 1):
        yield {**_outside(f"#data-{number}", path), **terms}
    for role in ("nurse", "patient"):
        if own := getattr(config.personas, role).file:
            yield _outside(f"#personas-{role}", find_path(own))


def _outside(identifier: str, path: Path) -> Entity:
    """A file that isn't among the results: by its name alone, since where it lay is nobody's business."""
    size = str(path.stat().st_size)
    return {
        "@id": identifier,
        "@type": "CreativeWork",
        "name": path.name,
        "contentSize": size,
        "sha256": sha256_of(path),
    }


def _models(config: Config, results: Path) -> Iterator[Entity]:
    """Each model with what its answers depend on, and the weights: fetched ones, and files of the user's own."""
    for name, model in config.models.items():
        backend = configured_backend(model, {})
        yield {
            "@id": f"#model-{name}",
            "@type": "SoftwareApplication",
            "name": backend.model,
            "softwareVersion": _revision(model),
            "description": dumps(backend.identity),
        }
        own = find_path(getattr(model, "model", ""))
        if own.suffix == ".gguf" and own.is_file():
            yield {"@id": f"#weights-{name}", "@type": "CreativeWork", "name": own.name, "sha256": sha256_of(own)}
    for path in sorted((results / "models").glob("[!.]*.json")):
        marker = json.loads(path.read_text(encoding="utf-8"))
        catalogue = load_yaml("models/catalogue.yaml").get(path.stem, {})
        yield {
            "@id": f"#weights-{path.stem}",
            "@type": "CreativeWork",
            "name": catalogue.get("title", path.stem),
            "license": catalogue.get("licence", "unknown"),
            "isBasedOn": catalogue.get("origin", "unknown"),
            "sha256": marker.get("sha256") or catalogue.get("sha256", "unknown"),
            "description": dumps(marker),
        }


def _revision(model: BaseModel) -> str:
    """The revision of a model: as configured, else the one that a hub's local copy has."""
    options = model.model_dump()
    if told := options.get("revision") or (options.get("identity") if options["backend"] == "openai" else None):
        return str(told)
    cache = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface")) / "hub"
    head = cache / f"models--{str(options.get('model')).replace('/', '--')}" / "refs" / "main"
    return head.read_text(encoding="ascii").strip() if options["backend"] == "vllm" and head.is_file() else "not told"


def _voices(config: Config, results: Path) -> Iterator[Entity]:
    """The speech engines that spoke, with their licences and voices, from the manifests of the recordings."""
    engines: dict[str, Entity] = {}
    voices: defaultdict[str, set[str]] = defaultdict(set)
    for path in of_run((results / "audio").glob("manifest-*.jsonl"), config.audio.shards):
        for _, row in read_lines(path):
            engine = row["engine"]
            engines[engine["name"]] = engine
            voices[engine["name"]].update(voice["id"] for voice in row["voices"].values())
    for name, engine in sorted(engines.items()):
        yield {
            "@id": f"#speech-{name}",
            "@type": "SoftwareApplication",
            "name": name,
            "softwareVersion": str(engine.get("version")),
            "license": engine["licence"],
            "description": f"voices: {', '.join(sorted(voices[name]))}",
        }


def _device() -> Entity:
    """The machine that wrote this; on a cluster the jobs may have run on others."""
    said = _said(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    processor = next(iter(_lines_with(Path("/proc/cpuinfo"), "model name")), platform.processor() or "unknown")
    words = {
        "processor": processor,
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "gpus": said.splitlines() if said else [],
    }
    return _value("#device", "the machine that wrote this crate; on a cluster, jobs ran on others too", dumps(words))


def _lines_with(path: Path, key: str) -> Iterable[str]:
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                yield value.strip()


def _content(config: Config) -> Iterator[Entity]:
    """The configuration, the seeds in it, and hashes of the shipped data that the results follow from."""
    hidden = {"models": {name: {"base_url"} for name in config.models}, "data": {"select": {"stays"}}}
    whole = config.model_dump(mode="json", exclude=hidden)
    yield _value("#config", "the configuration with all defaults, without addresses of servers and ids", dumps(whole))
    for path, seed in sorted(_seeds(whole)):
        yield _value(f"#{path}", path, seed)
    for name, folder in (("prompts", "prompts"), ("traits", "personas"), ("scales", "scales"), ("resources", "")):
        files = sorted(path for path in (RESOURCES / folder).rglob("*") if path.is_file())
        yield _value(f"#{name}", f"hash of resources/{folder}", digest(_hashes(files, RESOURCES)))


def _hashes(files: Iterable[Path], root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): sha256_of(path) for path in files}


def _seeds(value: Any, path: str = "") -> Iterator[tuple[str, int]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            below = f"{path}.{key}".lstrip(".")
            if key == "seed" and isinstance(inner, int):
                yield below, inner
            yield from _seeds(inner, below)


def _jobs(snakemake: Path) -> list[Job]:
    """The finished jobs whose outputs are still there, each once although it may have made several files."""
    notes: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    folder = snakemake / "metadata"
    for path in folder.rglob("*") if folder.is_dir() else ():
        if not path.is_file():
            continue
        try:
            # A long name is cut into folders that begin with @.
            name = "".join(part.removeprefix("@") for part in path.relative_to(folder).parts)
            output = base64.b64decode(name, validate=True).decode()
            note = json.loads(path.read_text(encoding="utf-8"))
        except (binascii.Error, ValueError):
            continue
        if note.get("endtime") and note.get("starttime") and (snakemake.parent / output).exists():
            job = dumps(note.get("log") or output)
            notes[str(note.get("rule")), job].append((note["starttime"], note["endtime"]))
    jobs = [Job(rule, min(times)[0], max(end for _, end in times)) for (rule, _), times in notes.items()]
    return sorted(jobs, key=lambda job: (job.start, job.rule))


def _actions(jobs: list[Job], entities: list[Entity], files: list[Entity]) -> Iterator[Entity]:
    """The run, and each of its rules with the time of its jobs."""
    known = [entity["@id"] for entity in entities]
    tools = ("#workflow", "#python", "#package-", "#model-", "#speech-")
    yield {
        "@id": "#run",
        "@type": "CreateAction",
        "name": "the run",
        **_times(jobs),
        "instrument": [{"@id": name} for name in known if name.startswith(tools)],
        "object": [{"@id": name} for name in known if name.startswith(("#data-", "#personas-", "#weights-"))],
        "additionalProperty": [
            {"@id": entity["@id"]}
            for entity in entities
            if entity["@type"] == "PropertyValue" and entity["@id"] not in ("#dirty", "#code")
        ],
        "result": [{"@id": file["@id"]} for file in files],
    }
    by_rule: defaultdict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        by_rule[job.rule].append(job)
    for rule, own in by_rule.items():
        yield {
            "@id": f"#rule-{rule}",
            "@type": "CreateAction",
            "name": rule,
            **_times(own),
            "instrument": {"@id": "#workflow"},
            "description": f"{len(own)} jobs, {sum(job.end - job.start for job in own):.1f} s in all",
        }


def _times(jobs: list[Job]) -> dict[str, str]:
    if not jobs:
        return {}
    return {"startTime": _moment(min(job.start for job in jobs)), "endTime": _moment(max(job.end for job in jobs))}


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
