"""The dialogue master in an episode, through the Python API, with plain backends in memory."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors import SCRIPT, VITALS, Puppet, a_case, personas
from triagesim import Features, score, simulate, summarize
from triagesim.answers import NurseStep, PatientReply
from triagesim.artifact import RECORD_FIELDS, UNKNOWN
from triagesim.backends.agenda import Agenda
from triagesim.cases import Case
from triagesim.errors import AnswerError, BackendError, InputError, StopRun
from triagesim.journal import read_records
from triagesim.judging import Appearance, Edit, InSitu, LineCheck, NurseLineCheck, Reading, RecordNews, Script
from triagesim.requests import Answer, Request
from triagesim.resources import SCHEMAS
from triagesim.show import as_text
from triagesim.views import ReadingView

SPECULATIONS = ("off", "reading", "full")


def run(cases: list[Case], judge: Any, nurse: Any = None, patient: Any = None, **options: Any) -> list[dict[str, Any]]:
    options.setdefault("nurse_personas", personas("nurse"))
    options.setdefault("patient_personas", personas("patient"))
    return list(
        simulate(cases, nurse_llm=nurse or Puppet(), patient_llm=patient or Puppet(), judge_llm=judge, **options)
    )


def lines(episode: dict[str, Any], actor: str | None = None) -> list[dict[str, Any]]:
    said = [line for line in episode["history"] if line["actor"] != "system"]
    return [line for line in said if actor in (None, line["actor"])]


class Answering(Puppet):
    """A puppet whose answers to some types are given."""

    def __init__(self, answers: dict[type[Answer], Any], **options: Any) -> None:
        super().__init__(**options)
        self.answers = answers

    def answer(self, request: Request) -> str:
        for form, wanted in self.answers.items():
            if issubclass(request.output_type, form):
                value = wanted(request) if callable(wanted) else wanted
                if isinstance(value, Exception):
                    raise value
                return value if isinstance(value, str) else str(value.model_dump_json())
        return super().answer(request)

    def complete(self, requests: list[Request]) -> list[str | Exception]:
        self.requests += requests
        answers: list[str | Exception] = []
        for request in requests:
            try:
                answers.append(self.answer(request))
            except Exception as error:
                answers.append(error)
        return answers


class Async(Puppet):
    """Answers each request after a number of turns of the loop that the request's seed decides."""

    reads = "messages"
    local = True
    label = None
    spare = True

    def __init__(self, **options: Any) -> None:
        super().__init__("async", **options)
        self.identity = {"backend": "async"}

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    async def complete(self, request: Request) -> Any:  # type: ignore[override]
        from triagesim.requests import Completion, Usage

        self.requests.append(request)
        for _ in range(random.Random(request.seed).randrange(6)):
            await asyncio.sleep(0)
        return Completion(self.answer(request), usage=Usage(prompt=7, completion=3), model=self.model)


# Before the dialogue.


def test_who_would_not_talk_at_the_desk_is_skipped_with_the_reasoning_and_no_nurse_call() -> None:
    judge = Answering({InSitu: InSitu(reasoning="goes straight to resuscitation", conversation=False)})
    nurse = Puppet()
    for speculation in ("off", "reading"):
        [episode] = run([a_case()], judge, nurse, speculation=speculation)
        assert (episode["status"], episode["skip_reason"]) == ("skipped", "goes straight to resuscitation")
        assert episode["in_situ"] == {"reasoning": "goes straight to resuscitation", "conversation": False}
        assert episode["history"] == episode["trace"] == []
        assert nurse.requests == []
        assert {request.name.purpose for request in judge.requests} == {"in_situ"}
        assert summarize([episode])["skipped"] == 1


def test_the_in_situ_check_sees_what_is_seen_on_arrival_and_nothing_else() -> None:
    judge = Puppet()
    case = a_case(diagnoses=["ZEBRA"], vitals={"heartrate": 87654}, medications=["ZEBRA-PILL"], pain=6)
    run([case], judge, max_turns=1)
    [request] = judge.asked("in_situ")
    asked = json.dumps(request.messages) + request.view.model_dump_json()  # type: ignore[union-attr]
    for marker in ("ZEBRA", "87654", '"pain":"6"'):
        assert marker not in asked
    assert "Syncope" in asked


