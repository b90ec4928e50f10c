"""The nurse's state machine: properties that hold in every state that an interview can reach."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triagesim.answers import NurseStep, nurse_step
from triagesim.cases import VITALS, Vital
from triagesim.protocol import NurseState, allowed, apply, is_spoken, names_level, new_flags

SMALL = [(max_turns, minimum) for max_turns in (1, 2, 3) for minimum in (0, 1, 3, 5)]


def a_step(action: str, vital: Vital | None = None, utterance: str | None = "What brings you in today?") -> NurseStep:
    return NurseStep.model_validate(
        {
            "understood": None,
            "action": action,
            "vital": vital,
            "utterance": utterance,
            "red_flags": ["pallor"] if action == "log_red_flag" else [],
            "explanation": "so far",
            "triage": 3,
            "confidence": "low",
        }
    )


def moves(state: NurseState) -> Iterator[tuple[NurseStep, bool]]:
    """Every step that the state allows, with a vital that can and one that can't be measured."""
    options = allowed(state)
    for action in options.actions:
        if action == "check_vital":
            yield from ((a_step(action, vital), measurable) for vital in options.vitals for measurable in (True, False))
        else:
            yield a_step(action), True


def reachable(start: NurseState) -> set[NurseState]:
    seen, waiting = {start}, [start]
    while waiting:
        state = waiting.pop()
        for step, measurable in moves(state):
            after = apply(state, step, measurable=measurable)
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return seen


@pytest.mark.parametrize(("max_turns", "minimum"), SMALL)
@pytest.mark.parametrize("record_open", [False, True])
def test_every_reachable_state_allows_something_until_the_end(max_turns: int, minimum: int, record_open: bool) -> None:
    states = reachable(NurseState(max_turns, minimum, record_open=record_open))
    assert any(state.ended for state in states)
    for state in states:
        assert bool(allowed(state).actions) is not state.ended


@pytest.mark.parametrize(("max_turns", "minimum"), SMALL)
def test_questions_never_exceed_the_budget_and_end_waits_for_the_minimum(max_turns: int, minimum: int) -> None:
    for state in reachable(NurseState(max_turns, minimum)):
        options = allowed(state)
        assert state.asked <= max_turns
        assert ("utterance" in options.actions) is (state.asked < max_turns and not state.ended)
        if "end" in options.actions:
            assert state.asked >= min(minimum, max_turns)


@pytest.mark.parametrize(("max_turns", "minimum"), SMALL)
def test_a_turn_has_one_vital_before_its_question_and_flags_once(max_turns: int, minimum: int) -> None:
    for state in reachable(NurseState(max_turns, minimum)):
        options = allowed(state)
        if state.checked and state.questions_left:
            assert "check_vital" not in options.actions
        if state.flagged:
            assert "log_red_flag" not in options.actions
        assert not set(options.vitals) & state.known
        assert bool(options.vitals) is ("check_vital" in options.actions)


@pytest.mark.parametrize(("max_turns", "minimum"), SMALL)
def test_an_unmeasurable_vital_forces_a_question_only_while_questions_are_left(max_turns: int, minimum: int) -> None:
    for state in reachable(NurseState(max_turns, minimum)):
        if state.infer and not state.ended and state.questions_left:
            assert allowed(state).actions == ("utterance",)
        if state.questions_left == 0 and not state.ended:
            assert "end" in allowed(state).actions


def test_after_the_last_question_all_open_vitals_can_be_taken_then_the_nurse_ends() -> None:
    state = apply(NurseState(1, 3), a_step("utterance"))
    for vital in VITALS:
        assert "utterance" not in allowed(state).actions
        state = apply(state, a_step("check_vital", vital), measurable=False)
    assert allowed(apply(state, a_step("log_red_flag"))).actions == ("end",)


def test_an_open_record_keeps_the_nurse_asking_until_the_questions_run_out() -> None:
    state = NurseState(4, 1, record_open=True)
    for _ in range(3):
        state = apply(state, a_step("utterance"))
        assert "end" not in allowed(state).actions
    assert "end" in allowed(apply(state, a_step("utterance"))).actions


