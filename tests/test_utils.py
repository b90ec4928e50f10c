"""Metrics of a finished run: the six functions of the metrics page, what is beside them, and the view of an episode."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import socket
import statistics
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from actors import Puppet, a_case, personas
from triagesim import load_backend, load_cases, score, simulate
from triagesim.environment_view import environment_view
from triagesim.resources import RESOURCES
from triagesim.utils import (
    belief_coverage_metrics,
    compute_all_metrics,
    explanation_grounding,
    explanation_support_metrics,
    normalise_flag,
    red_flag_metrics,
    red_flag_metrics_normalised,
    time_to_first_correct_triage,
    triage_decision_metrics,
)

DECISION = {"ground_truth", "final_prediction", "correct", "absolute_error", "over_triage", "under_triage"}
COVERAGE = {
    *("num_associated_symptoms", "num_red_flags_inferred", "has_chief_complaint", "has_pain_location"),
    *("has_pain_severity", "has_duration", "vitals_known", "num_vitals_known"),
}


def say(level: Any, turn: int = 0) -> dict[str, Any]:
    return {
        "turn": turn,
        "actor": "nurse",
        "action": {"type": "utterance", "utterance": "Where?", "triage": level},
        "triage": level,
        "confidence": "low",
        "explanation": "so far",
    }


def end(level: Any, turn: int = 0) -> dict[str, Any]:
    return {**say(level, turn), "action": {"type": "end", "utterance": "Thank you.", "triage": level}}


def check(level: int, turn: int = 0) -> dict[str, Any]:
    return {**say(level, turn), "action": {"type": "check_vital", "vital": "sbp"}}


def log(level: int, turn: int = 0) -> dict[str, Any]:
    return {**say(level, turn), "action": {"type": "log_red_flag", "red_flags": ["syncope"]}}


def levels(*given: int) -> list[dict[str, Any]]:
    return [say(level, turn) for turn, level in enumerate(given)]


def item(value: Any, turn: int = 0) -> dict[str, Any]:
    return {"value": value, "source": "patient", "turn": turn, "certainty": "explicit"}


#: A run file as the older simulator saved it.
RUN: dict[str, Any] = {
    "run_id": "run-1",
    "trace": [say(3), check(3, 1), log(2, 1), say(2, 1), end(2, 2)],
    "history": [
        {"turn": 0, "actor": "nurse", "utterance": "What brings you in?", "triage": 3},
        {"turn": 0, "actor": "patient", "utterance": "I passed out at the shops."},
        {"turn": 1, "actor": "system", "event": "vital", "name": "sbp", "value": 88},
        {"turn": 1, "actor": "nurse", "utterance": "Did you hit your head?", "triage": 2},
        {"turn": 1, "actor": "patient", "utterance": "No."},
        {"turn": 2, "actor": "nurse", "utterance": "Come with me.", "triage": 2},
        {"turn": 2, "actor": "system", "event": "triage_end"},
    ],
    "belief": {
        "chief_complaint": [item("syncope")],
        "associated_symptoms": [item("dizziness", 1), item("palpitations", 1), item("dizziness", 2)],
        "red_flags": [item("syncope"), item("hypotension")],
        "vitals_known": ["heartrate", "o2sat"],
        "red_flags_logged": ["syncope", "tachycardia"],
    },
    "ground_truth": {"acuity": 2, "chief_complaint": "Syncope"},
}


def all_of(run: dict[str, Any], **more: Any) -> dict[str, Any]:
    return compute_all_metrics(trace=run["trace"], belief=run["belief"], ground_truth=run["ground_truth"], **more)


# -- the entry point


def test_metrics_need_the_saved_file_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a metric opened a connection")

    monkeypatch.setattr(socket, "socket", refuse)
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    saved = json.loads((tmp_path / "run.json").read_text())
    assert all_of(saved) == all_of(RUN)
    assert all_of(saved)["triage"]["correct"] is True


def test_one_broken_run_stops_no_batch() -> None:
    broken = {"trace": [None, {"action": None}], "belief": None, "ground_truth": "lost"}
    results = [all_of(run)["triage"]["correct"] for run in (RUN, broken, RUN)]
    assert results == [True, None, True]


def test_everything_is_keyword_only() -> None:
    with pytest.raises(TypeError):
        compute_all_metrics([], {}, {})  # type: ignore[misc]
    parameters = inspect.signature(compute_all_metrics).parameters
    assert {one.kind for one in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


def test_three_parameters_are_required_and_expert_flags_default_to_none() -> None:
    parameters = inspect.signature(compute_all_metrics).parameters
    assert list(parameters) == ["trace", "belief", "ground_truth", "expert_red_flags"]
    assert [one.default for one in parameters.values()] == [*[inspect.Parameter.empty] * 3, None]


def test_the_parameters_have_the_documented_types() -> None:
    hints = get_type_hints(compute_all_metrics)
    assert hints["trace"] == list[dict[str, Any]]
    assert hints["belief"] == hints["ground_truth"] == dict[str, Any]
    assert hints["expert_red_flags"] == set[str] | None


def test_the_result_has_four_parts_which_are_those_of_the_single_functions() -> None:
    metrics = all_of(RUN, expert_red_flags={"syncope"})
    trace, belief, truth = RUN["trace"], RUN["belief"], RUN["ground_truth"]
    assert metrics == {
        "triage": {
            **triage_decision_metrics(trace, truth),
            "first_correct_turn": time_to_first_correct_triage(trace, truth),
        },
        "belief_coverage": belief_coverage_metrics(belief),
        "red_flags": red_flag_metrics(belief, {"syncope"}),
        "explanation": explanation_support_metrics(trace, belief),
    }


# -- the decision


@pytest.mark.parametrize("truth", range(1, 6))
@pytest.mark.parametrize("predicted", range(1, 6))
def test_a_lower_number_is_over_triage_and_a_higher_one_under_triage(predicted: int, truth: int) -> None:
    assert triage_decision_metrics([end(predicted)], {"acuity": truth}) == {
        "ground_truth": truth,
        "final_prediction": predicted,
        "correct": predicted == truth,
        "absolute_error": max(predicted, truth) - min(predicted, truth),
        "over_triage": predicted < truth,
        "under_triage": predicted > truth,
    }


def test_the_worked_examples_of_the_page() -> None:
    over = triage_decision_metrics([end(1)], {"acuity": 3})
    assert (over["absolute_error"], over["over_triage"], over["under_triage"]) == (2, True, False)
    under = triage_decision_metrics([end(4)], {"acuity": 2})
    assert (under["absolute_error"], under["over_triage"], under["under_triage"]) == (2, False, True)


@pytest.mark.parametrize("acuity", [None, "2", True, 0, 6, 2.5, float("nan"), float("inf"), [], {}])
def test_without_a_reference_level_only_the_prediction_is_said(acuity: Any) -> None:
    metrics = triage_decision_metrics([end(3)], {"acuity": acuity})
    assert metrics.pop("final_prediction") == 3
    assert set(metrics.values()) == {None}
    assert triage_decision_metrics([end(3)], {})["final_prediction"] == 3


def test_without_a_level_in_the_trace_only_the_reference_is_said() -> None:
    metrics = triage_decision_metrics([], {"acuity": 3})
    assert metrics.pop("ground_truth") == 3
    assert set(metrics) == DECISION - {"ground_truth"}
    assert set(metrics.values()) == {None}


def test_a_level_may_be_written_as_a_whole_number_with_a_point() -> None:
    metrics = triage_decision_metrics([end(2.0)], {"acuity": 2.0})
    assert (metrics["correct"], metrics["final_prediction"]) == (True, 2)
    assert isinstance(metrics["final_prediction"], int)


@pytest.mark.parametrize(
    ("trace", "final"),
    [
        ([*levels(4, 3), end(2)], 2),
        (levels(2, 5), 5),
        ([say(4), check(1), log(1)], 4),
        ([check(1), log(1)], None),
        ([say(4), end(None)], 4),
        ([say(4), end(9)], 4),
        ([end(2), say(4)], 4),
        ([say(4), {"turn": 1, "action": None}, "noise", None], 4),
        ([say(4), {**say(1), "actor": "patient"}], 4),
        ([{"action": {"triage": 3}}], 3),
        ([{**check(1), "action": {"type": "check_vital", "triage": 1}}], None),
    ],
)
def test_the_final_prediction_is_the_last_level_that_was_stated(trace: Any, final: int | None) -> None:
    assert triage_decision_metrics(trace, {"acuity": 2})["final_prediction"] == final


def test_the_first_correct_turn_is_that_of_the_first_step_with_the_right_level() -> None:
    assert time_to_first_correct_triage(levels(4, 2, 2), {"acuity": 2}) == 1


def test_turn_0_is_an_answer() -> None:
    found = time_to_first_correct_triage(levels(2), {"acuity": 2})
    assert found == 0
    assert found is not None


def test_the_first_correct_turn_is_none_if_never_stated_or_without_a_reference() -> None:
    assert time_to_first_correct_triage(levels(4, 3), {"acuity": 2}) is None
    assert time_to_first_correct_triage(levels(4, 3), {}) is None
    assert time_to_first_correct_triage([{"action": {"type": "end"}}], {}) is None


def test_a_level_stated_first_may_not_be_the_final_one() -> None:
    trace = levels(4, 3, 2, 3)
    assert time_to_first_correct_triage(trace, {"acuity": 2}) == 2
    assert triage_decision_metrics(trace, {"acuity": 2})["correct"] is False


def test_an_estimate_beside_a_measurement_or_a_flag_is_not_stated() -> None:
    assert time_to_first_correct_triage([check(2), log(2)], {"acuity": 2}) is None
    assert time_to_first_correct_triage([check(2), log(2, 1), end(2, 4)], {"acuity": 2}) == 4


# -- belief


def test_coverage_of_nothing_is_empty_and_whole() -> None:
    metrics = belief_coverage_metrics({})
    assert set(metrics) == COVERAGE
    assert metrics["vitals_known"] == []
    assert not any(metrics.values())


def test_coverage_of_a_saved_run() -> None:
    assert belief_coverage_metrics(RUN["belief"]) == {
        "num_associated_symptoms": 2,
        "num_red_flags_inferred": 2,
        "has_chief_complaint": True,
        "has_pain_location": False,
        "has_pain_severity": False,
        "has_duration": False,
        "vitals_known": ["heartrate", "o2sat"],
        "num_vitals_known": 2,
    }


@pytest.mark.parametrize("slot", ["chief_complaint", "pain_location", "pain_severity", "duration"])
@pytest.mark.parametrize("value", ["chest", ["chest"], [item("chest")], item("chest"), 0, [item(0)], [None, "chest"]])
def test_each_slot_is_established_by_itself(slot: str, value: Any) -> None:
    metrics = belief_coverage_metrics({slot: value})
    assert {name for name in COVERAGE if name.startswith("has_") and metrics[name] is True} == {f"has_{slot}"}


@pytest.mark.parametrize("value", [None, "", "  ", [], {}, [None], [item(None)], [{"turn": 1}], float("nan"), [[]]])
def test_a_slot_without_a_value_is_not_established(value: Any) -> None:
    assert belief_coverage_metrics({"pain_severity": value})["has_pain_severity"] is False


def test_equal_symptoms_count_once_and_inferred_flags_each() -> None:
    belief = {"associated_symptoms": ["nausea", item("nausea", 3), "chills"], "red_flags": ["a", "a", "b"]}
    metrics = belief_coverage_metrics(belief)
    assert (metrics["num_associated_symptoms"], metrics["num_red_flags_inferred"]) == (2, 3)


def test_all_five_vitals_can_be_known() -> None:
    names = ["temperature", "heartrate", "resprate", "o2sat", "sbp"]
    metrics = belief_coverage_metrics({"vitals_known": names})
    assert (metrics["vitals_known"], metrics["num_vitals_known"]) == (names, 5)


# -- red flags


def test_only_logged_flags_are_scored() -> None:
    assert red_flag_metrics({"red_flags": ["syncope"]}) == {
        "num_red_flags_logged": 0,
        "logged_any": False,
        "logged_flags": [],
    }


def test_flags_are_compared_as_sets_of_exact_texts() -> None:
    logged = {"red_flags_logged": ["syncope", "pallor", "hypoxia"]}
    assert red_flag_metrics(logged, {"syncope", "tachycardia", "hypoxia", "chest pain"}) == {
        "num_red_flags_logged": 3,
        "logged_any": True,
        "logged_flags": ["hypoxia", "pallor", "syncope"],
        "expert_red_flags": ["chest pain", "hypoxia", "syncope", "tachycardia"],
        "true_positives": ["hypoxia", "syncope"],
        "false_positives": ["pallor"],
        "false_negatives": ["chest pain", "tachycardia"],
        "precision": 2 / 3,
        "recall": 0.5,
    }


def test_precision_is_none_when_nothing_was_logged() -> None:
    metrics = red_flag_metrics({}, {"a"})
    assert (metrics["precision"], metrics["recall"]) == (None, 0.0)


def test_recall_is_none_when_the_expert_set_is_empty() -> None:
    metrics = red_flag_metrics({"red_flags_logged": ["a"]}, set())
    assert len(metrics) == 9
    assert (metrics["precision"], metrics["recall"]) == (0.0, None)


def test_case_and_synonyms_are_different_flags() -> None:
    logged = {"red_flags_logged": ["Tachycardia", "low oxygen saturation"]}
    assert red_flag_metrics(logged, {"tachycardia", "hypoxia"})["true_positives"] == []


@pytest.mark.parametrize("given", [["a", "b"], ("a", "b"), iter(["a", "b"]), {"a": 1, "b": 2}.keys(), ["a", None, "b"]])
def test_expert_flags_may_come_in_any_collection(given: Any) -> None:
    assert red_flag_metrics({}, given)["expert_red_flags"] == ["a", "b"]


def test_f1_is_no_key_and_can_be_derived() -> None:
    def f1(logged: list[str], expert: set[str]) -> float | None:
        metrics = red_flag_metrics({"red_flags_logged": logged}, expert)
        assert not any("f1" in name for name in metrics)
        p, r = metrics["precision"], metrics["recall"]
        return 2 * p * r / (p + r) if p and r else None

    assert f1(["a", "b"], {"a"}) == pytest.approx(2 / 3)
    assert f1([], {"a"}) is None
    assert f1(["b"], {"a"}) is None


def test_normalised_matching_stands_beside_the_exact_one() -> None:
    belief = {"red_flags_logged": ["Low oxygen-saturation", "fast  pulse", "pale", "haematemesis"]}
    expert = {"hypoxia", "tachycardia", "vomiting blood", "chest pain"}
    before = red_flag_metrics(belief, expert)
    assert red_flag_metrics_normalised(belief, expert) == {
        "normalised_logged_flags": ["low oxygen saturation", "pallor", "tachycardia", "vomiting blood"],
        "normalised_expert_red_flags": ["chest pain", "low oxygen saturation", "tachycardia", "vomiting blood"],
        "normalised_true_positives": ["low oxygen saturation", "tachycardia", "vomiting blood"],
        "normalised_false_positives": ["pallor"],
        "normalised_false_negatives": ["chest pain"],
        "normalised_precision": 0.75,
        "normalised_recall": 0.75,
    }
    assert red_flag_metrics(belief, expert) == before
    assert before["true_positives"] == []
    assert set(red_flag_metrics_normalised(belief)) == {"normalised_logged_flags"}


def test_what_is_more_than_another_flag_stays_another_one() -> None:
    pairs = [
        ("severe abdominal pain", "abdominal pain"),
        ("near fainting", "fainting"),
        ("chest pain", "chest pressure"),
    ]
    assert all(normalise_flag(one) != normalise_flag(other) for one, other in pairs)


def test_no_phrase_has_two_meanings_in_the_synonym_table() -> None:
    table = yaml.safe_load((RESOURCES / "red_flags.yaml").read_text(encoding="utf-8"))
    meanings: dict[str, set[str]] = {}
    for name, others in table["same"].items():
        for phrase in (name, *others):
            assert normalise_flag(phrase) == name
            meanings.setdefault(phrase, set()).add(name)
    assert [phrase for phrase, names in meanings.items() if len(names) > 1] == []


# -- explanations


def test_an_explanation_beside_the_action_is_not_seen() -> None:
    assert explanation_support_metrics([say(3), end(2)], {}) == {"has_explanation": False, "explanation_length": 0}


def test_an_explanation_in_the_last_action_is_counted_in_words() -> None:
    last = end(2)
    last["action"]["explanation"] = "fast pulse and low oxygen"
    assert explanation_support_metrics([say(3), last], {}) == {"has_explanation": True, "explanation_length": 5}
    assert explanation_support_metrics([last, say(3)], {})["has_explanation"] is False
    assert explanation_support_metrics([{"action": {"explanation": "  "}}], {})["has_explanation"] is False


def episode_that_explains(*explanations: str) -> dict[str, Any]:
    """A question with an answer, a measured pulse, then the end; one explanation a step."""
    steps = [("utterance", 0, None), ("check_vital", 1, "heartrate"), ("utterance", 1, None), ("end", 2, None)]
    trace = [
        {"turn": turn, "action": action, "vital": vital, "utterance": "…", "explanation": why, "triage": 2}
        for (action, turn, vital), why in zip(steps, explanations, strict=True)
    ]
    history = [
        {"turn": 0, "actor": "nurse", "utterance": "What brings you in today?"},
        {"turn": 0, "actor": "patient", "utterance": "My chest hurts and I threw up."},
        {"turn": 1, "actor": "system", "event": "vital", "name": "heartrate", "value": 118.0},
        {"turn": 1, "actor": "nurse", "utterance": "Do you have a fever?"},
        {"turn": 1, "actor": "patient", "utterance": "No, no fever at all."},
    ]
    return {"case": {"acuity": 2}, "trace": trace, "history": history}


def test_an_explanation_that_cites_what_was_said_and_measured_holds() -> None:
    told = episode_that_explains(
        "", "Chest pain; vomiting.", "“My chest hurts”, heart rate 118.", "Tachycardia at 118."
    )
    found = explanation_grounding(told)
    assert found == {
        "explanations": 3,
        "citing": 3,
        "with_unsupported": 0,
        "citations": 5,
        "supported": 5,
        "support_rate": 1.0,
        "unsupported": [],
    }


def test_what_nobody_said_or_measured_by_then_is_unsupported() -> None:
    told = episode_that_explains(
        "The patient has chest pain.",  # nobody has spoken yet
        "Tachycardic, heart rate 118.",  # measured by this very step
        "Pulse is 140. Said “it feels like an elephant”.",
        "Fever and chest pain; SpO2 88%.",  # a denied finding and an unmeasured sign
    )
    found = explanation_grounding(told)
    assert [(one["step"], one["turn"], one["kind"], one["cited"]) for one in found["unsupported"]] == [
        (0, 0, "finding", "chest pain"),
        (1, 1, "vital", "heartrate 118"),
        (1, 1, "sign", "heartrate"),
        (2, 1, "quotation", "it feels like an elephant"),
        (2, 1, "vital", "heartrate 140"),
        (3, 2, "finding", "fever"),
        (3, 2, "vital", "o2sat 88"),
    ]
    assert (found["explanations"], found["with_unsupported"], found["citations"], found["supported"]) == (4, 4, 8, 1)
    assert found["support_rate"] == 1 / 8


@pytest.mark.parametrize(
    "why",
    [
        "Could be a stroke; need to rule out a seizure.",
        "No fever, not short of breath.",
        "Oxygen saturation below 92 would matter. SpO2 < 90? Heart rate 60 to 100 is normal.",
        "Not tachycardic so far.",
        "Nothing is known yet.",
        "",
    ],
)
def test_what_is_only_considered_or_denied_cites_nothing(why: str) -> None:
    found = explanation_grounding(episode_that_explains(why, "", "", ""))
    assert (found["citations"], found["support_rate"], found["citing"]) == (0, None, 0)


def test_a_temperature_may_be_cited_on_either_scale() -> None:
    episode = episode_that_explains("", "", "", "Temperature 38.5 °C, temp 101.3.")
    episode["trace"][1]["vital"] = "temperature"
    episode["history"][2] |= {"name": "temperature", "value": 101.3}
    found = explanation_grounding(episode)
    assert (found["citations"], found["unsupported"]) == (2, [])


def test_explanations_of_an_old_run_file_are_read_too() -> None:
    trace = [{**step, "explanation": "Fainting."} for step in RUN["trace"]]
    found = explanation_grounding({**RUN, "trace": trace})
    assert (found["citations"], found["supported"]) == (5, 4)
    assert found["unsupported"] == [{"step": 0, "turn": 0, "kind": "finding", "cited": "fainting"}]


# -- anything at all

NAMES = st.sampled_from(
    [
        *("trace", "belief", "ground_truth", "action", "type", "triage", "turn", "actor", "explanation", "value"),
        *("acuity", "vitals_known", "red_flags", "red_flags_logged", "associated_symptoms", "pain_severity"),
        *("history", "utterance", "event", "name", "case", "record", "models", "judge", "pain", "chief_complaint"),
        *("information", "recorded", "appearance", "vital", "onset_and_course", "episode_id", "t", "verification"),
    ]
)
WORDS = st.sampled_from(
    [
        *("utterance", "end", "check_vital", "log_red_flag", "nurse", "patient", "system", "vital", "heartrate"),
        *("chest pain, 7/10 since today; denies fever", "“I can't breathe” pulse 120", "none", "unknown"),
    ]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.integers(0, 6) | st.floats() | st.text(max_size=8) | WORDS
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=5),
    max_leaves=25,
)


@settings(max_examples=300, deadline=None)
@given(trace=ANYTHING, belief=ANYTHING, truth=ANYTHING, expert=ANYTHING)
def test_no_json_raises_and_the_result_keeps_its_form(trace: Any, belief: Any, truth: Any, expert: Any) -> None:
    metrics = compute_all_metrics(trace=trace, belief=belief, ground_truth=truth, expert_red_flags=expert)
    assert set(metrics) == {"triage", "belief_coverage", "red_flags", "explanation"}
    assert set(metrics["triage"]) == {*DECISION, "first_correct_turn"}
    assert set(metrics["belief_coverage"]) == COVERAGE
    assert len(metrics["red_flags"]) == (3 if expert is None else 9)
    for name in ("ground_truth", "final_prediction"):
        assert metrics["triage"][name] in (None, 1, 2, 3, 4, 5)
    unscored = None in (metrics["triage"]["ground_truth"], metrics["triage"]["final_prediction"])
    assert (metrics["triage"]["correct"] is None) == unscored
    assert isinstance(metrics["explanation"]["has_explanation"], bool)
    json.dumps([metrics, red_flag_metrics_normalised(belief, expert)], allow_nan=False)


@settings(max_examples=300, deadline=None)
@given(episode=ANYTHING | st.dictionaries(NAMES, ANYTHING))
def test_no_episode_raises(episode: Any) -> None:
    compute_all_metrics(**environment_view(episode))
    found = explanation_grounding(episode)
    assert 0 <= found["supported"] <= found["citations"]
    assert found["citations"] - found["supported"] == len(found["unsupported"])


# -- the page's example

AGGREGATE = """
import json
import statistics
from pathlib import Path

