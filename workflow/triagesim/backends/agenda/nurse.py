"""The agenda nurse: from what it has learnt to the next action and the words for it.

The persona shapes which questions are asked, how many and in what words. The level comes from `triage` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from triagesim.answers import MAX_FLAGS, Action, Confidence, NurseStep
from triagesim.artifact import UNKNOWN
from triagesim.backends.agenda.knowledge import Exchange, believe
from triagesim.backends.agenda.triage import needs
from triagesim.backends.agenda.understanding import read, says, told
from triagesim.backends.agenda.wording import Picker, join, start_large, start_small, stop
from triagesim.cases import Vital
from triagesim.resources import load_yaml
from triagesim.views import NurseView

# Questions before the nurse closes, by workload, for patients who can wait and for those who are taken in at once.
_QUESTIONS = {"quiet": (11, 7), "busy": (9, 6), "overloaded": (8, 5)}
_RISK = {"risk_averse": 1, "balanced": 0, "risk_accepting": -1}
# How many of a presentation's dangers are asked about.
_DANGERS = {"risk_averse": 6, "balanced": 4, "risk_accepting": 2}
_AFTER_RECORD = {
    "chief_complaint": "complaint_more",
    "onset_and_course": "onset",
    "pain": "pain_score",
    "associated_symptoms": "associated",
    "relevant_history": "history",
    "medications": "medications",
    "allergies": "allergies",
}
_QUOTE_WORDS = 14


def step(view: NurseView, seed: int) -> NurseStep:
    """The nurse's next step; it depends on the view and the seed alone."""
    return _Nurse(view, seed).step()


@dataclass(frozen=True)
class _Ask:
    """A question to put: an item of `nurse.yaml`, and why it is put again if it is."""

    item: str
    again: str | None = None


