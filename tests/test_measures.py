"""Completion, drop-off and rewrites, and what an episode is to them; figures are worked out by hand or by difflib."""

from __future__ import annotations

import asyncio
import difflib
import inspect
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from actors import Puppet, a_case, personas
from triagesim import load_backend, load_cases, simulate
from triagesim.errors import InputError
from triagesim.measures import (
    EPOCH,
    Activity,
    DropOff,
    FunctionEvaluator,
    History,
    Revision,
    Rewrites,
    Session,
    TaskCompletion,
    Transcript,
    Turn,
    Verdict,
    completion_rate,
    drop_off_evaluator,
    drop_off_rate,
    episode_session,
    episode_transcript,
    line_histories,
    line_history,
    measure_drop_off,
    measure_rewrites,
    read_reviews,
    rewrite_evaluator,
    rewrite_rate,
    share_changed,
)
from triagesim.resources import RESOURCES

START = datetime(2024, 1, 1, tzinfo=UTC)
DAY = timedelta(hours=24)


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def did(hours: float, role: Any, kind: str = "message", ref: str | None = None) -> Activity:
    return Activity(at=at(hours), role=role, kind=kind, ref=ref)


def outcome(*activities: Activity, now: float, window: timedelta = DAY) -> tuple[str, str | None]:
    measured = measure_drop_off(Session(activities=list(activities)), window=window, now=at(now))
    return measured.outcome, measured.cause


CONTINUED = ("continued", None)
PENDING = ("pending", None)
NO_REPLY = ("dropped", "no_reply")
UNRESOLVED = ("dropped", "unresolved_proposal")

# -- inputs


def test_the_inputs_are_models_that_survive_json() -> None:
    session = Session(activities=[did(0, "agent", "proposal", "a"), did(1, "person")])
    history = History(revisions=[Revision(at=START, role="agent", text="draft")])
    transcript = Transcript(request="x", turns=[Turn(role="person", text="hello")])
    for one in (session, history, transcript):
        assert isinstance(one, BaseModel)
        assert type(one).model_validate_json(one.model_dump_json()) == one


def test_an_activity_is_a_message_without_a_ref_by_default() -> None:
    activity = Activity(at=START, role="person")
    assert (activity.kind, activity.ref) == ("message", None)


@pytest.mark.parametrize("model", [Activity, Revision, Turn])
def test_a_role_is_one_of_three(model: type[BaseModel]) -> None:
    fields = {"at": START, "text": "x"}
    given = {name: value for name, value in fields.items() if name in model.model_fields}
    assert [model.model_validate({**given, "role": role}) for role in ("person", "agent", "system")]
    with pytest.raises(ValidationError):
        model.model_validate({**given, "role": "robot"})


def test_a_transcript_needs_no_result() -> None:
    assert Transcript(request="x", turns=[]).result is None


# -- completion


def test_quality_is_from_1_to_5_and_a_reason_may_be_missing() -> None:
    assert TaskCompletion(completed=True, quality=1).reason is None
    assert TaskCompletion(completed=True, quality=5, reason="well done").quality == 5
    for quality in (0, 6):
        with pytest.raises(ValidationError):
            TaskCompletion(completed=True, quality=quality)


def test_the_completion_rate_is_the_share_completed_of_verdicts_and_values() -> None:
    def given() -> Iterator[Verdict[TaskCompletion] | TaskCompletion]:
        yield Verdict[TaskCompletion](
            value=TaskCompletion(completed=True, quality=4), evaluator="judge", version="1", confidence=0.8
        )
        yield from [TaskCompletion(completed=False, quality=2)] * 3

    assert completion_rate(given()) == 0.25
    assert completion_rate([]) is None


# -- drop-off


def test_drop_off_knows_three_outcomes_and_two_causes() -> None:
    assert DropOff(outcome="continued").cause is None
    for wrong in ({"outcome": "lost"}, {"outcome": "dropped", "cause": "bored"}):
        with pytest.raises(ValidationError):
            DropOff.model_validate(wrong)