def test_a_case_without_acuity_is_skipped_before_the_master_is_asked() -> None:
    judge = Puppet()
    [episode] = run([a_case(acuity=None)], judge)
    assert (episode["status"], judge.requests) == ("skipped", [])


def test_the_patient_answers_from_the_script_that_the_master_writes_from_the_case() -> None:
    judge, patient = Puppet(), Puppet()
    [episode] = run([a_case(diagnoses=["Appendicitis"])], judge, patient=patient, max_turns=2)
    assert episode["patient_script"] == SCRIPT.model_dump(mode="json")
    assert "Appendicitis" in json.dumps([request.messages for request in judge.asked("script")])
    assert all("painting the ceiling" in json.dumps(request.messages) for request in patient.requests)
    assert {"cognitive_state", "intoxication"} <= set(episode["patient_script"])


def test_a_script_that_the_case_brings_is_kept() -> None:
    judge = Puppet()
    own = SCRIPT.model_copy(update={"story": "My own story."})
    [episode] = run([a_case(script=own)], judge, max_turns=1)
    assert episode["patient_script"]["story"] == "My own story."
    assert judge.asked("script") == []


def test_appearance_is_shown_to_the_nurse_and_kept() -> None:
    judge, nurse = Puppet(), Puppet()
    [episode] = run([a_case()], judge, nurse, features=Features(appearance=True), max_turns=1)
    assert "looks tired" in episode["appearance"]["skin"]
    assert all("looks tired" in json.dumps(request.messages) for request in nurse.requests)
    with pytest.raises(InputError, match="needs a dialogue master"):
        run([a_case()], None, features=Features(appearance=True))


def test_an_appearance_that_says_more_than_can_be_seen_is_asked_for_once_more() -> None:
    plain = dict.fromkeys(Appearance.model_fields, "as usual")
    told = Appearance(**plain | {"behaviour": "has a heart rate of 130"})
    judge = Answering({Appearance: lambda request: Appearance(**plain) if request.name.draft else told})
    [episode] = run([a_case()], judge, features=Features(appearance=True), max_turns=1)
    assert len(judge.asked("appearance")) == 2
    assert episode["appearance"] == plain
    stubborn, nurse = Answering({Appearance: told}), Puppet()
    [episode] = run([a_case()], stubborn, nurse, features=Features(appearance=True), max_turns=1)
    assert len(stubborn.asked("appearance")) == 2
    assert "appearance" not in episode
    assert "130" in episode["appearance_error"]
    assert "heart rate of 130" not in json.dumps([request.messages for request in nurse.requests])


# Every line is checked.


def test_every_spoken_line_carries_its_verdict() -> None:
    [episode] = run([a_case()], Puppet(), max_turns=3)
    for line in lines(episode):
        checks = NurseLineCheck if line["actor"] == "nurse" else LineCheck
        assert line["verification"]["passed"] is True
        assert set(line["verification"]["verdict"]) == set(checks.model_fields)
        assert line["verification"]["rejected"] == []
    [without] = run([a_case()], None, max_turns=3)
    assert not any("verification" in line for line in without["history"])