from triagesim.utils import compute_all_metrics

EXPERT_FLAGS = {"syncope", "tachycardia", "hypoxia"}

rows = []
for path in sorted(Path("runs").glob("*.json")):
    artifact = json.loads(path.read_text())
    rows.append(
        compute_all_metrics(
            trace=artifact["trace"],
            belief=artifact["belief"],
            ground_truth=artifact["ground_truth"],
            expert_red_flags=EXPERT_FLAGS,
        )
    )

scored = [r for r in rows if r["triage"]["correct"] is not None]
errors = [r["triage"]["absolute_error"] for r in scored]

print(f"runs scored:   {len(scored)}/{len(rows)}")
print(f"accuracy:      {sum(r['triage']['correct'] for r in scored) / len(scored):.2%}")
print(f"under-triage:  {sum(r['triage']['under_triage'] for r in scored) / len(scored):.2%}")
print(f"over-triage:   {sum(r['triage']['over_triage'] for r in scored) / len(scored):.2%}")
print(f"mean abs err:  {statistics.mean(errors):.2f}")

turns = [r["triage"]["first_correct_turn"] for r in scored
         if r["triage"]["first_correct_turn"] is not None]
if turns:
    print(f"median turns to first correct: {statistics.median(turns)}")
"""


def test_the_aggregation_of_the_page_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    runs = [
        RUN,  # right, first stated in turn 1
        {**RUN, "trace": [say(2), end(2, 4)]},  # right from turn 0 on
        {**RUN, "trace": [say(3), end(4, 4)]},  # under-triage by two
        {**RUN, "trace": [say(2), end(1, 4)]},  # over-triage by one, right before
        {**RUN, "ground_truth": {}},  # can't be scored
    ]
    for number, run in enumerate(runs):
        (tmp_path / "runs" / f"{number}.json").write_text(json.dumps(run))
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(AGGREGATE, {})
    assert printed.getvalue().splitlines() == [
        "runs scored:   4/5",
        "accuracy:      50.00%",
        "under-triage:  25.00%",
        "over-triage:   25.00%",
        "mean abs err:  0.75",
        "median turns to first correct: 0",
    ]


# -- the view of an episode


@cache
def played(*, judged: bool) -> tuple[dict[str, Any], ...]:
    """Real episodes of the baseline, one a shipped vignette."""
    baseline = load_backend("agenda")
    cases = load_cases(RESOURCES / "cases" / "vignettes.jsonl")[:16]
    pools = {"nurse_personas": personas("nurse", 6), "patient_personas": personas("patient", 6)}
    judge = baseline if judged else None
    return tuple(simulate(cases, nurse_llm=baseline, patient_llm=baseline, judge_llm=judge, **pools))


@pytest.mark.parametrize("judged", [False, True])
def test_both_doors_agree_on_real_episodes(judged: bool) -> None:
    episodes = played(judged=judged)
    assert len(episodes) == 16
    for episode in episodes:
        metrics, scores = compute_all_metrics(**environment_view(episode)), score(episode)
        triage = metrics["triage"]
        assert triage == {
            "ground_truth": scores["ground_truth"],
            "final_prediction": scores["final_triage"],
            "correct": scores["correct"],
            "absolute_error": scores["abs_error"],
            "over_triage": scores["over_triage"],
            "under_triage": scores["under_triage"],
            "first_correct_turn": scores["first_correct_turn"],
        }
        assert metrics["belief_coverage"]["num_vitals_known"] == scores["num_vitals"]
        assert metrics["red_flags"]["num_red_flags_logged"] == scores["num_red_flags"]
    assert len({compute_all_metrics(**environment_view(one))["triage"]["correct"] for one in episodes}) == 2


def test_the_golden_episode_is_scored_the_same_by_both_doors() -> None:
    page = (RESOURCES.parent / "docs/artifact.md").read_text(encoding="utf-8")
    golden = json.loads(page.partition("```json\n")[2].partition("\n```")[0])
    assert compute_all_metrics(**environment_view(golden), expert_red_flags={"hypotension", "melena"}) == {
        "triage": {
            "ground_truth": 2,
            "final_prediction": 2,
            "correct": True,
            "absolute_error": 0,
            "over_triage": False,
            "under_triage": False,
            "first_correct_turn": 1,
        },
        "belief_coverage": {
            "num_associated_symptoms": 0,
            "num_red_flags_inferred": 0,
            "has_chief_complaint": True,
            "has_pain_location": False,
            "has_pain_severity": False,
            "has_duration": False,
            "vitals_known": ["heartrate", "o2sat", "resprate", "sbp"],
            "num_vitals_known": 4,
        },
        "red_flags": {
            "num_red_flags_logged": 4,
            "logged_any": True,
            "logged_flags": ["black stools", "fast breathing", "hypotension", "tachycardia"],
            "expert_red_flags": ["hypotension", "melena"],
            "true_positives": ["hypotension"],
            "false_positives": ["black stools", "fast breathing", "tachycardia"],
            "false_negatives": ["melena"],
            "precision": 0.25,
            "recall": 0.5,
        },
        "explanation": {"has_explanation": False, "explanation_length": 0},
    }
    scores = score(golden)
    assert (scores["correct"], scores["first_correct_turn"], scores["num_vitals"], scores["num_red_flags"]) == (
        *(True, 1, 4, 4),
    )
    assert red_flag_metrics_normalised(environment_view(golden)["belief"], {"melena"})["normalised_recall"] == 1.0


def test_a_view_has_the_form_of_a_run_file_and_survives_json() -> None:
    for episode in played(judged=True):
        view = environment_view(episode)
        assert set(view) == {"trace", "belief", "ground_truth"}
        assert json.loads(json.dumps(view)) == view
        assert compute_all_metrics(**view) == compute_all_metrics(**json.loads(json.dumps(view)))
        for step in view["trace"]:
            assert ("triage" in step["action"]) == (step["action"]["type"] in ("utterance", "end"))
            assert "explanation" not in step["action"]
        assert [step["explanation"] for step in view["trace"] if step.get("explanation")]
        assert view["ground_truth"]["acuity"] == episode["case"]["acuity"]


def test_a_run_file_is_its_own_view() -> None:
    assert environment_view(RUN) == {name: RUN[name] for name in ("trace", "belief", "ground_truth")}


def test_a_finding_of_the_record_is_one_and_a_denial_is_none() -> None:
    record = {
        "chief_complaint": "chest pain",
        "onset_and_course": "began two hours ago while gardening, getting worse",
        "pain": "7/10 crushing, into the left arm; denies back pain",
        "associated_symptoms": "Nausea, sweating and nausea; denies vomiting, fever; reports light-headedness",
        "relevant_history": "none",
        "medications": "declined to say",
        "allergies": "none",
    }
    belief = environment_view(judged_with(record))["belief"]
    assert {slot: [one["value"] for one in belief[slot]] for slot in belief if slot[:3] not in ("red", "vit")} == {
        "chief_complaint": ["chest pain"],
        "pain_location": ["arm"],
        "pain_severity": [7.0],
        "duration": ["began two hours ago while gardening, getting worse"],
        "associated_symptoms": ["Nausea", "sweating", "light-headedness"],
    }


def judged_with(record: dict[str, str]) -> dict[str, Any]:
    return {"case": {}, "models": {"judge": "agenda"}, "trace": [], "history": [], "record": record}


@pytest.mark.parametrize(
    "text", ["none", "Declined to say.", "unknown", "denies any pain", "", "the patient isn't sure"]
)
def test_no_answer_and_none_are_no_finding(text: str) -> None:
    record = dict.fromkeys(("chief_complaint", "onset_and_course", "pain", "associated_symptoms"), text)
    metrics = belief_coverage_metrics(environment_view(judged_with(record))["belief"])
    assert not any(metrics.values())


@pytest.mark.parametrize(
    ("complaint", "pain", "place", "severity"),
    [
        ("fall", "Six", False, True),
        ("fall", "0 of 10", False, True),
        ("fall", "severe", False, True),
        ("fall", "right knee, throbbing", True, False),
        ("knee pain", "3 out of 10", True, True),
        ("knee swelling", "3 out of 10", False, True),
        ("fall", "I can't put a number on it", False, False),
        ("fall", "for 3 days", False, False),
        ("fall", "denies chest pain", False, False),
    ],
)
def test_where_and_how_strong_a_pain_is_are_read_apart(complaint: str, pain: str, place: bool, severity: bool) -> None:
    metrics = belief_coverage_metrics(
        environment_view(judged_with({"chief_complaint": complaint, "pain": pain}))["belief"]
    )
    assert (metrics["has_pain_location"], metrics["has_pain_severity"]) == (place, severity)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("since this morning", True),
        ("2 days ago", True),
        ("for about three weeks, on and off", True),
        ("last night around 9 pm", True),
        ("sudden", False),
        ("after a fall", False),
        ("the patient isn't sure", False),
    ],
)
def test_a_duration_is_known_where_a_time_is_told(text: str, known: bool) -> None:
    belief = environment_view(judged_with({"onset_and_course": text}))["belief"]
    assert belief_coverage_metrics(belief)["has_duration"] is known


def test_without_a_master_only_what_the_environment_knows_counts() -> None:
    for episode in played(judged=False):
        belief = environment_view(episode)["belief"]
        assert set(belief) <= {
            *("associated_symptoms", "red_flags", "vitals_known", "red_flags_logged", "chief_complaint")
        }
        assert belief["associated_symptoms"] == belief["red_flags"] == []


def test_the_complaint_counts_from_the_reply_that_states_it() -> None:
    lines = ["I'd rather not say.", "All right. I passed out in the shop."]
    history = [{"turn": turn, "actor": "patient", "utterance": text} for turn, text in enumerate(lines)]
    episode = {"case": {"chief_complaint": "Syncope"}, "trace": [], "history": history}
    assert environment_view(episode)["belief"]["chief_complaint"] == [item("Syncope", 1)]
    assert "chief_complaint" not in environment_view({**episode, "history": history[:1]})["belief"]


def test_a_recorded_slot_names_the_turn_that_wrote_it() -> None:
    episode = judged_with({"chief_complaint": "cough"})
    information = {"disclosed": "", "recorded": {"chief_complaint": "cough"}}
    episode["history"] = [{"turn": 3, "actor": "patient", "utterance": "I cough.", "information": information}]
    assert environment_view(episode)["belief"]["chief_complaint"] == [item("cough", 3)]


def test_an_unmeasurable_vital_is_not_released_and_flags_are_normalised() -> None:
    class Logger(Puppet):
        """Measures, and logs one flag in two spellings."""

        def _step(self, form: Any, chance: Any) -> Any:
            step = super()._step(form, chance)
            flags = ["Hypoxia", " hypoxia "] if step.action == "log_red_flag" else []
            return step.model_copy(update={"red_flags": flags})

    vitals = {"temperature": None, "heartrate": 112.0, "resprate": None, "o2sat": 91.0, "sbp": 98.0}
    nurse = Logger()
    [episode] = simulate(
        [a_case(vitals=vitals)],
        nurse_llm=nurse,
        patient_llm=nurse,
        nurse_personas=personas("nurse"),
        patient_personas=personas("patient"),
    )
    belief = environment_view(episode)["belief"]
    measured = [one["name"] for one in episode["history"] if one.get("event") == "vital" and one["value"] is not None]
    missing = [one for one in episode["history"] if one.get("measurable") is False]
    assert missing
    assert belief["vitals_known"] == sorted(measured)
    assert episode["red_flags"] == ["Hypoxia"]
    assert belief["red_flags_logged"] == ["hypoxia"]


def test_an_episode_of_the_published_simulator_is_read_too() -> None:
    published = {
        "episode_id": "syncope-01-0",
        "status": "ok",
        "case": {"case_id": "syncope-01", "acuity": 2, "chief_complaint": "Syncope"},
        "models": {"nurse": "m", "patient": "m", "judge": "m"},
        "final_triage": 3,
        "trace": [
            {"turn": 0, "understood": None, "action": "utterance", "utterance": "What happened?", "triage": 2},
            {"turn": 1, "action": "log_red_flag", "red_flags": ["syncope"], "explanation": "Fainting.", "triage": 2},
            {"turn": 1, "action": "end", "utterance": "Thanks.", "explanation": "Stable.", "triage": 3},
        ],
        "history": [
            {"turn": 0, "actor": "nurse", "utterance": "What happened?", "triage": 2},
            {"turn": 0, "actor": "patient", "utterance": "I fainted.", "information": {"disclosed": "a faint"}},
            {"turn": 1, "actor": "system", "event": "triage_end", "triage": 3},
        ],
        "red_flags": ["syncope"],
        "record": {"chief_complaint": "Fainted", "pain": "none", "vitals": {}},
    }
    metrics = compute_all_metrics(**environment_view(published))
    assert metrics["triage"]["under_triage"] is True
    assert metrics["triage"]["first_correct_turn"] == score(published)["first_correct_turn"] == 0
    assert metrics["belief_coverage"]["has_chief_complaint"] is True
    assert metrics["red_flags"]["logged_flags"] == ["syncope"]
    assert explanation_grounding(published)["support_rate"] == 1.0


def test_the_baseline_explains_itself_by_what_it_heard_and_measured() -> None:
    found = [explanation_grounding(episode) for judged in (False, True) for episode in played(judged=judged)]
    assert sum(one["citations"] for one in found) > 1000
    assert statistics.mean(one["support_rate"] for one in found) > 0.98