@pytest.mark.parametrize("function", [measure_drop_off, drop_off_evaluator, measure_rewrites, rewrite_evaluator])
def test_windows_are_named_and_required(function: Any) -> None:
    window = inspect.signature(function).parameters["window"]
    assert (window.kind, window.default) == (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty)


def test_when_the_log_was_read_is_named_and_required() -> None:
    now = inspect.signature(measure_drop_off).parameters["now"]
    assert (now.kind, now.default) == (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty)
    with pytest.raises(TypeError):
        measure_drop_off(Session(activities=[]), DAY, START)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("activities", "now", "expected"),
    [
        ([did(0, "agent")], 25, NO_REPLY),
        ([did(0, "agent")], 24, NO_REPLY),
        ([did(0, "agent")], 23, PENDING),
        ([did(0, "agent"), did(1, "person")], 100, CONTINUED),
        ([did(0, "agent"), did(24, "person")], 100, CONTINUED),
        ([did(0, "agent"), did(24.01, "person")], 100, NO_REPLY),
        ([did(0, "agent"), did(0, "person")], 100, NO_REPLY),
        ([did(0, "person")], 100, CONTINUED),
        ([did(0, "system")], 100, CONTINUED),
        ([], 100, CONTINUED),
        ([did(0, "agent"), did(20, "agent"), did(40, "person")], 100, CONTINUED),
        ([did(0, "agent"), did(1, "person"), did(2, "agent")], 100, NO_REPLY),
        ([did(0, "agent"), did(5, "system")], 100, NO_REPLY),
        ([did(0, "agent"), did(5, "system")], 6, PENDING),
        ([did(0, "person"), did(1, "system"), did(2, "agent"), did(3, "person", "download")], 100, CONTINUED),
        ([did(0, "agent"), did(3, "person", "download")], 100, CONTINUED),
    ],
)
def test_who_came_back_in_time(activities: list[Activity], now: float, expected: tuple[str, str | None]) -> None:
    assert outcome(*activities, now=now) == expected


PROPOSED = [did(0, "agent", "proposal", "a"), did(1, "person")]


@pytest.mark.parametrize(
    ("later", "now", "expected"),
    [
        ([], 25, UNRESOLVED),
        ([], 24, UNRESOLVED),
        ([], 23, PENDING),
        ([did(2, "person", "resolution", "a")], 100, CONTINUED),
        ([did(2, "person", "resolution", "b")], 100, UNRESOLVED),
        ([did(2, "person", "resolution")], 100, UNRESOLVED),
        ([did(90, "person", "resolution", "a")], 100, CONTINUED),
        ([did(2, "person", "resolution", "a"), did(3, "agent", "proposal", "a"), did(4, "person")], 100, UNRESOLVED),
        ([did(3, "agent", "proposal", "c"), did(4, "person", "resolution", "c")], 100, UNRESOLVED),
        ([did(95, "agent", "proposal", "c"), did(96, "person", "resolution", "a")], 100, PENDING),
    ],
)
def test_an_open_proposal_is_a_drop_even_after_a_reply(
    later: list[Activity], now: float, expected: tuple[str, str | None]
) -> None:
    assert outcome(*PROPOSED, *later, now=now) == expected


def test_a_resolution_before_its_proposal_settles_nothing() -> None:
    early = did(0, "person", "resolution", "a")
    assert outcome(early, did(1, "agent", "proposal", "a"), did(2, "person"), now=100) == UNRESOLVED


def test_silence_after_a_proposal_is_named_before_the_proposal() -> None:
    assert outcome(did(0, "agent", "proposal", "a"), now=100) == NO_REPLY


