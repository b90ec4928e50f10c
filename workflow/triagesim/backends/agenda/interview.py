"""How the agenda nurse leads an interview: what to measure, what to ask next, when enough is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from triagesim.artifact import UNKNOWN
from triagesim.backends.agenda.knowledge import Beliefs, Exchange, checks
from triagesim.backends.agenda.triage import needs
from triagesim.backends.agenda.understanding import read, told
from triagesim.cases import Vital
from triagesim.resources import load_yaml
from triagesim.views import NurseView

# Questions before the nurse closes, by workload, for patients who can wait and for those who are taken in at once.
_QUESTIONS = {"quiet": (10, 7), "busy": (8, 6), "overloaded": (7, 5)}
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
# How often any question may be put again in an interview.
_REPEATS = 3
# A measured temperature, in °C, after which nobody is asked about fever.
_FEVER = 38.0
_PAIN_WORDS = frozenset({"severe_pain", "mild_pain"})


@dataclass(frozen=True)
class Ask:
    """A question to put: an item of `nurse.yaml`, and why it is put again (`declined` …) if it is."""

    item: str
    again: str | None = None


class Plan:
    """The interview from here on. The persona decides how much is asked and in which order, never the level."""

    def __init__(self, view: NurseView, beliefs: Beliefs) -> None:
        self._view = view
        self._beliefs = beliefs
        self._items: dict[str, Any] = load_yaml("agenda/nurse.yaml")["items"]
        self._trait = view.persona.get

    @cached_property
    def next_question(self) -> Ask | None:
        """What to ask now; None when nothing is left."""
        return self._follow_up or self._record_gap() or next((Ask(name) for name in self._agenda()), None)

    @cached_property
    def ready(self) -> bool:
        """Whether enough is known to close."""
        beliefs, view = self._beliefs, self._view
        if beliefs.verdict.level == 1:
            return True
        if any(name in view.vitals_open for name in needs(view.algorithm)) and view.questions_left > 0:
            return False
        if self._follow_up is not None or (view.questions_left > 0 and self._pending_checks()):
            return False
        later, sooner = _QUESTIONS[self._trait("workload", "busy")]
        target = (sooner if beliefs.verdict.level == 2 else later) + _RISK[self._trait("risk_attitude", "balanced")]
        if beliefs.presentation.get("brief") and beliefs.verdict.level > 3:
            target -= 2
        return view.questions_asked >= target or next(self._agenda(), None) is None

    def _pending_checks(self) -> list[str]:
        """Items that would tell whether a measurement out of range is this patient's usual state."""
        return [item for check, item in checks() if check.holds(self._beliefs.facts) and not self._done(item)]

    @cached_property
    def wanted(self) -> tuple[Vital, ...]:
        """What is to be measured, the presentation's most telling first."""
        order: list[Vital] = list(self._beliefs.presentation["vitals"])
        wanted = set(needs(self._view.algorithm))
        if self._trait("algorithm_reliance") == "protocol_driven" or self._trait("risk_attitude") == "risk_averse":
            wanted |= set(order)
        elif self._trait("algorithm_reliance") == "intuition_led":
            wanted |= set(order[:2])
        else:
            wanted |= set(order[:4])
        if self._beliefs.verdict.flags:
            wanted |= {*order[:4], "sbp"}
        if {"fever", "chills", "confusion", "immunosuppressed"} & self._beliefs.evidence.keys():
            wanted.add("temperature")
        order += [name for name in needs(self._view.algorithm) if name not in order]
        order += ["sbp", "temperature"]
        return tuple(name for name in dict.fromkeys(order) if name in wanted)

    @cached_property
    def _follow_up(self) -> Ask | None:
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
        if times > (2 if why == "lost" else 1) or repeats >= _REPEATS:
            return None
        again = {"complaint": "complaint_more", "onset": self._beliefs.presentation.get("onset", "onset")}
        return Ask(again.get(item, item), why)

    def _unanswered(self, last: Exchange, item: str | None) -> str | None:
        """Why the last question stays open: declined, lost, unsure or vague; None when it was answered."""
        entry = self._items.get(item or "", {})
        if last.kind in ("declined", "lost"):
            return last.kind
        topic = entry.get("topic")
        if topic == "complaint" and self._beliefs.presentation["id"] == "general":
            return "vague"
        if self._trait("expertise") == "novice":
            return None
        if topic == "pain_score":
            return "vague" if last.score is None and not read(last.reply).mentioned & _PAIN_WORDS else None
        if last.kind == "unsure" and topic == "onset":
            return "unsure"
        return None

    def _item_of(self, exchange: Exchange) -> str | None:
        """The item that a question put."""
        question = exchange.question
        if question.strong:
            return self._about(question.strong)
        best: str | None = None
        for name, entry in self._items.items():
            asks = set(entry.get("asks", ()))
            if asks and asks <= question.findings:
                best = name if best is None or len(asks) > len(self._items[best]["asks"]) else best
        return best or next((item for topic in question.topics if (item := self._about(topic))), None)

    def _about(self, topic: str) -> str | None:
        """The first item of a topic."""
        return next((name for name, entry in self._items.items() if entry.get("topic") == topic), None)

    def _record_gap(self) -> Ask | None:
        """With a dialogue master: what its record still lacks once the nurse's own agenda is done."""
        if not self._view.record or not self.ready or "end" in self._view.actions:
            return None
        for field, item in _AFTER_RECORD.items():
            if self._view.record.get(field) == UNKNOWN:
                asked = sum(self._item_of(exchange) == item for exchange in self._beliefs.exchanges)
                if asked < 2:
                    return Ask(item, "vague" if asked else None)
        return None

    def _agenda(self) -> Iterator[str]:
        """The items still to ask, in the order in which this nurse asks them."""
        for item in dict.fromkeys(self._order()):
            if not self._done(item):
                yield item

    def _done(self, item: str) -> bool:
        """Whether an item was asked, or is answered already by what was told."""
        entry = self._items[item]
        beliefs = self._beliefs
        if item == "complaint":
            return bool(beliefs.exchanges)
        known = beliefs.facts.present
        if not set(entry.get("only", ())) <= known or set(entry.get("unless", ())) & known:
            return True
        if item in ("onset", "happened") and any(told("onset", exchange.reply) for exchange in beliefs.exchanges):
            return True
        if item == "pain_score" and beliefs.pain is not None:
            return True
        if item == "location" and "location" in beliefs.asked_topics:
            return True
        asks = entry.get("asks")
        if asks:
            known |= {"fever"} if beliefs.facts.numbers.get("temperature", 0) >= _FEVER else set()
            settled = known | beliefs.absent
            return bool(set(asks) & known) or set(asks) <= settled or set(asks) <= beliefs.asked
        return entry["topic"] in beliefs.asked_topics

    def _order(self) -> list[str]:
        presentation, facts = self._beliefs.presentation, self._beliefs.facts
        dangers: list[str] = presentation["ask"][: _DANGERS[self._trait("risk_attitude", "balanced")]]
        more: list[str] = [name for name in presentation["ask"] if name not in dangers] + presentation["then"]
        if self._trait("risk_attitude") == "risk_averse":
            dangers, more = dangers + more[:2], more[2:]
        pain = ["pain_score"] if presentation.get("pain") or "some_pain" in facts.present else []
        onset = [] if presentation.get("brief") else [presentation.get("onset", "onset")]
        about = ["history", "medications", "allergies"]
        dangers = self._pending_checks() + dangers
        first = ["complaint", *self._pending_checks(), *(dangers[:1] if presentation.get("first") else [])]
        rest = self._rest(more)
        if self._beliefs.verdict.level == 1:
            return [*first, *dangers[:2], "allergies", *onset, *dangers, *about]
        if self._beliefs.verdict.level == 2:
            return [*first, *dangers[:1], *onset, *pain, *dangers, "allergies", "medications", "history", *rest]
        if pain and self._trait("self_report_credence") != "accepting":
            pain = [*pain, "function"]
        if self._trait("expertise") == "novice":
            return [*first, *onset, *pain, "associated", *about, *dangers, *rest]
        if self._trait("algorithm_reliance") == "protocol_driven":
            return [*first, *dangers, *pain, *onset, *about, *rest]
        if self._trait("expertise") == "expert" or presentation.get("onset_first"):
            return [*first, *dangers[:2], *onset, *pain, *dangers, *about, *rest]
        return [*first, *onset, *dangers[:1], *pain, *dangers, *about, *rest]

    def _rest(self, more: list[str]) -> list[str]:
        """What is asked when there is time."""
        workload = self._trait("workload", "busy")
        extra = {"quiet": ["associated", "course", *more, "relief"], "busy": ["associated", *more[:2], "course"]}
        rest = extra.get(workload, more[:1])
        return ["course", *rest] if self._trait("questioning_style") == "open_facilitative" else rest