class _Nurse:
    def __init__(self, view: NurseView, seed: int) -> None:
        self._view = view
        self._beliefs = believe(view)
        self._data: dict[str, Any] = load_yaml("agenda/nurse.yaml")
        self._picker = Picker(seed, [line.text for line in view.dialogue if line.speaker == "nurse"])
        self._trait = view.persona.get

    def step(self) -> NurseStep:
        """Measure, log, ask or end, in this order of preference."""
        vital = self._vital()
        flags = self._flags()
        if vital is not None:
            return self._answer("check_vital", vital=vital, utterance=self._measuring(vital))
        if flags and "log_red_flag" in self._view.actions:
            return self._answer("log_red_flag", flags=flags)
        if "end" in self._view.actions and (self._ready() or "utterance" not in self._view.actions):
            return self._answer("end", utterance=self._closing())
        if "utterance" in self._view.actions:
            return self._answer("utterance", utterance=self._question())
        return self._otherwise(flags)

    def _otherwise(self, flags: list[str]) -> NurseStep:
        """When neither a question nor the end is open: whatever is."""
        if "check_vital" in self._view.actions:
            vital = self._view.vitals_open[0]
            return self._answer("check_vital", vital=vital, utterance=self._measuring(vital))
        return self._answer("log_red_flag", flags=flags or ["none noticed"])

    def _answer(
        self,
        action: Action,
        *,
        vital: Vital | None = None,
        utterance: str | None = None,
        flags: list[str] | None = None,
    ) -> NurseStep:
        heard = self._view.heard_reply and self._beliefs.exchanges
        return NurseStep(
            understood=_understood(self._beliefs.exchanges[-1]) if heard else "" if self._view.heard_reply else None,
            action=action,
            vital=vital,
            utterance=utterance,
            red_flags=flags or [],
            explanation=self._explanation(),
            triage=self._beliefs.verdict.level,
            confidence=self._confidence(),
        )

    # -- measuring and logging

    def _vital(self) -> Vital | None:
        """The vital sign to take now, if one is due."""
        if "check_vital" not in self._view.actions or not self._beliefs.exchanges:
            return None
        due = [name for name in self._wanted if name in self._view.vitals_open]
        if not due:
            return None
        if self._beliefs.verdict.level == 1 and "end" in self._view.actions:
            return None
        relaxed = "utterance" in self._view.actions and self._view.questions_left > len(due) + 1
        if relaxed and not self._ready() and self._beliefs.verdict.level > 2 and self._picker.chance(0.15):
            return None
        return due[0]

    @cached_property
    def _wanted(self) -> tuple[Vital, ...]:
        """What is to be measured, the presentation's most telling first."""
        order: list[Vital] = list(self._beliefs.presentation["vitals"])
        wanted = set(needs(self._view.algorithm))
        if self._trait("algorithm_reliance") == "protocol_driven" or self._trait("risk_attitude") == "risk_averse":
            wanted |= set(order)
        elif self._trait("algorithm_reliance") == "intuition_led":
            wanted |= set(order[:2])
        else:
            wanted |= set(order[:4])
        if self._beliefs.verdict.level <= 2:
            wanted |= {*order[:4], "sbp"}
        if {"fever", "chills", "confusion", "immunosuppressed"} & self._beliefs.evidence.keys():
            wanted.add("temperature")
        order += [name for name in needs(self._view.algorithm) if name not in order] + ["temperature"]
        return tuple(name for name in dict.fromkeys(order) if name in wanted)

    def _measuring(self, vital: Vital) -> str | None:
        if self._trait("workload") == "overloaded" and self._picker.chance(0.3):
            return None
        return self._picker.pick(self._data["measure"][vital])

    def _flags(self) -> list[str]:
        logged = {" ".join(flag.lower().split()) for flag in self._view.red_flags}
        return [flag for flag in dict.fromkeys(self._beliefs.verdict.flags) if flag not in logged][:MAX_FLAGS]

    # -- ending

    def _ready(self) -> bool:
        """Whether enough is known to close."""
        beliefs, view = self._beliefs, self._view
        if beliefs.verdict.level == 1:
            return True
        if any(name in view.vitals_open for name in needs(view.algorithm)) and view.questions_left > 0:
            return False
        if self._follow_up() is not None:
            return False
        later, sooner = _QUESTIONS[self._trait("workload", "busy")]
        target = (sooner if beliefs.verdict.level == 2 else later) + _RISK[self._trait("risk_attitude", "balanced")]
        if beliefs.presentation.get("brief") and beliefs.verdict.level > 3:
            target -= 2
        return view.questions_asked >= target or next(self._agenda(), None) is None

    def _closing(self) -> str:
        level = self._beliefs.verdict.level
        closing = self._data["closing"]
        where = closing["now" if level == 1 else "soon" if level == 2 else "wait" if level == 3 else "minor"]
        then = closing["calm" if level <= 2 else "watch"]
        first, second = self._picker.pick(where), self._picker.pick(then)
        if self._trait("workload") == "overloaded" and level > 1:
            return first
        return f"{first} {second}"

    # -- asking

    def _question(self) -> str:
        if self._view.infer is not None:
            return self._picker.pick(self._data["infer"][self._view.infer])
        ask = self._follow_up() or self._record_gap() or next((_Ask(name) for name in self._agenda()), None)
        if ask is None:
            return self._one_more()
        text = self._worded(ask.item, simple=ask.again == "lost")
        if text is None:
            return self._one_more()
        if ask.again is not None:
            return f"{self._picker.pick(self._data['again'][ask.again])} {text}"
        return self._led(text) if self._beliefs.exchanges else text

    def _worded(self, item: str, *, simple: bool = False) -> str | None:
        """An item in words that weren't used yet, in the form that suits the nurse; None when all were.

        With `simple`, the shortest.
        """
        entry = self._data["items"][item]
        style = self._trait("questioning_style", "mixed")
        urgent = self._beliefs.verdict.level == 1 and self._beliefs.exchanges
        forms = {"open_facilitative": ["open"], "closed_directive": ["closed"]}.get(style, ["open", "closed"])
        if urgent or simple:
            forms = ["closed"]
        named = self._picker.pick(self._beliefs.presentation["it"])
        for form in (*forms, "open", "closed"):
            fresh = self._picker.fresh([text.replace("{it}", named) for text in entry[form]])
            if form == forms[0] and len(forms) > 1:
                fresh = self._picker.fresh([t.replace("{it}", named) for f in forms for t in entry[f]])
            if fresh:
                return start_large(min(fresh, key=len) if simple else fresh[0])
        return None

    def _led(self, text: str) -> str:
        """A question with what is said before it: an answer to a feeling, an echo, a short word, or nothing."""
        response = self._response()
        if response:
            return f"{response} {text}"
        if self._beliefs.verdict.level == 1:
            return text
        workload = self._trait("workload", "busy")
        news = self._news()
        if news and self._trait("self_report_credence") == "accepting" and self._picker.chance(0.5):
            return f"{self._picker.pick(self._data['lead']['echo']).replace('{says}', news)} {text}"
        if self._picker.chance({"quiet": 0.6, "busy": 0.45}.get(workload, 0.35)):
            fresh = self._picker.fresh(self._data["lead"][workload])
            return f"{fresh[0]} {text}" if fresh else text
        if self._picker.chance(0.25) and text.split(" ", 1)[0] in _JOINABLE:
            return f"{self._picker.pick(self._data['joiner'])} {start_small(text)}"
        return text

    def _response(self) -> str | None:
        """What the nurse says to a feeling that the last reply showed."""
        manner = self._trait("emotional_responsiveness", "acknowledging")
        cue = _cue(self._beliefs.exchanges[-1])
        if manner == "task_focused" or cue is None or self._beliefs.verdict.level == 1:
            return None
        fresh = self._picker.fresh(self._data["respond"][manner][cue])
        return fresh[0] if fresh and self._picker.chance(0.8) else None

    def _news(self) -> str | None:
        """One symptom that the last reply brought, as a nurse says it back."""
        last = self._beliefs.exchanges[-1]
        before = {name for exchange in self._beliefs.exchanges[:-1] for name in exchange.learnt.present}
        fresh = sorted(name for name in last.learnt.present - before if name in _SAID_BACK)
        return says(fresh[self._picker.place(len(fresh))]) if fresh else None

    def _one_more(self) -> str:
        """A question for when the agenda is done and the interview can't end yet."""
        asked = self._beliefs.asked_topics
        entries = [e for e in self._data["more"] if e["topic"] not in asked] or self._data["more"]
        fresh = self._picker.fresh([entry["says"] for entry in entries])
        fresh = fresh or self._picker.fresh([entry["says"] for entry in self._data["more"]])
        return self._led(fresh[0] if fresh else f"{self._picker.pick(self._data['again']['vague'])} Anything to add?")

    def _follow_up(self) -> _Ask | None:
        """The last question again, when its answer was none; each once, and only a few in an interview."""
        exchanges = self._beliefs.exchanges
        if not exchanges or self._beliefs.verdict.level == 1:
            return None
        last = exchanges[-1]
        item = self._item_of(last)
        why = self._unanswered(last, item)
        if item is None or why is None:
            return None
        times = sum(self._item_of(exchange) == item for exchange in exchanges)
        repeats = len(exchanges) - len({self._item_of(exchange) or exchange.asked for exchange in exchanges})
        if times > (2 if why == "lost" else 1) or repeats >= 3:
            return None
        return _Ask("complaint_more" if item == "complaint" else item, why)

    def _unanswered(self, last: Exchange, item: str | None) -> str | None:
        """Why the last question stays open: declined, lost, unsure or vague; None when it was answered."""
        entry = self._data["items"].get(item or "", {})
        if last.kind in ("declined", "lost"):
            return last.kind
        if self._trait("expertise") == "novice":
            return None
        topic = entry.get("topic")
        if topic == "pain_score":
            return "vague" if last.score is None and not read(last.reply).mentioned & _PAIN_WORDS else None
        if topic == "complaint" and not last.learnt.present:
            return "vague"
        if last.kind == "unsure" and topic == "onset":
            return "unsure"
        return None

    def _item_of(self, exchange: Exchange) -> str | None:
        """The item that a question put."""
        question = exchange.question
        if question.strong == "complaint":
            return "complaint"
        best = None
        for name, entry in self._data["items"].items():
            asks = set(entry.get("asks", ()))
            if asks and asks <= question.findings and not question.strong:
                best = name if best is None or len(asks) > len(self._data["items"][best]["asks"]) else best
        return best or next((n for n, e in self._data["items"].items() if e.get("topic") in question.topics), None)

    def _record_gap(self) -> _Ask | None:
        """With a dialogue master: what its record still lacks once the nurse's own agenda is done."""
        if not self._view.record or not self._ready() or "end" in self._view.actions:
            return None
        for field, item in _AFTER_RECORD.items():
            if self._view.record.get(field) == UNKNOWN:
                asked = sum(self._item_of(exchange) == item for exchange in self._beliefs.exchanges)
                if asked < 2:
                    return _Ask(item, "vague" if asked else None)
        return None

    def _agenda(self) -> Iterator[str]:
        """The items still to ask, in the order in which this nurse asks them."""
        for item in dict.fromkeys(self._order()):
            if not self._done(item):
                yield item

    def _done(self, item: str) -> bool:
        """Whether an item was asked, or is answered already by what was told."""
        entry = self._data["items"][item]
        beliefs = self._beliefs
        if item == "complaint":
            return bool(beliefs.exchanges)
        if item == "pregnant" and (self._view.facts.gender != "female" or self._view.facts.age_group == "older"):
            return True
        if item == "testicle" and self._view.facts.gender == "female":
            return True
        if item in ("onset", "happened") and any(told("onset", exchange.reply) for exchange in beliefs.exchanges):
            return True
        if item == "pain_score" and beliefs.pain is not None:
            return True
        if item == "location" and "location" in beliefs.asked_topics:
            return True
        asks = entry.get("asks")
        if asks:
            known = beliefs.evidence.keys() | beliefs.absent
            return bool(set(asks) & beliefs.evidence.keys()) or set(asks) <= known or set(asks) <= beliefs.asked
        return entry["topic"] in beliefs.asked_topics

    def _order(self) -> list[str]:
        presentation = self._beliefs.presentation
        dangers: list[str] = presentation["ask"][: _DANGERS[self._trait("risk_attitude", "balanced")]]
        more: list[str] = [name for name in presentation["ask"] if name not in dangers] + presentation["then"]
        if self._trait("risk_attitude") == "risk_averse":
            dangers, more = dangers + more[:2], more[2:]
        pain = ["pain_score"] if presentation.get("pain") else []
        onset = [] if presentation.get("brief") else [presentation.get("onset", "onset")]
        if pain and self._trait("self_report_credence") != "accepting":
            pain = [*pain, "function"]
        about = ["history", "medications", "allergies"]
        rest = self._rest(more)
        if self._beliefs.verdict.level == 1:
            return ["complaint", *dangers[:2], "allergies", *onset, *dangers, *about]
        if self._beliefs.verdict.level == 2:
            return ["complaint", *dangers[:1], *onset, *pain, *dangers, "allergies", "medications", "history", *rest]
        if self._trait("expertise") == "novice":
            return ["complaint", *onset, *pain, "associated", *about, *dangers, *rest]
        if self._trait("algorithm_reliance") == "protocol_driven":
            return ["complaint", *dangers, *pain, *onset, *about, *rest]
        if self._trait("expertise") == "expert" or presentation.get("onset_first"):
            return ["complaint", *dangers[:2], *onset, *pain, *dangers, *about, *rest]
        return ["complaint", *onset, *dangers[:1], *pain, *dangers, *about, *rest]

    def _rest(self, more: list[str]) -> list[str]:
        """What is asked when there is time."""
        workload = self._trait("workload", "busy")
        extra = {"quiet": ["associated", "course", *more, "relief"], "busy": ["associated", *more[:2], "course"]}
        rest = extra.get(workload, more[:1])
        return ["course", *rest] if self._trait("questioning_style") == "open_facilitative" else rest

    # -- reasoning

    def _explanation(self) -> str:
        beliefs = self._beliefs
        if not beliefs.exchanges:
            return "Nothing is known yet, so the level is a cautious guess."
        reason = start_large(beliefs.verdict.reason)
        grounds = [f"“{_quote(quote)}” ({join(names)})" for quote, names in self._quotes()]
        measured = [f"{_NAMES[name]} {text}" for name, text in self._view.vitals.items() if text is not None]
        missing = [_NAMES[name] for name, text in self._view.vitals.items() if text is None]
        parts = [f"Heard: {'; '.join(grounds)}." if grounds else "Nothing telling was said yet."]
        if measured:
            parts.append(f"Measured: {', '.join(measured)}.")
        if missing:
            parts.append(f"Not measurable: {', '.join(missing)}.")
        return " ".join([stop(reason), *parts])

    def _quotes(self) -> list[tuple[str, list[str]]]:
        """Up to three replies with what they affirmed, those behind the warning signs first."""
        by_reply: dict[str, list[str]] = {}
        flags = set(self._beliefs.verdict.flags)
        for finding in sorted(self._beliefs.evidence, key=lambda name: says(name) not in flags):
            if finding in _SAID_BACK or says(finding) in flags:
                by_reply.setdefault(self._beliefs.evidence[finding], []).append(says(finding))
        return [(reply, names[:3]) for reply, names in list(by_reply.items())[:3]]

    def _confidence(self) -> Confidence:
        beliefs = self._beliefs
        if not beliefs.evidence or beliefs.unclear:
            return "low"
        measured = all(self._view.vitals.get(name) for name in needs(self._view.algorithm))
        if beliefs.verdict.settled and beliefs.verdict.point != "D":
            return "high"
        return "high" if measured and len(beliefs.exchanges) >= 6 else "medium"