def test_a_negative_window_and_mixed_clocks_are_refused() -> None:
    session = Session(activities=[did(0, "agent")])
    with pytest.raises(ValueError, match="window"):
        measure_drop_off(session, window=-DAY, now=START)
    with pytest.raises(ValueError, match="time zone"):
        measure_drop_off(session, window=DAY, now=datetime(2024, 1, 2))
    elsewhere = datetime(2024, 1, 2, 1, tzinfo=timezone(timedelta(hours=1)))
    assert measure_drop_off(session, window=DAY, now=elsewhere).outcome == "dropped"


ACTIVITIES = st.builds(
    did,
    st.integers(0, 60),
    st.sampled_from(["person", "agent", "system"]),
    st.sampled_from(["message", "proposal", "resolution", "download"]),
    st.sampled_from(["a", "b", None]),
)


@settings(deadline=None)
@given(st.lists(ACTIVITIES, max_size=8), st.integers(0, 30))
def test_drop_off_only_ever_ripens(activities: list[Activity], hours: int) -> None:
    window = timedelta(hours=hours)
    ordered = sorted(activities, key=lambda one: one.at)
    read = [outcome(*ordered, now=60 + later, window=window) for later in range(0, 31, 5)]
    decided = [one for one in read if one != PENDING]
    assert read[-1] != PENDING
    assert read[len(read) - len(decided) :] == decided
    assert len({one[0] for one in decided}) == 1
    assert all((cause is None) == (name != "dropped") for name, cause in read)
    if not any(one.role == "agent" or one.kind == "proposal" for one in activities):
        assert set(read) == {CONTINUED}


def test_the_evaluator_gives_a_whole_verdict() -> None:
    evaluator = drop_off_evaluator(window=DAY, now=at(25))
    assert isinstance(evaluator, FunctionEvaluator)
    verdict = asyncio.run(evaluator.evaluate(Session(activities=[did(0, "agent")])))
    assert isinstance(verdict, Verdict)
    assert verdict.value == DropOff(outcome="dropped", cause="no_reply")
    assert (verdict.evaluator, verdict.version, verdict.confidence, verdict.cost) == ("drop_off", "1:86400s", None, 0.0)
    assert verdict.latency is not None
    assert 0 <= verdict.latency < 60
    assert Verdict[DropOff].model_validate_json(verdict.model_dump_json()) == verdict


def test_the_drop_off_version_shows_the_window_exactly_and_never_now() -> None:
    def version(window: timedelta, now: datetime = START) -> str:
        return drop_off_evaluator(window=window, now=now).version

    assert version(timedelta(hours=1)) == "1:3600s"
    assert version(timedelta(minutes=60), at(99)) == version(timedelta(hours=1))
    month = timedelta(days=30)
    versions = [month, month + timedelta(seconds=1), month + timedelta(microseconds=1), timedelta(seconds=0.5)]
    assert [version(window) for window in versions] == ["1:2592000s", "1:2592001s", "1:2592000.000001s", "1:0.5s"]


def test_the_drop_off_rate_leaves_pending_sessions_out() -> None:
    names = ("dropped", "continued", "continued", "pending", "dropped")
    assert drop_off_rate(DropOff.model_validate({"outcome": name}) for name in names) == 0.5
    assert drop_off_rate([DropOff(outcome="pending")]) is None
    assert drop_off_rate([]) is None


def test_rates_take_verdicts_and_plain_values_together() -> None:
    verdict = asyncio.run(drop_off_evaluator(window=DAY, now=at(99)).evaluate(Session(activities=[did(0, "agent")])))
    assert drop_off_rate([verdict, DropOff(outcome="continued")]) == 0.5
    history = History(revisions=[Revision(at=START, role="agent", text="x")])
    rewrites = asyncio.run(rewrite_evaluator(window=DAY).evaluate(history))
    assert rewrite_rate([rewrites, Rewrites(agent_revisions=1, rewritten=1, rate=1.0)]) == 0.5


# -- rewrites


def wrote(hours: float, role: Any, text: str) -> Revision:
    return Revision(at=at(hours), role=role, text=text)


