"""The dialogues that every driver is measured on: who does what, how long each answer is, and the answer itself.

Made from nothing but the standard library, so that the peer's interpreter can import it too. The same call (episode,
kind, turn, step, draft) has the same length, verdict and words whichever driver asks it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple
from zlib import crc32

Dialect = Literal["ours", "peer"]

HERE = Path(__file__).resolve().parent
TURNS = 4
#: One line in so many is rejected.
REJECTED_ONE_IN = 10
#: Characters of an answer's JSON that a token stands for, in SmolLM2's vocabulary.
CHARS_A_TOKEN = 4.2
#: What the nurse does in a turn before it asks; no other turn has more than the question.
BEFORE_QUESTION = {0: "check_vital", 1: "log_red_flag"}
VITALS = ("temperature", "heartrate", "resprate", "o2sat", "sbp")

#: Every answer's length in tokens: mean, median, 90th percentile and longest, as measured on real dialogues.
MEASURED = {
    "in_situ": (46, 43, 67, 104),
    "script": (243, 237, 259, 354),
    "nurse": (106, 105, 131, 201),
    "nurse_check": (72, 69, 100, 123),
    "patient": (49, 47, 72, 103),
    "patient_check": (71, 64, 101, 229),
    "reading": (116, 117, 133, 148),
    "edit": (49, 47, 72, 103),
}
TRACE = HERE / "trace_lengths.json"

_UNKNOWN = "needs information from patient"
_RECORD = (
    "chief_complaint",
    "onset_and_course",
    "pain",
    "associated_symptoms",
    "relevant_history",
    "medications",
    "allergies",
)
_SPEECH = (
    "the pain began after lunch and has moved to my right side since then it is worse when I cough or walk "
    "no fever that I know of but I felt cold in the night and could not eat breakfast my doctor gave me tablets for "
    "blood pressure last year there was some dizziness on the stairs it comes in waves every ten minutes or so"
)
_WORDS = _SPEECH.split()
_CHECKS = ("faithful", "informative", "in_persona", "plausible", "no_names")


class Call(NamedTuple):
    """One call of an episode.

    Attributes:
        kind: a key of `MEASURED`; `edit` for either speaker's line.
        turn: replies so far.
        step: of the nurse within the turn; 0 for everybody else.
        draft: 0, or 1 for a line written anew.
    """

    episode: str
    kind: str
    turn: int = 0
    step: int = 0
    draft: int = 0

    @property
    def number(self) -> int:
        """What everything random about the call comes from."""
        return crc32("/".join(map(str, self)).encode())


def action(turn: int, step: int) -> str:
    """What the nurse does at a step."""
    if turn >= TURNS:
        return "end"
    return BEFORE_QUESTION[turn] if step == 0 and turn in BEFORE_QUESTION else "utterance"


def rejected(call: Call) -> bool:
    """Whether a check says no; a closing line always passes."""
    return call.turn < TURNS and call.number % REJECTED_ONE_IN == 0


def trace() -> dict[str, list[int]]:
    """The published lengths in tokens, by kind."""
    lengths: dict[str, list[int]] = json.loads(TRACE.read_text(encoding="utf-8"))
    return lengths


def sampled_trace(count: int = 256, seed: int = 0) -> dict[str, list[int]]:
    """Lengths with the measured mean, median, 90th percentile and maximum: a piecewise linear quantile function.

    Its lowest value is what the mean leaves.
    """
    drawn = {}
    for number, (kind, (mean, median, high, longest)) in enumerate(MEASURED.items()):
        rest = 0.2 * (median + high) + 0.05 * (high + longest)
        low = max(4 * (mean - rest) - median, 8)
        points = ((0.0, low), (0.5, median), (0.9, high), (1.0, longest))
        values = [round(_between(points, (place + 0.5) / count)) for place in range(count)]
        random.Random(seed + number).shuffle(values)
        drawn[kind] = values
    return drawn


def _between(points: tuple[tuple[float, float], ...], share: float) -> float:
    """The quantile at `share` of a function through (share, value) points."""
    for (left, low), (right, high) in pairwise(points):
        if share <= right:
            return low + (high - low) * (share - left) / (right - left)
    return points[-1][1]


def length(call: Call, lengths: dict[str, list[int]]) -> int:
    """Tokens of a call's answer."""
    return lengths[call.kind][call.number % len(lengths[call.kind])]


def answer(call: Call, tokens: int, dialect: Dialect, speaker: str = "nurse") -> str:
    """A valid answer of about so many tokens, as JSON.

    Args:
        speaker: whose line is edited, for an edit.
    """
    chance = random.Random(call.number)
    shape = _shape(call, dialect, speaker)
    room = tokens * CHARS_A_TOKEN - len(json.dumps(shape, separators=(",", ":")))
    slots = list(_slots(shape))
    for holder, key, share in slots:
        holder[key] = _prose(chance, max(int(room * share), 16))
    return json.dumps(shape, separators=(",", ":"))


