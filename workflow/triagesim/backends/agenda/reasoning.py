"""What the agenda nurse writes down: its reading of a reply, its explanation with the evidence, its confidence."""

from __future__ import annotations

from functools import cache

from triagesim.answers import Confidence
from triagesim.backends.agenda.knowledge import Beliefs, Exchange
from triagesim.backends.agenda.triage import needs
from triagesim.backends.agenda.understanding import lexicon, says
from triagesim.backends.agenda.wording import join, start_large, stop
from triagesim.views import NurseView

# Words of a reply that are quoted as evidence.
_QUOTE_WORDS = 14
_NAMES = {
    "temperature": "temperature",
    "heartrate": "heart rate",
    "resprate": "breathing",
    "o2sat": "oxygen saturation",
    "sbp": "systolic pressure",
}
_NOT_SAID_BACK = frozenset({"severe_pain", "mild_pain", "distress"})


@cache
def said_back() -> frozenset[str]:
    """The findings that a nurse names when it repeats what it heard."""
    entries = lexicon()["findings"].items()
    plain = {name for name, entry in entries if not entry.get("sensitive") and "kind" not in entry}
    return frozenset(plain - _NOT_SAID_BACK)


def explanation(view: NurseView, beliefs: Beliefs) -> str:
    """The reason for the level, what was heard for it and what was measured."""
    if not beliefs.exchanges:
        return "Nothing is known yet, so the level is a cautious guess."
    reason = start_large(beliefs.verdict.reason)
    grounds = [f"“{_quote(quote)}” ({join(names)})" for quote, names in _quotes(beliefs)]
    measured = [f"{_NAMES[name]} {text}" for name, text in view.vitals.items() if text is not None]
    missing = [_NAMES[name] for name, text in view.vitals.items() if text is None]
    parts = [f"Heard: {'; '.join(grounds)}." if grounds else "Nothing telling was said yet."]
    if measured:
        parts.append(f"Measured: {', '.join(measured)}.")
    if missing:
        parts.append(f"Not measurable: {', '.join(missing)}.")
    return " ".join([stop(reason), *parts])


def confidence(view: NurseView, beliefs: Beliefs) -> Confidence:
    """How sure the level is, by how much is known."""
    if not beliefs.evidence or beliefs.unclear:
        return "low"
    measured = all(view.vitals.get(name) for name in needs(view.algorithm))
    if beliefs.verdict.settled and beliefs.verdict.point != "D":
        return "high"
    return "high" if measured and len(beliefs.exchanges) >= 6 else "medium"


def understood(exchange: Exchange) -> str:
    """A one-sentence reading of a reply."""
    parts = []
    present = [says(name) for name in sorted(exchange.learnt.present) if name in said_back()]
    absent = [says(name) for name in sorted(exchange.learnt.absent) if name in said_back()]
    named = [says(name) for name in sorted(exchange.question.findings) if name in said_back()]
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


def _quotes(beliefs: Beliefs) -> list[tuple[str, list[str]]]:
    """Up to three replies with what they affirmed, those behind the warning signs first."""
    by_reply: dict[str, list[str]] = {}
    flags = set(beliefs.verdict.flags)
    for finding in sorted(beliefs.evidence, key=lambda name: says(name) not in flags):
        if finding in said_back() or says(finding) in flags:
            by_reply.setdefault(beliefs.evidence[finding], []).append(says(finding))
    return [(reply, names[:3]) for reply, names in list(by_reply.items())[:3]]


def _quote(text: str) -> str:
    words = text.replace("“", "'").replace("”", "'").split()
    return " ".join(words[:_QUOTE_WORDS]) + (" …" if len(words) > _QUOTE_WORDS else "")