def counted(*revisions: Revision, window: timedelta = DAY, threshold: float = 0.2) -> tuple[int, int, float | None]:
    found = measure_rewrites(History(revisions=list(revisions)), window=window, threshold=threshold)
    return found.agent_revisions, found.rewritten, found.rate


def test_a_rate_is_a_share_and_missing_by_default() -> None:
    assert Rewrites(agent_revisions=0, rewritten=0).rate is None
    for wrong in ({"rate": 1.5}, {"rate": -0.1}, {"rewritten": -1}):
        with pytest.raises(ValidationError):
            Rewrites.model_validate({"agent_revisions": 1, "rewritten": 1, **wrong})


def test_the_threshold_is_a_fifth_by_default() -> None:
    for function in (measure_rewrites, rewrite_evaluator):
        assert inspect.signature(function).parameters["threshold"].default == 0.2


@pytest.mark.parametrize(
    ("revisions", "expected"),
    [
        ([], (0, 0, None)),
        ([wrote(0, "person", "abcd"), wrote(1, "person", "wxyz")], (0, 0, None)),
        ([wrote(0, "agent", "abcd")], (1, 0, 0.0)),
        ([wrote(0, "agent", "abcd"), wrote(24, "person", "wxyz")], (1, 1, 1.0)),
        ([wrote(0, "agent", "abcd"), wrote(24.01, "person", "wxyz")], (1, 0, 0.0)),
        ([wrote(0, "agent", "abcd"), wrote(1, "agent", "efgh"), wrote(2, "person", "wxyz")], (2, 1, 0.5)),
        ([wrote(0, "agent", "abcd"), wrote(1, "person", "wxyz"), wrote(2, "agent", "wxyz")], (2, 1, 0.5)),
        ([wrote(0, "agent", "abcd"), wrote(1, "system", "wxyz")], (1, 0, 0.0)),
        ([wrote(0, "agent", "abcd"), wrote(1, "system", "wxyz"), wrote(2, "person", "abcd")], (1, 0, 0.0)),
        ([wrote(0, "agent", "abcd"), wrote(1, "person", "wxyz"), wrote(2, "person", "abcd")], (1, 0, 0.0)),
        ([wrote(0, "agent", "abcd"), wrote(1, "person", "wxyz"), wrote(30, "person", "abcd")], (1, 1, 1.0)),
        ([wrote(0, "agent", "abcd"), wrote(0, "person", "wxyz")], (1, 1, 1.0)),
        ([wrote(0, "person", "wxyz"), wrote(0, "agent", "abcd")], (1, 0, 0.0)),
    ],
)
def test_what_counts_as_a_rewrite(revisions: list[Revision], expected: tuple[int, int, float | None]) -> None:
    assert counted(*revisions) == expected


def test_several_small_edits_count_as_the_last_text_against_the_agents() -> None:
    base = "abcdefghij"
    edits = ["Xbcdefghij", "XYcdefghij", "XYZdefghij"]
    steps = [share_changed(one, other) for one, other in zip([base, *edits], edits, strict=False)]
    assert steps == [0.1] * 3
    written = [wrote(hour, "person", text) for hour, text in enumerate(edits, 1)]
    assert counted(wrote(0, "agent", base), *written) == (1, 1, 1.0)
    assert counted(wrote(0, "agent", base), written[0]) == (1, 0, 0.0)


@pytest.mark.parametrize(
    ("text", "edit", "threshold", "rewritten"),
    [
        ("abcd", "abXd", 0.25, 1),
        ("abcd", "abXd", 0.26, 0),
        ("abcde", "abXde", 0.2, 1),
        ("abcdefghij", "abcdefghiX", 0.1, 1),
        ("abcdefghij" * 3, "XYZ" + ("abcdefghij" * 3)[3:], 0.1, 1),
        ("abcd", "abcd", 0.0, 1),
    ],
)
def test_the_threshold_is_inclusive_without_rounding_errors(
    text: str, edit: str, threshold: float, rewritten: int
) -> None:
    assert counted(wrote(0, "agent", text), wrote(1, "person", edit), threshold=threshold)[1] == rewritten


