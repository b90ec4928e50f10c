"""One episode: the nurse acts until it speaks, the patient replies, until the nurse ends triage.

With a dialogue master, it prepares the case, checks every line before it enters the dialogue, and reads every exchange.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

from triagesim.answers import NurseStep, PatientReply, nurse_step
from triagesim.appearance import banned_in
from triagesim.artifact import RECORD_FIELDS, SPEAKING_RATE, UNKNOWN, Episode
from triagesim.calls import Answered, Caller, GivenUp, Question, Seat
from triagesim.cases import Case, PatientScript, Scale
from triagesim.config import Features, Speculation
from triagesim.journal import Journal
from triagesim.jsonl import digest
from triagesim.judging import Appearance, Edit, InSitu, LineCheck, NurseLineCheck, Reading, Script
from triagesim.limits import Limits
from triagesim.personas import Persona, Pool, for_case
from triagesim.prompts import prompts_digest
from triagesim.protocol import Allowed, allowed, is_spoken, names_level
from triagesim.requests import Answer, Role, Usage
from triagesim.resources import load_yaml
from triagesim.talk import Scene, Talk
from triagesim.views import EditView, Redraft

#: Bumped by hand whenever the same answers would give another episode; `tests/test_episode.py` says when.
PROTOCOL = 1
#: Printed wherever a figure of such an episode stands.
LEAKED = "leaked label: the nurse was told how near its level is"

# What the dialogue master's preparation leaves in an artifact, in the order that it has there.
_PREPARED = ("in_situ", "in_situ_error", "script_error", "appearance", "appearance_error")

A = TypeVar("A", bound=Answer)


@dataclass(frozen=True)
class Setup:
    """What the episodes of a run have in common.

    Attributes:
        seats: nurse and patient; with a dialogue master also judge and script, both the judge's backend.
        speculation: how far calls run ahead of the checks; it changes no artifact.
    """

    seats: dict[Role, Seat]
    nurse_personas: Pool
    patient_personas: Pool
    pairing: str = ""
    algorithm: Scale | None = None
    max_turns: int = 12
    min_questions: int = 3
    max_regenerations: int = 1
    seed: int = 0
    features: Features = field(default_factory=Features)
    speculation: Speculation = "auto"

    @property
    def judged(self) -> bool:
        """Whether there is a dialogue master."""
        return "judge" in self.seats

    @cached_property
    def ahead(self) -> Literal["off", "reading", "full"]:
        """`speculation` decided: `auto` goes all the way only where a discarded call costs no money."""
        if self.speculation != "auto":
            return self.speculation
        free = all(seat.backend.local and seat.backend.reads == "messages" for seat in self.seats.values())
        return "full" if free else "reading"

    @cached_property
    def specification(self) -> dict[str, Any]:
        """Everything that can change a result."""
        reading = {role: seat for role, seat in self.seats.items() if seat.backend.reads == "messages"}
        return {
            "protocol": PROTOCOL,
            "models": {role: seat.identity for role, seat in self.seats.items()},
            "prompts": {role: prompts_digest(seat.prompts, role) for role, seat in reading.items()},
            "nurse_personas": self.nurse_personas.digest,
            "patient_personas": self.patient_personas.digest,
            "algorithm": self.algorithm,
            "max_turns": self.max_turns,
            "min_questions": self.min_questions,
            "max_regenerations": self.max_regenerations if self.judged else None,
            "seed": self.seed,
            "features": self.features.model_dump(),
            "appearance": digest(load_yaml("appearance.yaml")) if self.features.appearance else None,
        }

    @cached_property
    def spec(self) -> str:
        """The specification's hash, which every artifact carries."""
        return digest(self.specification)[:16]