def test_a_patient_s_line_is_held_against_the_case_and_a_nurse_s_against_what_it_learnt() -> None:
    judge = Puppet()
    run([a_case(diagnoses=["Zebra disease"])], judge, max_turns=2)
    assert "Zebra" not in json.dumps([request.messages for request in judge.asked("nurse_check")])
    assert "Zebra" in json.dumps([request.messages for request in judge.asked("patient_check")])


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_a_rejected_line_goes_back_with_the_reason_then_the_master_writes_it(allowed: int) -> None:
    judge, nurse, patient = Puppet(rejects=1.0), Puppet(), Puppet()
    [episode] = run([a_case()], judge, nurse, patient, max_turns=2, max_regenerations=allowed)
    assert episode["status"] == "ok"
    for line in lines(episode):
        seen = line["verification"]
        assert seen["passed"] is seen["edited"] is True
        assert len(seen["rejected"]) == allowed + 1
        assert all(draft["utterance"] and not draft["verdict"]["plausible"] for draft in seen["rejected"])
        assert line["utterance"].startswith("Could you say a little more")
    spoken = [line["text"] for line in episode["transcript"]]
    assert all(text.startswith("Could you say a little more") for text in spoken)
    for llm, purpose in ((nurse, "nurse"), (patient, "patient")):
        again = [request for request in llm.requests if request.name.draft]
        assert {request.name.draft for request in again} == set(range(1, allowed + 1))
        for request in again:
            assert "say it more plainly" in request.messages[-1]["content"]
            assert request.name.purpose == purpose
    assert score(episode)["edited_utterances"] == len(lines(episode))


def test_a_line_that_is_mended_passes_and_its_rejected_draft_is_kept() -> None:
    bad = LineCheck(
        critique="too long", faithful=True, informative=True, in_persona=True, plausible=False, no_names=True
    )

    def verdict(request: Request) -> Answer:
        first = request.name.draft == 0 and request.name.purpose == "patient_check"
        fields = bad.model_dump() | ({"one_question": True} if request.output_type is NurseLineCheck else {})
        return request.output_type(**fields | ({} if first else {"plausible": True}))

    patient = Puppet()
    [episode] = run([a_case()], Answering({LineCheck: verdict}), patient=patient, max_turns=2)
    for line in lines(episode, "patient"):
        seen = line["verification"]
        assert (seen["passed"], len(seen["rejected"]), "edited" in seen) == (True, 1, False)
        assert seen["rejected"][0]["utterance"] != line["utterance"]
        assert seen["rejected"][0]["verdict"]["critique"] == "too long"
    summary = summarize([episode])
    assert summary["regenerated_rate"] == pytest.approx(2 / len(lines(episode)), abs=1e-6)
    assert summary["flagged_rate"] == 0


def test_a_shown_dialogue_marks_lines_that_did_not_simply_pass() -> None:
    [edited] = run([a_case()], Puppet(rejects=1.0), max_turns=1)
    [fine] = run([a_case()], Puppet(), max_turns=1)
    assert as_text(edited).count("[written by the dialogue master]") == len(lines(edited))
    assert not any(mark in as_text(fine) for mark in ("[written", "[not checked]", "[failed"))


def test_a_redraft_keeps_what_the_nurse_does_and_changes_only_how_it_is_said() -> None:
    nurse = Puppet()
    [episode] = run([a_case()], Puppet(rejects=0.5), nurse, max_turns=4)
    firsts = {(r.name.turn, r.name.step): r for r in nurse.requests if r.name.draft == 0}
    again = [r for r in nurse.requests if r.name.draft]
    assert again
    for request in again:
        first = nurse.answer(firsts[request.name.turn, request.name.step])
        second = nurse.answer(request)
        assert [json.loads(second)[key] for key in ("action", "vital")] == [
            json.loads(first)[key] for key in ("action", "vital")
        ]
    assert [step["action"] for step in episode["trace"]].count("end") == 1


def test_words_that_are_too_few_to_enter_the_dialogue_are_not_checked() -> None:
    judge = Puppet()
    nurse = Answering({NurseStep: lambda request: _first(request, "Your arm?")})
    run([a_case()], judge, nurse, max_turns=1)
    drafts = [request.view.draft for request in judge.asked("nurse_check") if request.view.action == "check_vital"]  # type: ignore[union-attr]
    assert drafts == []


def _first(request: Request, words: str) -> NurseStep:
    view: Any = request.view
    action = next(name for name in ("check_vital", "utterance", "end") if name in view.actions)
    return request.output_type(  # type: ignore[return-value]
        understood="noted" if view.heard_reply else None,
        action=action,
        vital=view.vitals_open[0] if action == "check_vital" else None,
        utterance=words,
        red_flags=[],
        explanation="because",
        triage=3,
        confidence="low",
    )


# The triage record.