def test_a_threshold_that_is_no_share_is_refused() -> None:
    for threshold in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="threshold"):
            measure_rewrites(History(revisions=[]), window=DAY, threshold=threshold)
        with pytest.raises(ValueError, match="threshold"):
            rewrite_evaluator(window=DAY, threshold=threshold)


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        ("abcd", "abXd", 0.25),  # 3 of 4 and 4 characters: 1 - 6/8
        ("", "", 0.0),
        ("same", "same", 0.0),
        ("a", "b", 1.0),
        ("", "abc", 1.0),
        ("abc", "", 1.0),
        ("ab\n", "ab", 1 - 4 / 5),  # the last line changed: two characters shared
        ("a\nb\n" + "x" * 10 + "\n", "x" * 10 + "\n" + "a\nb\n", 1 - 8 / 30),  # two short lines moved past a long one
    ],
)
def test_shares_worked_out_by_hand(before: str, after: str, share: float) -> None:
    assert share_changed(before, after) == pytest.approx(share, abs=1e-12)


def test_lines_are_aligned_before_characters() -> None:
    before, after = "a\nb\n" + "x" * 10 + "\n", "x" * 10 + "\n" + "a\nb\n"
    by_characters = difflib.SequenceMatcher(None, before, after, autojunk=False).ratio()
    assert share_changed(before, after) == pytest.approx(1 - 8 / 30)
    assert 1 - by_characters == pytest.approx(1 - 22 / 30)


def test_a_small_edit_to_a_long_repetitive_text_stays_small() -> None:
    row = "| ok | no " * 320
    assert len(row) == 3200
    edited = row[:1600] + "#" + row[1601:]
    assert share_changed(row, edited) == 1 / len(row)
    assert 1 - difflib.SequenceMatcher(None, row, edited).ratio() > 0.2  # what autojunk would have made of it


def test_one_tick_in_a_checklist_is_no_rewrite() -> None:
    before = "".join(f"- [ ] measure the pulse again, {number}\n" for number in range(60))
    after = before.replace("- [ ] measure the pulse again, 30", "- [x] measure the pulse again, 30")
    assert share_changed(before, after) == 1 / len(before)
    assert counted(wrote(0, "agent", before), wrote(1, "person", after)) == (1, 0, 0.0)


def test_only_a_line_feed_ends_a_line() -> None:
    """U+2028, a form feed or a carriage return is a character of its line."""
    for odd in ("\u2028", "\x0c", "\r"):
        text = f"one{odd}two{odd}"
        assert share_changed(text, text.replace("two", "two!")) == pytest.approx(1 / (2 * len(text) + 1))


def independent(before: str, after: str) -> float:
    """The share on one line each, from difflib's own ratio, which counts the same there."""
    return 1 - difflib.SequenceMatcher(None, before, after, autojunk=False).ratio()


@settings(deadline=None)
@given(st.text("abc ", max_size=40), st.text("abc ", max_size=40))
def test_on_one_line_the_share_is_difflibs(before: str, after: str) -> None:
    assert share_changed(before, after) == pytest.approx(independent(before, after), abs=1e-12)


@settings(deadline=None)
@given(st.text("ab\n", max_size=60), st.text("ab\n", max_size=60))
def test_a_share_is_from_0_to_1_and_0_for_equal_texts_alone(before: str, after: str) -> None:
    share = share_changed(before, after)
    assert 0 <= share <= 1
    assert (share == 0) == (before == after)


def test_the_rewrite_version_shows_its_own_number_window_and_threshold() -> None:
    assert rewrite_evaluator(window=timedelta(hours=1)).version == "2:3600s:0.2"
    versions = {
        rewrite_evaluator(window=window, threshold=threshold).version
        for window in (DAY, DAY + timedelta(seconds=1))
        for threshold in (0.2, 0.2000001, 1)
    }
    assert len(versions) == 6
    assert all(re.match(r"\d+:", version) for version in versions)


