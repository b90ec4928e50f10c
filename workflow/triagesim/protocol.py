"""The rules of an episode as a pure state machine: what the nurse may do at a step, and what that changes."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace

from triagesim.answers import MAX_FLAGS, Action, NurseStep
from triagesim.cases import VITALS, Vital

#: What the nurse says while it measures enters the dialogue from this many words on.
SPOKEN_WORDS = 3

_SCALES = r"(?:esi|ats|emergency severity index|australasian triage scale|triage|level|category|cat\.?|acuity|priority)"
_BETWEEN = r"(?:level|category|score|number|no\.?|is|of|as|a|at|will|be|was|you|i|we|gave|given|have|are)"
_NUMBERS = r"(?:[1-5]|one|two|three|four|five|ii|iii|iv)"
_GAP = r"[\s:#()\[\]*_-]*"
# A number of ten, or up to another one, is a score or a range that the patient is asked for.
_SCORED = r"\s*(?:to\b|(?:out of|of|/)\s*(?:10|ten)\b)"
_LEVEL = re.compile(
    rf"\b{_SCALES}(?:{_GAP}\b{_BETWEEN}(?!\w)){{0,6}}{_GAP}(?<![a-z]){_NUMBERS}\b(?!{_SCORED})"
    rf"|\b(?:esi|ats|cat)[1-5]\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class NurseState:
    """Where the interview stands, as far as it decides what may come next.

    Attributes:
        known: vitals that were measured or found unmeasurable.
        checked, flagged: whether this turn's vital was taken and its red flags were logged.
        infer: an unmeasurable vital that the next question must be about.
        record_open: whether the triage record has gaps; always False without a dialogue master.
    """

    max_turns: int
    min_questions: int
    asked: int = 0
    known: frozenset[Vital] = frozenset()
    checked: bool = False
    flagged: bool = False
    infer: Vital | None = None
    record_open: bool = False
    ended: bool = False

    @property
    def questions_left(self) -> int:
        """How many questions the nurse may still ask."""
        return self.max_turns - self.asked


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a step may do."""

    actions: tuple[Action, ...]
    vitals: tuple[Vital, ...]


def allowed(state: NurseState) -> Allowed:
    """The actions and vitals that a step may choose from; nothing only once the episode has ended.

    An unmeasurable vital forces a question while questions are left. After the last question the nurse may check
    any open vital and log red flags once, then ends.
    """
    if state.ended:
        return Allowed((), ())
    if state.infer is not None and state.questions_left > 0:
        return Allowed(("utterance",), ())
    actions: list[Action] = []
    vitals = tuple(name for name in VITALS if name not in state.known)
    if vitals and (state.questions_left == 0 or not state.checked):
        actions.append("check_vital")
    if not state.flagged:
        actions.append("log_red_flag")
    if state.questions_left > 0:
        actions.append("utterance")
    if _may_end(state):
        actions.append("end")
    return Allowed(tuple(actions), vitals if "check_vital" in actions else ())


def apply(state: NurseState, step: NurseStep, *, measurable: bool = True) -> NurseState:
    """The state after a step that was allowed; `measurable` says whether the case holds the vital that was checked."""
    match step.action:
        case "check_vital":
            assert step.vital is not None
            infer = None if measurable else step.vital
            return replace(state, known=state.known | {step.vital}, checked=True, infer=infer)
        case "log_red_flag":
            return replace(state, flagged=True)
        case "utterance":
            return replace(state, asked=state.asked + 1, checked=False, flagged=False, infer=None)
        case "end":
            return replace(state, ended=True)


def new_flags(logged: list[str], found: list[str]) -> list[str]:
    """The flags of `found` that aren't logged yet, without regard to case and spaces, as first written."""
    seen = {_plain(flag) for flag in logged}
    fresh: list[str] = []
    for flag in found:
        plain = _plain(flag)
        if plain and plain not in seen and len(fresh) < MAX_FLAGS:
            seen.add(plain)
            fresh.append(flag.strip())
    return fresh


def is_spoken(step: NurseStep) -> bool:
    """Whether a step's words enter the dialogue."""
    words = (step.utterance or "").split()
    match step.action:
        case "utterance" | "end":
            return True
        case "check_vital":
            return len(words) >= SPOKEN_WORDS
        case "log_red_flag":
            return False


def names_level(text: str) -> bool:
    """Whether a line tells the patient its triage level ("level 3", "ESI two", "category 2")."""
    return _LEVEL.search(unicodedata.normalize("NFKC", text)) is not None


def _may_end(state: NurseState) -> bool:
    if state.questions_left <= 0:
        return True
    return state.asked >= min(state.min_questions, state.max_turns) and not state.record_open


def _plain(flag: str) -> str:
    return " ".join(flag.lower().split())