def test_each_exchange_is_read_from_its_words_alone_and_fills_the_record() -> None:
    judge = Puppet()
    [episode] = run([a_case(diagnoses=["Zebra"])], judge, max_turns=5, min_questions=5)
    replies = lines(episode, "patient")
    readings = judge.asked("reading")
    assert len(readings) == len(replies) == 5
    for request in readings:
        assert isinstance(request.view, ReadingView)
        asked = json.dumps(request.messages)
        for marker in ("Syncope", "Zebra", "painting the ceiling"):
            assert marker not in asked
    assert all(line["information"]["conveyed"] == "it hurts" for line in replies)
    assert [len(line["information"]["recorded"]) for line in replies] == [2, 2, 2, 1, 0]
    merged: dict[str, str] = {}
    for line in replies:
        merged |= line["information"]["recorded"]
    assert {name: episode["record"][name] for name in RECORD_FIELDS} == merged
    assert set(episode["record"]) == {*RECORD_FIELDS, "vitals"}


def test_the_nurse_sees_the_record_with_its_gaps_and_may_end_only_once_it_has_none() -> None:
    nurse = Puppet(rejects=0)
    [episode] = run([a_case()], Puppet(), nurse, max_turns=8, min_questions=1)
    views: list[Any] = [request.view for request in nurse.requests]
    for view in views:
        assert set(view.record) == set(RECORD_FIELDS)
        if UNKNOWN in view.record.values() and view.questions_left:
            assert "end" not in view.actions
    assert episode["num_turns"] >= 4
    silent = Answering({Reading: Reading(conveyed="nothing", record=RecordNews(**dict.fromkeys(RECORD_FIELDS)))})
    [long] = run([a_case()], silent, max_turns=6, min_questions=1)
    assert (long["num_turns"], long["end_reason"]) == (6, "max_turns")


@pytest.mark.parametrize("words", ["none", "declined to say", "None.", "Declined to say"])
def test_none_and_declined_to_say_are_information(words: str) -> None:
    told = Reading(conveyed="said no", record=RecordNews(**dict.fromkeys(RECORD_FIELDS, words)))
    eager = Answering({NurseStep: lambda request: _eager(request)})
    [episode] = run([a_case()], Answering({Reading: told}), eager, max_turns=8, min_questions=3)
    assert episode["num_turns"] == 3
    assert episode["record"]["allergies"] == words


@pytest.mark.parametrize(
    "words", ["unknown", "n/a", "N/A.", "unchanged", "Unchanged.", "no change", "same as before", "-", ""]
)
def test_words_for_no_answer_never_overwrite_information(words: str) -> None:
    def read(request: Request) -> Reading:
        first = request.name.turn == 0
        return Reading(
            conveyed="so", record=RecordNews(**dict.fromkeys(RECORD_FIELDS, "penicillin" if first else words))
        )

    [episode] = run([a_case()], Answering({Reading: read}), max_turns=3)
    assert {episode["record"][name] for name in RECORD_FIELDS} == {"penicillin"}
    assert all(line["information"]["recorded"] == {} for line in lines(episode, "patient")[1:])


def _eager(request: Request) -> NurseStep:
    step = _first(request, "How are you feeling now?")
    view: Any = request.view
    return step.model_copy(update={"action": "end" if "end" in view.actions else "utterance", "vital": None})


# A master that fails.


class Failing(Puppet):
    """Answers one purpose with no JSON, or not at all."""

    def __init__(self, purpose: str, *, answers: bool, rejects: float = 0.0) -> None:
        super().__init__(rejects=rejects)
        self.purpose, self.answers = purpose, answers

    def complete(self, requests: list[Request]) -> list[str | Exception]:
        self.requests += requests
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> str | Exception:
        if request.name.purpose != self.purpose:
            return self.answer(request)
        return "I would rather not." if self.answers else BackendError("no answer in time", kind="timeout")