@given(st.lists(st.text(max_size=12), max_size=12), st.lists(st.text(max_size=12), max_size=12))
def test_flags_are_kept_once_whatever_their_case_and_spaces(logged: list[str], found: list[str]) -> None:
    fresh = new_flags(logged, found)
    plain = [" ".join(flag.lower().split()) for flag in [*dict.fromkeys(logged), *fresh]]
    assert len(fresh) <= 5
    assert len(set(plain[-len(fresh) :])) == len(fresh) if fresh else True
    assert new_flags([*logged, *fresh], fresh) == []


def test_the_same_flag_in_another_spelling_is_no_new_flag() -> None:
    assert new_flags(["Hypoxia"], [" hypoxia ", "pale  skin", "Pale skin"]) == ["pale  skin"]


@pytest.mark.parametrize(
    ("words", "spoken"), [("Let me check.", True), ("Your arm?", False), ("", False), (None, False)]
)
def test_words_while_measuring_are_spoken_from_three_words_on(words: str | None, spoken: bool) -> None:
    assert is_spoken(a_step("check_vital", "sbp", words)) is spoken


@pytest.mark.parametrize(
    "line",
    [
        "You are a level 3.",
        "That makes you ESI two.",
        "Your triage category is 2.",
        "We've put you down as priority 1.",
        "You are a Cat. 2.",
        "It's category II, please wait.",
        "Category (2). Take a seat.",
        "You're category no. 2.",
        "Your triage level will be 2.",
        "The level I gave you is 2.",
        "You are level 2 out of 5.",
        "ESI ２, so come with me.",
        "That's an esi2.",
        "On the Emergency Severity Index 2.",
    ],
)
def test_a_line_that_tells_the_level_is_noticed(line: str) -> None:
    assert names_level(line)


@pytest.mark.parametrize(
    "line",
    [
        "Please take a seat in bay 3.",
        "On a level of one to ten?",
        "A doctor will see you in 2 minutes.",
        "Thank you.",
        "That's it for triage. I will call you.",
        "For triage, one more thing.",
        "Your pain level is 4 out of 10.",
    ],
)
def test_a_line_that_tells_no_level_is_left_alone(line: str) -> None:
    assert not names_level(line)


def test_the_answer_type_offers_only_what_the_step_allows_in_the_fixed_order() -> None:
    schema = nurse_step(("check_vital", "utterance"), ("sbp", "o2sat"), True).model_json_schema()
    assert list(schema["properties"]) == [
        "understood",
        "action",
        "vital",
        "utterance",
        "red_flags",
        "explanation",
        "triage",
        "confidence",
    ]
    assert schema["properties"]["action"]["enum"] == ["check_vital", "utterance"]
    assert schema["properties"]["vital"]["enum"] == ["sbp", "o2sat", None]
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == set(schema["properties"])


@pytest.mark.parametrize("wrong", [{"action": "check_vital", "vital": None}, {"action": "end", "utterance": " "}])
def test_an_action_without_what_it_needs_is_no_valid_answer(wrong: dict[str, object]) -> None:
    fine = a_step("utterance").model_dump()
    with pytest.raises(ValueError, match="needs"):
        NurseStep.model_validate({**fine, **wrong})


def test_every_branch_of_the_grammar_gives_a_valid_answer_and_no_vital_without_checking() -> None:
    kind = nurse_step(("check_vital", "log_red_flag", "utterance", "end"), ("sbp",), False)
    branches = {branch["properties"]["action"]["const"]: branch["properties"] for branch in kind.grammar()["anyOf"]}
    assert set(branches) == {"check_vital", "log_red_flag", "utterance", "end"}
    assert branches["check_vital"]["vital"] == {"enum": ["sbp"]}
    assert branches["end"]["vital"] == {"type": "null"}
    assert branches["log_red_flag"]["red_flags"]["minItems"] == 1