async def play(case: Case, number: int, setup: Setup, journal: Journal, limits: Limits) -> dict[str, Any]:
    """Run episode `number` of a case and return its artifact (`triagesim.artifact.Episode` as a dict).

    Raises:
        StopRun: asking on is pointless or not allowed; nothing is lost.
    """
    name = f"{case.case_id}-{number}"
    nurse = setup.nurse_personas.draw(setup.seed, name)
    drawn = setup.patient_personas.draw(setup.seed, name, case.gender, case.age_group)
    patient = for_case(drawn, gender=case.gender, age_group=case.age_group, seed=setup.seed, episode_id=name)
    caller = Caller(case, name, setup.seats, journal, setup.seed, limits)
    interview = Interview(case, nurse, patient, setup, caller)
    status: dict[str, Any] = {"status": "ok", "error": None, "skip_reason": case.why_not()}
    try:
        if not status["skip_reason"]:
            status["skip_reason"] = await interview.run()
        if status["skip_reason"]:
            status["status"] = "skipped"
    except GivenUp as failure:
        status |= {"status": "error", "error": str(failure)}
        journal.give_up(case.case_id, name, str(failure), anew=failure.bad_answers)
    finally:
        interview.stop()
    episode = {"episode_id": name, "pairing": setup.pairing, **status, **interview.artifact()}
    if status["status"] == "error":
        episode["end_reason"] = "error"
    Episode.model_validate(episode)
    if status["status"] != "error":
        journal.finish(case.case_id, name, status["status"], setup.spec, episode["usage"])
    return episode


@dataclass(frozen=True)
class _Speaker(Generic[A]):
    """Whose line the master checks, and how.

    Attributes:
        words: a draft's words, and a draft with other ones.
        check: what asks for the check of a draft (number).
        again: asks for another draft (number) with the reason.
        ahead: begins what comes next if a draft passes.
    """

    role: Literal["nurse", "patient"]
    words: Callable[[A], str]
    with_words: Callable[[A, str], A]
    check: Callable[[A, int], Question[Any]]
    again: Callable[[Redraft, int], Awaitable[A]]
    ahead: Callable[[A], Coroutine[Any, Any, None]]


# What is asked at each place: by the dialogue itself, and by what runs ahead of it. Both have to ask the same.


def _script(scene: Scene) -> Question[Script]:
    return Question("script", scene.script_view(), Script, "script")


def _appearance(scene: Scene, banned: tuple[str, ...] = (), draft: int = 0) -> Question[Appearance]:
    return Question("judge", scene.appearance_view(banned), Appearance, "appearance", draft=draft)


def _step(
    talk: Talk, options: Allowed | None = None, redraft: Redraft | None = None, draft: int = 0
) -> Question[NurseStep]:
    options = options or allowed(talk.state)
    form = nurse_step(options.actions, options.vitals, talk.heard)
    return Question("nurse", talk.nurse_view(options, redraft), form, "nurse", talk.turn, talk.step, draft)


def _nurse_check(talk: Talk, step: NurseStep, draft: int = 0) -> Question[NurseLineCheck]:
    view = talk.nurse_line_view(step)
    return Question("judge", view, NurseLineCheck, "nurse_check", talk.turn, talk.step, draft)


def _reply(talk: Talk, redraft: Redraft | None = None, draft: int = 0) -> Question[PatientReply]:
    return Question("patient", talk.patient_view(redraft), PatientReply, "patient", talk.turn, draft=draft)


def _patient_check(talk: Talk, reply: PatientReply, draft: int = 0) -> Question[LineCheck]:
    view = talk.patient_line_view(reply.utterance)
    return Question("judge", view, LineCheck, "patient_check", talk.turn, talk.step, draft)


def _reading(talk: Talk, reply: PatientReply) -> Question[Reading]:
    return Question("judge", talk.reading_view(reply.utterance), Reading, "reading", talk.turn)