def test_the_rewrite_evaluator_gives_rewrites() -> None:
    evaluator = rewrite_evaluator(window=DAY, threshold=0.25)
    history = History(revisions=[wrote(0, "agent", "abcd"), wrote(1, "person", "abXd")])
    verdict = asyncio.run(evaluator.evaluate(history))
    assert verdict.value == Rewrites(agent_revisions=1, rewritten=1, rate=1.0)
    assert verdict.version == "2:86400s:0.25"


def test_the_rewrite_rate_is_pooled_over_artifacts() -> None:
    some = [Rewrites(agent_revisions=1, rewritten=1, rate=1.0), Rewrites(agent_revisions=3, rewritten=0, rate=0.0)]
    assert rewrite_rate(some) == 0.25
    assert rewrite_rate([Rewrites(agent_revisions=0, rewritten=0)]) is None
    assert rewrite_rate([]) is None


# -- episodes


@cache
def played(*, judged: bool) -> tuple[dict[str, Any], ...]:
    """Real episodes of the baseline."""
    baseline = load_backend("agenda")
    cases = load_cases(RESOURCES / "cases" / "vignettes.jsonl")[:12]
    judge = baseline if judged else None
    pools = {"nurse_personas": personas("nurse", 6), "patient_personas": personas("patient", 6)}
    return tuple(simulate(cases, nurse_llm=baseline, patient_llm=baseline, judge_llm=judge, **pools))


@cache
def corrected() -> dict[str, Any]:
    """An episode in which the dialogue master rejects most lines, and so writes many."""
    puppet, strict = Puppet(), Puppet("strict", rejects=0.7)
    pools = {"nurse_personas": personas("nurse"), "patient_personas": personas("patient")}
    [episode] = simulate([a_case()], nurse_llm=puppet, patient_llm=puppet, judge_llm=strict, max_turns=6, **pools)
    return episode


LATE = EPOCH + timedelta(days=1)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize("judged", [False, True])
def test_a_finished_episode_continued(judged: bool) -> None:
    for episode in played(judged=judged):
        assert episode["status"] == "ok"
        assert measure_drop_off(episode_session(episode), window=HOUR, now=LATE) == DropOff(outcome="continued")


def test_an_episode_that_ends_at_an_unanswered_question_dropped_off() -> None:
    episode = json.loads(json.dumps(played(judged=False)[0]))
    asked = [
        place for place, line in enumerate(episode["history"]) if line["actor"] == "nurse" and "action" not in line
    ]
    cut = {**episode, "status": "error", "history": episode["history"][: asked[-1] + 1]}
    session = episode_session(cut)
    assert measure_drop_off(session, window=HOUR, now=LATE).cause == "no_reply"
    assert measure_drop_off(session, window=HOUR, now=session.activities[-1].at).outcome == "pending"


def test_the_patient_is_the_person_the_nurse_the_agent_and_the_rest_the_system() -> None:
    episode = played(judged=True)[0]
    session = episode_session(episode)
    assert session == episode_session(json.loads(json.dumps(episode)))
    assert [one.at for one in session.activities] == sorted(one.at for one in session.activities)
    lines = [line for line in episode["history"] if "utterance" in line]
    by_role = {
        role: sum(one.role == role for one in session.activities if one.kind == "message")
        for role in ("person", "agent", "system")
    }
    assert by_role == {
        "person": sum(line["actor"] == "patient" for line in lines),
        "agent": sum(line["actor"] == "nurse" and "action" not in line for line in lines),
        "system": sum(line.get("action") in ("check_vital", "end") for line in lines),
    }
    kinds = [one.kind for one in session.activities if one.role == "system"]
    assert kinds.count("check") == sum("verification" in line for line in lines)
    assert kinds.count("vital") == sum(line.get("event") == "vital" for line in episode["history"])
    assert kinds[-1] == "triage_end"
    seconds = [line["t"] for line in episode["history"]]
    assert {(one.at - EPOCH).total_seconds() for one in session.activities} == set(seconds)