PURPOSES = ("in_situ", "script", "appearance", "nurse_check", "patient_check", "patient_edit", "nurse_edit", "reading")


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize("purpose", PURPOSES)
def test_a_master_that_fails_never_ends_a_dialogue_and_its_failure_is_kept(
    purpose: str, answers: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("triagesim.calls.PAUSE", 0)
    monkeypatch.setattr("triagesim.limits.DEAD_AFTER", 10**6)
    judge = Failing(purpose, answers=answers, rejects=1.0 if "edit" in purpose else 0.0)
    options: dict[str, Any] = {"features": Features(appearance=True), "max_turns": 2, "journal": tmp_path}
    [episode] = run([a_case()], judge, **options)
    assert episode["status"] == "ok"
    assert episode["num_turns"] >= 1
    failed = json.dumps(episode)
    match purpose:
        case "in_situ" | "script" | "appearance":
            assert episode[f"{purpose}_error"]
        case "nurse_check" | "patient_check":
            seen = [line["verification"] for line in lines(episode, purpose.split("_")[0])]
            assert all(item["passed"] is None and item["error"] for item in seen)
        case "nurse_edit" | "patient_edit":
            seen = [line["verification"] for line in lines(episode, purpose.split("_")[0])]
            assert all(item["passed"] is False and item["error"] and "edited" not in item for item in seen)
            assert score(episode)["flagged_utterances"] == len(seen)
        case "reading":
            assert all(line["information"]["conveyed"] is None for line in lines(episode, "patient"))
            assert episode["record"]["pain"] == UNKNOWN
    healthy = Puppet(rejects=judge.rejects)
    [again] = run([a_case()], healthy, **options)
    assert json.dumps(again) == failed
    assert healthy.requests == []


# Speculation.


@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 10**6), rejects=st.sampled_from([0.0, 0.3, 1.0]), appearance=st.booleans())
def test_episodes_are_the_same_whatever_runs_ahead(seed: int, rejects: float, appearance: bool) -> None:
    cases = [a_case(f"c{number}", vitals={**VITALS, "o2sat": None}) for number in range(3)]
    made = []
    for speculation in SPECULATIONS:
        llm = Async(rejects=rejects)
        options: dict[str, Any] = {"seed": seed, "max_turns": 3, "features": Features(appearance=appearance)}
        episodes = run(cases, llm, llm, llm, speculation=speculation, **options)
        made.append(sorted(json.dumps(episode) for episode in episodes))
        for episode in episodes:
            jsonschema.validate(episode, json.loads((SCHEMAS / "episode.schema.json").read_text(encoding="utf-8")))
            assert episode["status"] == "ok"
    assert made[0] == made[1] == made[2]


def test_what_runs_ahead_is_asked_before_the_check_it_depends_on_is_answered() -> None:
    def order(speculation: str) -> list[str]:
        llm = Async()
        run([a_case()], llm, llm, llm, speculation=speculation, max_turns=2)
        return [request.name.purpose for request in llm.requests]

    calls = {speculation: Counter(order(speculation)) for speculation in SPECULATIONS}
    assert calls["off"] == calls["reading"] == calls["full"]

    class Waiting(Async):
        """Answers a check only once something was asked after it."""

        async def complete(self, request: Request) -> Any:  # type: ignore[override]
            before = len(self.requests)
            answer = await super().complete(request)
            checked = request.name.purpose in ("patient_check", "nurse_check")
            while checked and getattr(request.view, "action", "") != "end" and len(self.requests) == before + 1:
                await asyncio.sleep(0)
            return answer

    llm = Waiting()
    [episode] = run([a_case()], llm, llm, llm, speculation="full", max_turns=2)
    assert episode["status"] == "ok"


def test_a_discarded_answer_is_in_the_journal_and_in_no_episode(tmp_path: Path) -> None:
    used, asked = {}, {}
    for speculation in SPECULATIONS:
        llm = Async(rejects=0.5)
        options: dict[str, Any] = {"journal": tmp_path / speculation, "speculation": speculation, "max_turns": 4}
        [episode] = run([a_case()], llm, llm, llm, **options)
        used[speculation] = sum(role["calls"] for role in episode["usage"].values())
        asked[speculation] = len(llm.requests)
        again = Async()
        assert run([a_case()], again, again, again, **options) == [episode]
        assert again.requests == []
    assert used["off"] == used["reading"] == used["full"] == asked["off"]
    assert asked["full"] > asked["off"]