class Interview:
    """The dialogue as it grows, and the books that are kept of it."""

    def __init__(self, case: Case, nurse: Persona, patient: Persona, setup: Setup, caller: Caller) -> None:
        self._setup = setup
        self._caller = caller
        self._nurse = nurse
        self._patient = patient
        algorithm: Scale = setup.algorithm or case.acuity_scale or "esi"
        scene = Scene.of(case, algorithm, nurse, patient, setup.features)
        self._talk = Talk.begin(scene, setup.max_turns, setup.min_questions, judged=setup.judged)
        self._script: PatientScript | None = case.script
        self._script_task: asyncio.Task[None] | None = None
        self._prepared: dict[str, Any] = {}
        self._words = 0
        self._history: list[dict[str, Any]] = []
        self._trace: list[dict[str, Any]] = []
        self._reply: dict[str, Any] | None = None
        self._usage: dict[str, tuple[int, Usage]] = {}

    async def run(self) -> str | None:
        """Talk until the nurse ends triage; the reason, if there would be no conversation.

        Raises:
            GivenUp: a call of the nurse or the patient keeps failing; what was said so far is kept.
        """
        if self._setup.judged and (reason := await self._prepare()):
            return reason
        try:
            while not self._talk.state.ended:
                step = await self._nurse_acts()
                if step.action == "utterance":
                    await self._patient_replies()
        except GivenUp:
            await self._have_script()  # or what is kept of the episode would depend on which call was faster
            raise
        await self._have_script()
        return None

    def stop(self) -> None:
        """End what still runs for this episode."""
        self._caller.drop()
        if self._script_task is not None:
            self._caller.leave(self._script_task, local=self._caller.is_local("script"))

    # The dialogue master's preparation.

    async def _prepare(self) -> str | None:
        """In-situ check, then script and appearance; the reason, if there would be no conversation."""
        scene = self._talk.scene
        if self._setup.ahead == "full":
            self._foresee_beginning()
        try:
            in_situ = await self._ask(Question("judge", scene.arrival_view(), InSitu, "in_situ"))
            self._prepared["in_situ"] = in_situ.model_dump()
            if not in_situ.conversation:
                return in_situ.reasoning
        except GivenUp as failure:
            self._prepared["in_situ_error"] = str(failure)
        if self._script is None:
            self._script_task = _quietly(self._write_script())
        if self._setup.features.appearance:
            await self._look()
        return None

    def _foresee_beginning(self) -> None:
        """Begin what the preparation and the nurse's first step will ask, as far as the engines have room."""
        scene, features = self._talk.scene, self._setup.features
        if self._script is None:
            self._foresee(_script(scene))
        if features.appearance:
            self._foresee(_appearance(scene))
        else:
            self._foresee(_step(self._talk))

    async def _write_script(self) -> None:
        try:
            script = await self._ask(_script(self._talk.scene))
            self._script = PatientScript.model_validate(script.model_dump())
        except GivenUp as failure:
            self._prepared["script_error"] = str(failure)

    async def _have_script(self) -> None:
        """Wait for the script; the patient answers from it from now on."""
        if self._script_task is None:
            return
        await self._script_task
        self._script_task = None
        if self._script is not None:
            self._talk = replace(self._talk, scene=self._talk.scene.with_script(self._script))

    async def _look(self) -> None:
        """What can be seen of the patient; an answer that says more than that is asked for once more."""
        scene = self._talk.scene
        banned: tuple[str, ...] = ()
        try:
            for draft in range(2):
                appearance = await self._ask(_appearance(scene, banned, draft))
                banned = banned_in(appearance, scene.master_facts)
                if not banned:
                    self._prepared["appearance"] = appearance.model_dump()
                    self._talk = replace(self._talk, scene=scene.with_appearance(appearance))
                    return
            self._prepared["appearance_error"] = f"says more than can be seen: {', '.join(banned)}"
        except GivenUp as failure:
            self._prepared["appearance_error"] = str(failure)

    # The nurse.

    async def _nurse_acts(self) -> NurseStep:
        """One step of the nurse, checked if it is spoken, written down."""
        step = await self._ask(_step(self._talk))
        verification = None
        if self._setup.judged and is_spoken(step):
            step, verification = await self._verify(step, self._nurse_speaker(step))
        self._write_step(step, verification)
        return step

    def _nurse_speaker(self, first: NurseStep) -> _Speaker[NurseStep]:
        """The nurse at this step: what it does stays as in its first draft, how it says it may change."""
        talk = self._talk
        options = Allowed((first.action,), (first.vital,) if first.vital and first.action == "check_vital" else ())

        async def again(redraft: Redraft, draft: int) -> NurseStep:
            return await self._ask(_step(talk, options, redraft, draft))

        async def ahead(step: NurseStep) -> None:
            if self._setup.ahead != "full" or step.action == "end":
                return
            after = talk.acted(step)
            if step.action == "utterance":
                await self._foresee_reply(after)
            else:
                await self._foresee_step(after)

        return _Speaker(
            "nurse",
            lambda step: (step.utterance or "").strip() if is_spoken(step) else "",
            lambda step, text: step.model_copy(update={"utterance": text}),
            lambda step, draft: _nurse_check(talk, step, draft),
            again,
            ahead,
        )

    # The patient.

    async def _patient_replies(self) -> None:
        """One reply, checked, read and written down."""
        await self._have_script()
        talk = self._talk
        reply = await self._ask(_reply(talk))
        verification = None
        if self._setup.judged:
            reply, verification = await self._verify(reply, self._patient_speaker())
        conveyed, news = None, None
        if self._setup.judged:
            try:
                reading = await self._ask(_reading(talk, reply))
                conveyed, news = reading.conveyed, talk.recorded(reading)
            except GivenUp:
                pass
        self._write_reply(reply, verification, conveyed, news)
        self._talk = talk.replied(reply.utterance).noted(news or {})

    def _patient_speaker(self) -> _Speaker[PatientReply]:
        talk = self._talk

        async def again(redraft: Redraft, draft: int) -> PatientReply:
            return await self._ask(_reply(talk, redraft, draft))

        async def ahead(reply: PatientReply) -> None:
            begun = None if self._setup.ahead == "off" else self._foresee(_reading(talk, reply))
            if begun is not None and self._setup.ahead == "full":
                reading = (await asyncio.shield(begun)).value
                await self._foresee_step(talk.replied(reply.utterance).noted(talk.recorded(reading)))

        return _Speaker(
            "patient",
            lambda reply: reply.utterance.strip(),
            lambda reply, text: reply.model_copy(update={"utterance": text}),
            lambda reply, draft: _patient_check(talk, reply, draft),
            again,
            ahead,
        )

    # The dialogue master's check of a line.

    async def _verify(self, draft: A, speaker: _Speaker[A]) -> tuple[A, dict[str, Any]]:
        """The line that enters the dialogue, and what the master made of it and of the drafts before."""
        rejected: list[dict[str, Any]] = []
        while True:
            try:
                verdict = await self._judge(draft, speaker, len(rejected))
            except GivenUp as failure:
                return draft, {"passed": None, "error": str(failure), "rejected": rejected}
            seen = {**verdict.__dict__}  # as `model_dump` of what is flat, in a tenth of its time
            if verdict.passed:
                return draft, {"passed": True, "verdict": seen, "rejected": rejected}
            self._caller.drop()
            words = speaker.words(draft)
            if len(rejected) >= self._setup.max_regenerations:
                break
            rejected.append({"utterance": words, "verdict": seen})
            draft = await speaker.again(Redraft(draft=words, critique=verdict.critique), len(rejected))
            if not speaker.words(draft):  # it says nothing any more, so nothing is left to check
                return draft, {"passed": None, "rejected": rejected}
        checked = speaker.check(draft, 0)
        view = EditView(line=checked.view, critique=verdict.critique)
        try:
            edit = await self._ask(Question("judge", view, Edit, f"{speaker.role}_edit", checked.turn, checked.step))
        except GivenUp as failure:
            return draft, {"passed": False, "verdict": seen, "rejected": rejected, "error": str(failure)}
        rejected.append({"utterance": words, "verdict": seen})
        edited = speaker.with_words(draft, edit.utterance.strip())
        return edited, {"passed": True, "verdict": seen, "rejected": rejected, "edited": True}

    async def _judge(self, draft: A, speaker: _Speaker[A], number: int) -> LineCheck:
        """The verdict on a draft; what comes next if it passes runs beside it."""
        ahead = None if self._setup.ahead == "off" else _quietly(speaker.ahead(draft))
        try:
            return await self._ask(speaker.check(draft, number))
        finally:
            if ahead is not None:
                ahead.cancel()

    async def _foresee_reply(self, talk: Talk) -> None:
        """Begin the patient's reply to a line that isn't checked yet, then the reply's own check and reading."""
        if self._script_task is not None:
            await asyncio.shield(self._script_task)
            if self._script is not None:
                talk = replace(talk, scene=talk.scene.with_script(self._script))
        begun = self._foresee(_reply(talk))
        if begun is not None:
            reply = (await asyncio.shield(begun)).value
            self._foresee(_patient_check(talk, reply))
            self._foresee(_reading(talk, reply))

    async def _foresee_step(self, talk: Talk) -> None:
        """Begin the nurse's next step after a line that isn't checked yet, then the check of what it says."""
        begun = self._foresee(_step(talk))
        if begun is not None:
            step = (await asyncio.shield(begun)).value
            if is_spoken(step):
                self._foresee(_nurse_check(talk, step))

    async def _ask(self, question: Question[A]) -> A:
        """Ask, and count the answers that it took."""
        answered = await self._caller.ask(question)
        before = self._usage.get(question.role)
        if before is None:
            self._usage[question.role] = (answered.calls, answered.usage)
        else:
            self._usage[question.role] = (before[0] + answered.calls, before[1].plus(answered.usage))
        return answered.value

    def _foresee(self, question: Question[A]) -> asyncio.Task[Answered[A]] | None:
        """Begin what will probably be asked, if the engine has room; None if it hasn't."""
        return self._caller.foresee(question) if self._caller.spare(question.role) else None

    # The books.

    def artifact(self) -> dict[str, Any]:
        """Everything that the episode is, but for its name and status."""
        setup, talk = self._setup, self._talk
        case = talk.scene.case
        return {
            "case": case.model_dump(mode="json"),
            "algorithm": talk.scene.algorithm,
            "models": {role: seat.backend.model for role, seat in setup.seats.items() if role != "script"},
            "labels": self._labels(),
            "features": setup.features.model_dump(),
            "nurse_persona": self._nurse.model_dump(mode="json"),
            "patient_persona": self._patient.model_dump(mode="json"),
            "patient_script": self._script and self._script.model_dump(mode="json"),
            **{key: self._prepared[key] for key in _PREPARED if key in self._prepared},
            "end_reason": ("nurse_end" if talk.state.questions_left > 0 else "max_turns") if talk.state.ended else None,
            "final_triage": self._trace[-1]["triage"] if self._trace else None,
            "num_turns": talk.turn,
            "transcript": [{**line.__dict__} for line in talk.dialogue],
            "history": self._history,
            "trace": self._trace,
            "red_flags": list(talk.flags),
            "record": {**(talk.record or dict.fromkeys(RECORD_FIELDS, UNKNOWN)), "vitals": dict(talk.vitals or {})},
            "usage": {role: {"calls": n, **usage._asdict()} for role, (n, usage) in sorted(self._usage.items())},
            "spec": setup.spec,
        }

    def _labels(self) -> dict[str, str]:
        seats = {role: seat.backend.label for role, seat in self._setup.seats.items() if role != "script"}
        labels = {str(role): label for role, label in seats.items() if label}
        return {**labels, "feedback": LEAKED} if self._setup.features.feedback else labels

    def _write_step(self, step: NurseStep, verification: dict[str, Any] | None) -> None:
        """Write down a nurse step and what it does."""
        before = self._talk
        if self._reply is not None:
            self._reply["information"]["understood"] = step.understood
            self._reply = None
        vital = step.vital if step.action == "check_vital" else None
        flags = list(step.red_flags) if step.action == "log_red_flag" else []
        feedback = before.feedback()
        shown = {} if feedback is None else {"feedback": feedback}
        self._trace.append({"turn": before.turn, **step.__dict__, "vital": vital, "red_flags": flags, **shown})
        if is_spoken(step):
            self._write_nurse_line(step, verification)
        self._talk = before.acted(step)
        if vital is not None:
            value = (self._talk.vitals or {})[vital]
            unmeasured = {"measurable": False} if value is None else {}
            self._write_event({"event": "vital", "name": vital, "value": value, **unmeasured})
        if step.action == "end":
            self._write_event({"event": "triage_end", "triage": step.triage})

    def _write_nurse_line(self, step: NurseStep, verification: dict[str, Any] | None) -> None:
        text = (step.utterance or "").strip()
        line: dict[str, Any] = {"turn": self._talk.turn, "actor": "nurse", "utterance": text, "t": self._time()}
        line["triage"] = step.triage
        if step.action != "utterance":
            line["action"] = step.action
        elif self._talk.state.infer:
            line["infers"] = self._talk.state.infer
        if step.action == "end" and names_level(text):
            line["in_transcript"] = False
        else:
            self._words += len(text.split())
        if verification is not None:
            line["verification"] = verification
        self._history.append(line)

    def _write_reply(
        self,
        reply: PatientReply,
        verification: dict[str, Any] | None,
        conveyed: str | None,
        news: dict[str, str] | None,
    ) -> None:
        text = reply.utterance.strip()
        information = {"disclosed": reply.disclosed, "conveyed": conveyed, "recorded": news, "understood": None}
        self._reply = {
            "turn": self._talk.turn,
            "actor": "patient",
            "utterance": text,
            "t": self._time(),
            "information": information,
        }
        if verification is not None:
            self._reply["verification"] = verification
        self._history.append(self._reply)
        self._words += len(text.split())

    def _write_event(self, what: dict[str, Any]) -> None:
        self._history.append({"turn": self._talk.turn, "actor": "system", **what, "t": self._time()})

    def _time(self) -> float:
        return round(self._words * 60 / SPEAKING_RATE, 1)


def _quietly(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task whose failure is nobody's concern unless it is awaited."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return task