def test_an_episode_without_times_gets_them_from_its_words() -> None:
    for episode in played(judged=True):
        bare = json.loads(json.dumps(episode))
        for line in bare["history"]:
            del line["t"]
        assert episode_session(bare) == episode_session(episode)


def test_an_old_run_file_is_a_session_that_continued() -> None:
    history = [
        {"turn": 0, "actor": "nurse", "utterance": "What brings you in?", "triage": 3},
        {"turn": 0, "actor": "patient", "utterance": "I passed out at the shops."},
        {"turn": 1, "actor": "system", "event": "vital", "name": "sbp", "value": 88},
        {"turn": 1, "actor": "nurse", "utterance": "Come with me.", "triage": 2},
        {"turn": 1, "actor": "system", "event": "triage_end"},
    ]
    trace = [{"turn": 1, "action": {"type": "end", "triage": 2}, "explanation": "Fainted, low pressure."}]
    run = {
        "trace": trace,
        "history": history,
        "belief": {"red_flags_logged": ["syncope"]},
        "ground_truth": {"acuity": 2, "chief_complaint": "Syncope"},
    }
    session = episode_session(run)
    assert [one.role for one in session.activities] == ["agent", "person", "system", "system", "system"]
    assert measure_drop_off(session, window=HOUR, now=LATE).outcome == "continued"
    transcript = episode_transcript(run)
    assert transcript.request == "Syncope"
    assert transcript.result == (
        "Triage level 2 of 5 (1 is the most urgent).\nReason: Fainted, low pressure.\nRed flags: syncope."
    )


def test_a_skipped_episode_and_anything_else_is_an_empty_session() -> None:
    for nothing in ({}, {"history": []}, {"history": None}, {"history": [None, 3]}):
        assert episode_session(nothing) == Session(activities=[])
        assert episode_transcript(nothing) == Transcript(request="", turns=[])
        assert line_histories(nothing) == []


def test_a_transcript_is_what_was_heard_with_the_request_and_the_decision() -> None:
    for episode in played(judged=True):
        transcript = episode_transcript(episode)
        assert transcript.request == episode["case"]["chief_complaint"]
        names = {"person": "patient", "agent": "nurse"}
        assert [(names[turn.role], turn.text) for turn in transcript.turns] == [
            (line["speaker"], line["text"]) for line in episode["transcript"]
        ]
        assert transcript.result is not None
        assert transcript.result.startswith(f"Triage level {episode['final_triage']} of 5")


def test_an_episode_without_a_decision_has_no_result() -> None:
    episode = played(judged=False)[0]
    cut = {**episode, "trace": episode["trace"][:-1]}
    assert episode_transcript(cut).result is None
    assert episode_transcript({**episode, "case": {}}).request == episode["transcript"][1]["text"]


def test_a_line_has_its_drafts_by_the_agent_and_the_masters_edit_by_the_system() -> None:
    episode = corrected()
    seen = set()
    for place, line in enumerate(episode["history"]):
        if "utterance" not in line:
            continue
        history = line_history(episode, place)
        check = line["verification"]
        drafts = [draft["utterance"] for draft in check["rejected"]]
        assert [revision.text for revision in history.revisions] == [*drafts, line["utterance"]]
        last = "system" if check.get("edited") else "agent"
        assert [revision.role for revision in history.revisions] == [*["agent"] * len(drafts), last]
        assert {revision.at for revision in history.revisions} == {EPOCH + timedelta(seconds=line["t"])}
        assert measure_rewrites(history, window=timedelta(0)).rewritten == 0
        seen.add((len(drafts), last))
    assert seen >= {(0, "agent"), (1, "agent"), (2, "system")}


