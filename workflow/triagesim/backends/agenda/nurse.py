"""The agenda nurse: from what it has learnt to the next action and the words for it.

The persona shapes which questions are asked, how many and in what words. The level comes from `triage` alone.
"""

from __future__ import annotations

import re
from typing import Any

from triagesim.answers import MAX_FLAGS, Action, NurseStep
from triagesim.backends.agenda.interview import Plan
from triagesim.backends.agenda.knowledge import Exchange, believe
from triagesim.backends.agenda.reasoning import confidence, explanation, understood
from triagesim.backends.agenda.understanding import read, told
from triagesim.backends.agenda.wording import Picker, start_large, start_small
from triagesim.cases import Vital
from triagesim.resources import load_yaml
from triagesim.views import NurseView


def step(view: NurseView, seed: int) -> NurseStep:
    """The nurse's next step; it depends on the view and the seed alone."""
    return _Nurse(view, seed).step()


class _Nurse:
    def __init__(self, view: NurseView, seed: int) -> None:
        self._view = view
        self._beliefs = believe(view)
        self._plan = Plan(view, self._beliefs)
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
        if "end" in self._view.actions and (self._plan.ready or "utterance" not in self._view.actions):
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
        exchanges = self._beliefs.exchanges
        heard = (understood(exchanges[-1]) if exchanges else "") if self._view.heard_reply else None
        return NurseStep(
            understood=heard,
            action=action,
            vital=vital,
            utterance=utterance,
            red_flags=flags or [],
            explanation=explanation(self._view, self._beliefs),
            triage=self._beliefs.verdict.level,
            confidence=confidence(self._view, self._beliefs),
        )

    # -- measuring and logging

    def _vital(self) -> Vital | None:
        """The vital sign to take now, if one is due."""
        if "check_vital" not in self._view.actions or not self._beliefs.exchanges:
            return None
        due = [name for name in self._plan.wanted if name in self._view.vitals_open]
        if not due:
            return None
        if self._beliefs.verdict.level == 1 and "end" in self._view.actions:
            return None
        relaxed = "utterance" in self._view.actions and self._view.questions_left > len(due) + 1
        if relaxed and not self._plan.ready and self._beliefs.verdict.level > 2 and self._picker.chance(0.15):
            return None
        return due[0]

    def _measuring(self, vital: Vital) -> str | None:
        hurried = self._trait("workload") == "overloaded"
        if hurried and self._picker.chance(0.3):
            return None
        line = self._picker.pick(self._data["measure"][vital])
        if hurried or self._picker.chance(0.6):
            return line
        return f"{line} {self._picker.pick(self._data['measure_after'][vital])}"

    def _flags(self) -> list[str]:
        logged = {" ".join(flag.lower().split()) for flag in self._view.red_flags}
        return [flag for flag in dict.fromkeys(self._beliefs.verdict.flags) if flag not in logged][:MAX_FLAGS]

    # -- ending

    def _closing(self) -> str:
        level = self._beliefs.verdict.level
        closing = self._data["closing"]
        where = self._suited(
            closing["now" if level == 1 else "soon" if level == 2 else "wait" if level == 3 else "minor"]
        )
        then = closing["calm" if level <= 2 else "watch"]
        first, second = self._picker.pick(where), self._picker.pick(then)
        if self._trait("workload") == "overloaded" and level > 1:
            return first
        return f"{first} {second}"

    def _suited(self, lines: list[str]) -> list[str]:
        """The lines without those for somebody on foot, where the patient isn't."""
        facts = self._beliefs.facts.present
        if not {"ambulance", "cannot_walk"} & facts:
            return lines
        return [line for line in lines if not re.search(self._data["on_foot"], line, re.IGNORECASE)]

    # -- asking

    def _question(self) -> str:
        if self._view.infer is not None:
            return self._picker.pick(self._data["infer"][self._view.infer])
        ask = self._plan.next_question
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
        wanted: list[str] = {"open_facilitative": entry["open"], "closed_directive": entry["closed"]}.get(
            style, entry["open"] + entry["closed"]
        )
        if urgent or simple:
            wanted = entry["closed"]
        named = self._named()
        for wordings in (wanted, entry["open"] + entry["closed"]):
            fresh = self._picker.fresh([text.replace("{it}", named) for text in self._suited(wordings)])
            if fresh:
                return start_large(min(fresh, key=len) if simple else fresh[0])
        return None

    def _named(self) -> str:
        """The problem by a name that holds nothing but what was told."""
        told = self._beliefs.facts.present | {"some_pain"} if self._beliefs.pain else self._beliefs.facts.present
        names: list[str] = self._beliefs.presentation["it"]
        return self._picker.pick([name for name in names if read(name).mentioned <= told] or ["this"])

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
        if self._picker.chance(0.25) and _JOINABLE.match(text):
            return f"{self._picker.pick(self._data['joiner'])} {start_small(text)}"
        return text

    def _response(self) -> str | None:
        """What the nurse says to a feeling that the last reply showed."""
        manner = self._trait("emotional_responsiveness", "acknowledging")
        cue = _cue(self._beliefs.exchanges[-1])
        if manner == "task_focused" or cue is None or self._beliefs.verdict.level == 1:
            return None
        fresh = self._picker.fresh(self._data["respond"][manner][cue])
        return fresh[0] if fresh and self._picker.chance(0.35 if self._responded() else 0.85) else None

    def _responded(self) -> bool:
        """Whether the question before answered a feeling already."""
        banks = self._data["respond"].get(self._trait("emotional_responsiveness", ""), {})
        return any(self._beliefs.exchanges[-1].asked.startswith(line) for lines in banks.values() for line in lines)

    def _news(self) -> str | None:
        """One symptom that the last reply brought, as a nurse says it back."""
        last = self._beliefs.exchanges[-1]
        before = {name for exchange in self._beliefs.exchanges[:-1] for name in exchange.learnt.present}
        fresh = [text for name, text in self._data["echoed"].items() if name in last.learnt.present - before]
        return fresh[self._picker.place(len(fresh))] if fresh else None

    def _one_more(self) -> str:
        """A question for when the agenda is done and the interview can't end yet."""
        asked = self._beliefs.asked_topics
        entries = [e for e in self._data["more"] if e["topic"] not in asked] or self._data["more"]
        fresh = self._picker.fresh([entry["says"] for entry in entries])
        fresh = fresh or self._picker.fresh([entry["says"] for entry in self._data["more"]])
        return self._led(fresh[0] if fresh else f"{self._picker.pick(self._data['again']['vague'])} Anything to add?")


# Questions that a joining word may stand before.
_JOINABLE = re.compile(r"(?:Do|Does|Did|Have|Has|Is|Are|Any|Was|When|Where|How|What|Which|Could|Can)\b")


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