_NAMES = {
    "temperature": "temperature",
    "heartrate": "heart rate",
    "resprate": "breathing",
    "o2sat": "oxygen saturation",
    "sbp": "systolic pressure",
}
_JOINABLE = frozenset(
    [
        "Do",
        "Does",
        "Did",
        "Have",
        "Has",
        "Is",
        "Are",
        "Any",
        "Was",
        "When",
        "Where",
        "How",
        "What",
        "Which",
        "Could",
        "Can",
    ]
)
_PAIN_WORDS = frozenset({"severe_pain", "mild_pain"})
_SAID_BACK = frozenset(
    name
    for name, entry in load_yaml("agenda/lexicon.yaml")["findings"].items()
    if entry.get("kind", "symptom") == "symptom" and not entry.get("sensitive") and name not in _PAIN_WORDS
)


def _cue(exchange: Exchange) -> str | None:
    """The feeling that a reply shows: fear, pain, low or anger."""
    if told("fear", exchange.reply):
        return "fear"
    if exchange.learnt.present & {"suicidal", "low_mood", "self_harm", "assault", "sexual_assault"}:
        return "low"
    if told("anger", exchange.reply):
        return "anger"
    if (exchange.score or 0) >= 7 or "severe_pain" in exchange.learnt.present:
        return "pain"
    return None