def _shape(call: Call, dialect: Dialect, speaker: str) -> dict[str, Any]:
    """The answer's keys and fixed values; a number stands for free text and its share of the length."""
    match call.kind:
        case "in_situ":
            return {"reasoning": 1.0, "conversation": True}
        case "script":
            return _script()
        case "nurse":
            return _step(call)
        case "nurse_check" | "patient_check":
            passed = not rejected(call)
            names = (*_CHECKS, "one_question") if call.kind == "nurse_check" else _CHECKS
            return {"critique": 1.0, **{name: passed or name != "plausible" for name in names}}
        case "patient":
            return {"utterance": 0.6, "disclosed": 0.4}
        case "reading":
            told = _RECORD[2 * call.turn : 2 * call.turn + 2]
            blank = _UNKNOWN if dialect == "peer" else None
            return {"conveyed": 0.4, "record": {name: 0.3 if name in told else blank for name in _RECORD}}
        case _:
            more = {"disclosed": 0.4} if dialect == "peer" and speaker == "patient" else {}
            return {"utterance": 1.0 - sum(more.values()), **more}


def _step(call: Call) -> dict[str, Any]:
    doing = action(call.turn, call.step)
    heard = call.step == 0 and call.turn > 0
    spoken = doing in ("utterance", "end")
    return {
        "understood": 0.25 if heard else None,
        "action": doing,
        "vital": VITALS[call.turn] if doing == "check_vital" else None,
        "utterance": 0.25 if spoken else None,
        "red_flags": ["pain that wakes the patient"] if doing == "log_red_flag" else [],
        "explanation": 1.0 - 0.25 * heard - 0.25 * spoken,
        "triage": 3,
        "confidence": "medium",
    }


def _script() -> dict[str, Any]:
    texts = ("onset", "duration", "location", "quality", "severity")
    lists = ("associated_symptoms", "pertinent_negatives", "medical_history", "medications", "allergies")
    return {
        "cognitive_state": "alert",
        "intoxication": "none",
        "story": 0.35,
        **dict.fromkeys(texts, 0.07),
        **{name: [0.04] for name in lists},
        "social_history": 0.1,
    }


def _slots(shape: Any) -> Iterator[tuple[Any, Any, float]]:
    """Where free text goes: (holder, key, share of the length)."""
    for key, value in shape.items() if isinstance(shape, dict) else enumerate(shape):
        if isinstance(value, float):
            yield shape, key, value
        elif isinstance(value, dict | list):
            yield from _slots(value)


def _prose(chance: random.Random, size: int) -> str:
    """Words of about so many characters."""
    words = chance.choices(_WORDS, k=size // 5 + 2)
    return " ".join(words)[:size].strip().capitalize() + "."


class Pool:
    """Ready answers of every kind, so that an instant backend does next to nothing.

    Args:
        size: how many of each, with lengths from the trace.
    """

    def __init__(self, dialect: Dialect, size: int = 64) -> None:
        lengths = trace()
        self._size = size
        self._texts: dict[tuple[Any, ...], list[str]] = {}
        for kind in MEASURED:
            for turn in range(TURNS + 1):
                for step in range(2 if kind == "nurse" else 1):
                    calls = [Call(f"pool-{number}", kind, turn, step) for number in range(size)]
                    self._texts[kind, turn, step] = [answer(call, length(call, lengths), dialect) for call in calls]
        for kind in ("nurse_check", "patient_check"):
            for passed in (True, False):
                calls = [Call(f"pool-{number}", kind) for number in range(20 * size)]
                alike = [call for call in calls if rejected(call) != passed][:size]
                self._texts[kind, passed] = [answer(call, length(call, lengths), dialect) for call in alike]
        edits = [Call(f"pool-{number}", "edit") for number in range(size)]
        self._texts["patient_edit",] = [answer(call, length(call, lengths), dialect, "patient") for call in edits]

    def take(self, call: Call, number: int, speaker: str = "nurse") -> str:
        """An answer to a call; `number` chooses among the ready ones."""
        if call.kind.endswith("check"):
            texts = self._texts[call.kind, not rejected(call)]
        elif call.kind == "edit" and speaker == "patient":
            texts = self._texts["patient_edit",]
        else:
            texts = self._texts[call.kind, call.turn, call.step]
        return texts[number % len(texts)]


def cases(count: int) -> list[dict[str, Any]]:
    """Rows of the shipped vignettes, without their scripts, so that a dialogue master has to write them."""
    lines = (HERE.parent / "resources/cases/vignettes.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    whole = [row for row in rows if all(row["vitals"].get(name) is not None for name in VITALS)]
    if count > len(whole):
        raise ValueError(f"{count} cases were asked for; {len(whole)} vignettes have every vital sign")
    return [{key: value for key, value in row.items() if key != "script"} for row in whole[:count]]


if __name__ == "__main__":
    TRACE.write_text(json.dumps(sampled_trace(), separators=(",", ":")) + "\n", encoding="utf-8")