@pytest.mark.parametrize("local", [True, False])
def test_a_discarded_call_in_flight_is_waited_for_where_it_is_paid_anyway(local: bool, tmp_path: Path) -> None:
    class Slow(Async):
        """Answers a reading only once its check was answered and acted upon."""

        async def complete(self, request: Request) -> Any:  # type: ignore[override]
            answer = await super().complete(request)
            if request.name.purpose == "reading":
                for _ in range(60):
                    await asyncio.sleep(0)
            return answer

    llm = Slow(rejects=0.5)
    llm.local = local  # type: ignore[misc]
    options: dict[str, Any] = {"speculation": "reading", "max_turns": 4, "journal": tmp_path}
    [episode] = run([a_case(provenance="synthetic")], llm, llm, llm, **options)
    used = sum(role["calls"] for role in episode["usage"].values())
    kept = {record["key"] for record in read_records(tmp_path) if "key" in record}
    assert len(llm.requests) > used
    assert len(kept) == (used if local else len(llm.requests))


def test_a_run_that_must_stop_keeps_the_answers_that_are_on_their_way(tmp_path: Path) -> None:
    class Broke(Async):
        """Has no credit left at one call, while the other calls are on their way."""

        async def complete(self, request: Request) -> Any:  # type: ignore[override]
            if request.name.episode == "c0-0" and request.name.turn == 1:
                self.requests.append(request)
                raise StopRun("402: no credit")
            answer = await super().complete(request)
            for _ in range(20):
                await asyncio.sleep(0)
            return answer

    llm = Broke()
    with pytest.raises(StopRun, match="no credit"):
        run([a_case(f"c{number}") for number in range(5)], None, llm, llm, journal=tmp_path)
    kept = [record for record in read_records(tmp_path) if "key" in record]
    assert len(kept) == len(llm.requests) - 1


def test_nothing_runs_ahead_of_an_engine_without_room() -> None:
    class Full(Async):
        spare = False

    llm, free = Full(rejects=0.5), Async(rejects=0.5)
    run([a_case()], llm, llm, llm, speculation="full", max_turns=4)
    run([a_case()], free, free, free, speculation="off", max_turns=4)
    assert Counter(r.name.purpose for r in llm.requests) == Counter(r.name.purpose for r in free.requests)


# Features without a model of their own.


def test_belief_state_shows_the_nurse_its_last_assessment() -> None:
    nurse = Puppet()
    [episode] = run([a_case()], None, nurse, features=Features(belief_state=True), max_turns=2)
    views: list[Any] = [request.view for request in nurse.requests]
    assert views[0].belief is None
    for view, step in zip(views[1:], episode["trace"], strict=False):
        assert view.belief.triage == step["triage"]


def test_feedback_is_traced_labelled_and_kept_out_of_prompts_without_the_feature() -> None:
    nurse = Puppet()
    [episode] = run([a_case(acuity=2)], None, nurse, features=Features(feedback=True), max_turns=3)
    assert "feedback" not in episode["trace"][0]
    for before, step in zip(episode["trace"], episode["trace"][1:], strict=False):
        away = abs(before["triage"] - 2)
        assert step["feedback"].split(",")[0] == ("hot", "warm", "cold")[min(away, 2)]
    assert "leaked label" in episode["labels"]["feedback"]
    plain = Puppet()
    run([a_case()], None, plain, max_turns=3)
    assert all(request.view.feedback is None for request in plain.requests)  # type: ignore[union-attr]


# The agenda as the master.


def test_the_agenda_plays_all_three_roles() -> None:
    agenda = Agenda()
    cases = [a_case(f"c{number}", chief_complaint=text) for number, text in enumerate(("Chest pain", "Ankle injury"))]
    for episode in run(cases, agenda, agenda, agenda, features=Features(appearance=True)):
        assert episode["status"] == "ok", episode["error"]
        assert episode["patient_script"]["story"]
        checked = [line["verification"]["passed"] for line in lines(episode)]
        assert all(checked)
        assert episode["record"]["pain"] != UNKNOWN
        assert set(episode["labels"]) == {"nurse", "patient", "judge"}


