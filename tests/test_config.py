"""The configuration: all errors at once, each with its path; a sweep in three lines."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
import yaml

from triagesim.config import check_config
from triagesim.errors import InputError
from triagesim.resources import RESOURCES, SCHEMAS
from triagesim.schemas import as_text, schemas

BASE: dict[str, Any] = {
    "data": {"source": "cases.jsonl", "provenance": "synthetic"},
    "models": {"a": {"backend": "agenda"}, "b": {"backend": "llamacpp", "model": "m"}},
    "pairings": [{"nurse": "a", "patient": "b"}],
}


def errors_of(**changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        check_config({**copy.deepcopy(BASE), **changes})
    return str(caught.value)


def test_defaults_are_filled_in() -> None:
    config = check_config(BASE)
    assert (config.simulation.max_turns, config.simulation.min_questions, config.shards) == (12, 3, 4)
    assert config.personas.patient.n == 500


def test_all_errors_come_at_once_with_path_and_near_name() -> None:
    text = errors_of(
        data={"source": "x", "provenence": "synthetic"},
        models={"a": {"backend": "agenda"}, "b": {"backend": "llamacpp", "model": "m", "slot": 2}},
        simulation={"max_turn": 3, "seed": "x"},
        shards=0,
    )
    for part in (
        "data.provenence: unknown key (did you mean provenance?)",
        "data.provenance: is required",
        "models.b.slot: unknown key (did you mean slots?)",
        "simulation.max_turn: unknown key (did you mean max_turns?)",
        "simulation.seed: ",
        "shards: Input should be greater than or equal to 1 (found 0)",
    ):
        assert part in text
    assert "7 error(s)" not in text
    assert "6 error(s)" in text


def test_an_unknown_model_in_a_pairing_names_the_near_one() -> None:
    assert "pairings[0].patient: no model 'aa' in models (did you mean a?)" in errors_of(
        pairings=[{"nurse": "a", "patient": "aa"}]
    )


def test_two_pairings_of_one_name_are_refused() -> None:
    assert "is the name of pairings[0] already" in errors_of(pairings=[{"nurse": "a", "patient": "b"}] * 2)


def test_nothing_to_simulate_is_an_error() -> None:
    assert "pairings: nothing to simulate" in errors_of(pairings=[])


def test_a_model_without_a_known_backend_says_which_there_are() -> None:
    assert "models.a: needs `backend`, one of agenda, llamacpp" in errors_of(models={"a": {"backend": "ollama"}})


def test_data_that_may_not_leave_is_refused_for_a_hosted_model_before_anything_runs() -> None:
    models = {"a": {"backend": "agenda"}, "b": {"backend": "openrouter", "model": "x/y"}}
    for provenance in ("mimic_iv_ed", "deidentified", "identifiable"):
        text = errors_of(data={"source": "x", "provenance": provenance}, models=models)
        assert f"data.provenance {provenance} may not be sent to the hosted model 'b'" in text
    local = {**models, "b": {"backend": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1", "local": True}}
    check_config({**BASE, "data": {"source": "x", "provenance": "mimic_iv_ed"}, "models": local})
    check_config({**BASE, "data": {"source": "x", "provenance": "mimic_iv_ed_demo"}, "models": models})


def test_a_grid_with_mirror_gives_every_pair_both_ways_once() -> None:
    pairings = {"grid": {"nurse": ["a"], "patient": ["a", "b"]}, "mirror": True, "max_turns": 5}
    expanded = check_config({**BASE, "pairings": pairings}).expanded()
    assert [(p.slug, p.nurse, p.patient, p.max_turns) for p in expanded] == [
        ("a", "a", "a", 5),
        ("a--b", "a", "b", 5),
        ("b--a", "b", "a", 5),
    ]


def test_appearance_without_a_judge_is_refused() -> None:
    told = errors_of(simulation={"features": {"appearance": True}})
    assert "pairings[0].features.appearance: needs a dialogue master" in told


@pytest.mark.parametrize("name", sorted(schemas()))
def test_checked_in_schemas_are_those_of_the_models(name: str) -> None:
    assert (SCHEMAS / name).read_text(encoding="utf-8") == as_text(schemas()[name]), "run python -m triagesim.schemas"
    jsonschema.Draft202012Validator.check_schema(json.loads((SCHEMAS / name).read_text(encoding="utf-8")))


def test_the_shipped_configuration_fits_the_schema_and_the_checker() -> None:
    path = RESOURCES.parent / "config" / "config.yaml"
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=../workflow/schemas/config.schema.json\n")
    config = yaml.safe_load(text)
    jsonschema.validate(config, json.loads((SCHEMAS / "config.schema.json").read_text(encoding="utf-8")))
    check_config(config)
