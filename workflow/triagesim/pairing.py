"""A pairing with everything that its episodes depend on: what `results/pairings/<pairing>.json` holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from triagesim.backends import configured_backend, share_devices
from triagesim.calls import Seat
from triagesim.cases import Scale
from triagesim.config import (
    Config,
    Features,
    HostedAttestation,
    Model,
    Pairing,
    Speculation,
    identity_options,
    refused,
    runtime_options,
)
from triagesim.episode import PROTOCOL, Setup
from triagesim.errors import InputError
from triagesim.governance import Provenance
from triagesim.jsonl import digest
from triagesim.mimic import provenance_of
from triagesim.personas import PERSONAS, Pool, load_personas
from triagesim.prompts import PromptSet, prompts_digest
from triagesim.requests import Role
from triagesim.resources import check_names, find_path, is_there, load_yaml


class Seated(BaseModel):
    """A model in a role: its name in the configuration and its options that can change an answer."""

    name: str
    options: Model


class ResolvedPairing(BaseModel):
    """A pairing without any reference to the rest of the configuration.

    Attributes:
        limit: only so many of the selected cases, in the source's order.
        content: identities and hashes of what ships beside the code (prompts, the agenda's rules, the protocol), so
            that a changed prompt reruns the pairing and an edited comment doesn't.
    """

    name: str
    models: dict[Role, Seated]
    algorithm: Scale | None
    features: Features
    max_turns: int
    min_questions: int
    max_regenerations: int
    episodes_per_case: int
    seed: int
    sampling: dict[str, dict[str, Any]]
    max_error_rate: float
    limit: int | None
    content: dict[str, Any]


def resolve(config: Config, pairing: Pairing) -> ResolvedPairing:
    """Fill in what the pairing takes from the rest of the configuration."""
    names: dict[Role, str] = {"nurse": pairing.nurse, "patient": pairing.patient}
    if pairing.judge is not None:
        names |= {"judge": pairing.judge, "script": pairing.judge}
    models = {role: config.models[name] for role, name in names.items()}
    rules = config.simulation
    content: dict[str, Any] = {"protocol": PROTOCOL}
    for role, model in models.items():
        backend = configured_backend(model, {})
        content[role] = [backend.identity]
        if backend.reads == "messages":
            content[role].append(prompts_digest(model.prompts, role))  # type: ignore[union-attr]
    features = pairing.features or rules.features
    if features.appearance:
        content["appearance"] = digest(load_yaml("appearance.yaml"))
    return ResolvedPairing(
        name=pairing.slug,
        models={role: Seated(name=names[role], options=model) for role, model in models.items()},
        algorithm=pairing.algorithm or rules.algorithm,
        features=features,
        max_turns=pairing.max_turns or rules.max_turns,
        min_questions=rules.min_questions,
        max_regenerations=rules.max_regenerations,
        episodes_per_case=rules.episodes_per_case,
        seed=rules.seed,
        sampling={role: rules.sampling.get(role, {}) for role in names},
        max_error_rate=rules.max_error_rate if pairing.max_error_rate is None else pairing.max_error_rate,
        limit=pairing.cases.limit,
        content=content,
    )


def check_files(config: Config) -> Provenance:
    """Say at once which files of the configuration can't be used, and which data may not go where it would.

    Returns what the source counts as.

    Raises:
        InputError: one or more; Snakemake itself would keep quiet while the results are there.
    """
    named = {
        "data.source": config.data.source,
        "personas.patient.file": config.personas.patient.file,
        "personas.nurse.file": config.personas.nurse.file,
        "measures.reviews": config.measures.reviews,
    }
    for key, path in {**named, "review.returned": config.review.returned, "journal.dir": config.journal.dir}.items():
        check_names([path], key)
    missing = [f"{key}: no file {path}" for key, path in named.items() if path and not is_there(find_path(path))]
    if missing:
        raise InputError("; ".join(missing) + " (looked for in the working folder and beside the workflow)")
    for role, model in PERSONAS.items():
        if own := named[f"personas.{role}.file"]:
            load_personas(find_path(own), model)
    provenance = provenance_of(find_path(config.data.source), config.data.provenance)
    if problems := list(refused(config, provenance)):
        raise InputError(
            f"data.source {config.data.source} looks like MIMIC-IV-ED and isn't its open demo, or a row of it says so: "
            f"it is taken for {provenance} whatever data.provenance says: " + "; ".join(dict.fromkeys(problems))
        )
    return provenance


def as_json(resolved: ResolvedPairing) -> dict[str, Any]:
    """What is written for a pairing: nothing in it is an option that can't change a result."""
    value = resolved.model_dump(mode="json")
    for role, seated in resolved.models.items():
        value["models"][role]["options"] = identity_options(seated.options)
    return value


def runtime(config: Config) -> dict[str, Any]:
    """What a driver is told beside the pairing: none of it changes a result."""
    models = {name: runtime_options(model) for name, model in config.models.items()}
    budget = config.budget.model_dump()
    attestations = [attestation.model_dump(mode="json") for attestation in config.governance.attestations]
    settings = {"budget": budget, "journals": config.journal.dir, "models": models, "attestations": attestations}
    return {**config.runtime.model_dump(), **settings}


def make_setup(
    resolved: ResolvedPairing,
    nurse_personas: Pool,
    patient_personas: Pool,
    options: Mapping[str, Mapping[str, Any]],
    speculation: Speculation = "auto",
    attestations: Iterable[Mapping[str, Any]] = (),
) -> Setup:
    """The episodes' setup; two roles with the same model share one backend.

    Args:
        options: runtime options by model name.
        attestations: of the configuration's hosted models.
    """
    attested = tuple(HostedAttestation.model_validate(one) for one in attestations)
    backends = {
        seated.name: configured_backend(seated.options, dict(options.get(seated.name, {})))
        for seated in resolved.models.values()
    }
    share_devices(backends.values())
    seats: dict[Role, Seat] = {}
    for role, seated in resolved.models.items():
        own = getattr(seated.options, "sampling", {})
        prompts: PromptSet = getattr(seated.options, "prompts", "full")
        seats[role] = Seat(backends[seated.name], prompts, {**own, **resolved.sampling.get(role, {})}, attested)
    return Setup(
        seats,
        nurse_personas,
        patient_personas,
        pairing=resolved.name,
        algorithm=resolved.algorithm,
        max_turns=resolved.max_turns,
        min_questions=resolved.min_questions,
        max_regenerations=resolved.max_regenerations,
        seed=resolved.seed,
        features=resolved.features,
        speculation=speculation,
    )