def test_a_clinicians_edit_is_a_persons_and_can_rewrite_the_line() -> None:
    episode = played(judged=False)[0]
    place = next(place for place, line in enumerate(episode["history"]) if line["actor"] == "patient")
    text = episode["history"][place]["utterance"]
    untouched = line_history(episode, place, text)
    changed = line_history(episode, place, "Something else altogether!")
    assert [revision.role for revision in changed.revisions] == ["agent", "person"]
    assert measure_rewrites(untouched, window=HOUR).rewritten == 0
    assert measure_rewrites(changed, window=HOUR).rewritten == 1


def test_reviews_from_a_file_reach_the_rate(tmp_path: Path) -> None:
    episode = played(judged=False)[0]
    places = [place for place, line in enumerate(episode["history"]) if "utterance" in line]
    rows = [
        {"episode_id": episode["episode_id"], "line": places[0], "text": "first thoughts"},
        {"episode_id": episode["episode_id"], "line": places[0], "text": "0123456789"},
        {"pairing": "other", "episode_id": episode["episode_id"], "line": places[1], "text": "elsewhere"},
    ]
    (tmp_path / "review.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    reviews = read_reviews(tmp_path / "review.jsonl")
    edits = reviews[episode["pairing"], episode["episode_id"]]
    assert edits == {places[0]: "0123456789"}
    histories = line_histories(episode, edits)
    assert len(histories) == len(places)
    assert rewrite_rate(measure_rewrites(one, window=HOUR) for one in histories) == 1 / len(places)
    assert rewrite_rate(measure_rewrites(one, window=HOUR) for one in line_histories(episode)) == 0.0


@pytest.mark.parametrize("row", ['{"episode_id": "a", "line": -1, "text": "x"}', '{"episode_id": "a"}', "[]", "{"])
def test_a_bad_review_is_refused_with_its_line(row: str, tmp_path: Path) -> None:
    path = tmp_path / "review.jsonl"
    path.write_text('{"episode_id": "a", "line": 0, "text": "x"}\n' + row + "\n")
    with pytest.raises(InputError, match=r"review\.jsonl, line 2"):
        read_reviews(path)


def test_an_edit_of_a_place_without_a_line_is_refused() -> None:
    episode = played(judged=False)[0]
    event = next(place for place, line in enumerate(episode["history"]) if "event" in line)
    for place in (event, len(episode["history"]), -1):
        with pytest.raises(InputError, match=f"no line at {place}"):
            line_history(episode, place)
        with pytest.raises(InputError, match=f"no line at {place}"):
            line_histories(episode, {place: "x"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["history", "actor", "utterance", "t", "event", "verification", "rejected", "edited", "trace", "case"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(JSON)
def test_no_episode_raises(episode: Any) -> None:
    assert isinstance(episode_session(episode), Session)
    assert isinstance(episode_transcript(episode), Transcript)
    assert all(isinstance(one, History) for one in line_histories(episode))


def test_the_snippets_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results" / "episodes" / "agenda"
    folder.mkdir(parents=True)
    episodes = played(judged=True)
    (folder / "1-of-1.jsonl").write_text("".join(json.dumps(episode) + "\n" for episode in episodes))
    (tmp_path / "review.jsonl").write_text(
        json.dumps({"episode_id": episodes[0]["episode_id"], "line": 0, "text": "0123456789"}) + "\n"
    )
    page = (RESOURCES.parent / "docs/measures.md").read_text(encoding="utf-8")
    snippets = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    for snippet in snippets:
        exec(snippet, {})
    right = sum(episode["final_triage"] == episode["case"]["acuity"] for episode in episodes)
    lines = [line for episode in episodes for line in episode["history"] if "utterance" in line]
    checks = [line.get("verification", {}) for line in lines]
    # What the master wrote anew is no revision of the agent's.
    written = sum(not check.get("edited") for check in checks) + sum(len(check.get("rejected", ())) for check in checks)
    scored, drops = capsys.readouterr().out.splitlines()
    assert scored == f"{right} right of {len(episodes)}"
    assert drops == f"0.0 {1 / written}"