def test_a_dead_endpoint_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triagesim.calls.PAUSE", 0)

    class Dead(Puppet):
        def complete(self, requests: list[Request]) -> list[str | Exception]:
            self.requests += requests
            return [BackendError("connection refused", kind="connection") for _ in requests]

    with pytest.raises(StopRun, match="answered none of the last 5 calls"):
        run([a_case(f"c{number}") for number in range(40)], None, Dead(), max_turns=1, concurrency=4)


def test_a_script_type_holds_what_the_seed_names() -> None:
    named = {
        "story",
        "onset",
        "quality",
        "associated_symptoms",
        "pertinent_negatives",
        "medical_history",
        "medications",
    }
    assert named | {"allergies"} <= set(Script.model_fields)


# What an adversary found.


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("speculation", SPECULATIONS)
def test_a_redraft_with_the_same_words_pays_nothing_twice_and_replays_alike(
    speculation: str, local: bool, tmp_path: Path
) -> None:
    class Stubborn(Async):
        """Says the same in every draft; its readings depend on when they were asked for."""

        def answer(self, request: Request) -> str:
            if request.output_type is PatientReply:
                return PatientReply(utterance="It hurts.", disclosed="pain").model_dump_json()
            if request.output_type is Reading:
                news = dict.fromkeys(RECORD_FIELDS) | {"pain": f"told {len(self.requests)}"}
                return Reading(conveyed="so", record=RecordNews(**news)).model_dump_json()
            return super().answer(request)

    llm = Stubborn(rejects=0.5)
    llm.local = local  # type: ignore[misc]
    options: dict[str, Any] = {"max_turns": 4, "journal": tmp_path, "max_regenerations": 2}
    cases = [a_case(provenance="synthetic")]
    first = run(cases, llm, llm, llm, speculation=speculation, **options)
    paid = Counter(record["key"] for record in read_records(tmp_path) if "key" in record)
    assert max(paid.values()) == 1
    again = Async()
    assert run(cases, again, again, again, speculation="off", **options) == first
    assert again.requests == []


def test_blank_words_never_enter_a_dialogue() -> None:
    blank = Answering({Edit: '{"utterance": " "}'}, rejects=1.0)
    [episode] = run([a_case()], blank, max_turns=1)
    assert all(line["text"].strip() for line in episode["transcript"])
    assert not any(line["verification"].get("edited") for line in lines(episode))
    patient = Answering({PatientReply: '{"utterance": " \u2028 ", "disclosed": ""}'})
    [episode] = run([a_case()], None, patient=patient, max_turns=1)
    assert (episode["status"], episode["num_turns"]) == ("error", 0)


def test_a_script_that_fails_late_changes_no_order_in_the_artifact() -> None:
    orders = set()
    for speculation in SPECULATIONS:
        for slow in ("script", "appearance"):

            class Late(Async):
                async def complete(self, request: Request, slow: str = slow) -> Any:  # type: ignore[override]
                    if request.name.purpose == slow:
                        for _ in range(30):
                            await asyncio.sleep(0)
                    if request.name.purpose == "script":
                        raise AnswerError("too long")
                    return await super().complete(request)

            llm = Late()
            options: dict[str, Any] = {"features": Features(appearance=True), "max_turns": 1}
            [episode] = run([a_case()], llm, llm, llm, speculation=speculation, **options)
            orders.add(tuple(episode))
    assert len(orders) == 1


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ({"max_regenerations": 0.5}, "max_regenerations is 0.5"),
        ({"max_turns": 1.5}, "max_turns is 1.5"),
        ({"features": {"appearance": True}}, "expected Features"),
        ({"skip": "c0-0"}, "are lists"),
        ({"sampling": {"nurse": {"max_tokens": "many"}}}, "max_tokens is 'many'"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_one_clear_error(wrong: dict[str, Any], part: str) -> None:
    with pytest.raises(InputError, match=part):
        run([a_case()], Puppet(), **wrong)