def _understood(exchange: Exchange) -> str:
    """A one-sentence reading of a reply."""
    parts = []
    present = [says(name) for name in sorted(exchange.learnt.present) if name in _SAID_BACK]
    absent = [says(name) for name in sorted(exchange.learnt.absent) if name in _SAID_BACK]
    named = [says(name) for name in sorted(exchange.question.findings) if name in _SAID_BACK]
    if exchange.score is not None:
        parts.append(f"puts the pain at {exchange.score:g} of 10")
    if present:
        parts.append(f"reports {join(present[:4])}")
    if absent:
        parts.append(f"denies {join(absent[:4], 'or')}")
    if not parts and exchange.kind in ("yes", "no") and named:
        parts.append(f"{'confirms' if exchange.kind == 'yes' else 'denies'} {join(named[:3], 'or')}")
    if parts:
        return stop(f"The patient {join(parts)}")
    if exchange.kind == "declined":
        return "The patient would rather not say."
    if exchange.kind == "lost":
        return "The patient didn't understand the question."
    if exchange.kind == "unsure":
        return "The patient isn't sure."
    return f"The patient says: “{_quote(exchange.reply)}”"


def _quote(text: str) -> str:
    words = text.replace("“", "'").replace("”", "'").split()
    return " ".join(words[:_QUOTE_WORDS]) + (" …" if len(words) > _QUOTE_WORDS else "")
