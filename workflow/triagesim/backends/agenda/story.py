"""What the agenda patient has to tell: its script, or its complaint in lay words, looked up by topic and by finding."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from triagesim.backends.agenda.understanding import read, sensitive, tell_apart
from triagesim.cases import PatientScript
from triagesim.resources import load_yaml
from triagesim.views import Facts

_NUMBER_PART = re.compile(r"\d|\bout of ten\b|\bzero\b", re.IGNORECASE)
_BROKEN_OFF = re.compile(r"\w(?:\.\.\.|…) ?\w")
_ARRIVAL = re.compile(r"\btransfer\b|\bunknown-cc\b|\bs/p\b|\?", re.IGNORECASE)
_SIDE = re.compile(r"^(?:(?P<left>l|left)|(?P<right>r|right)|(?:b|bilateral))\b\.?\s*", re.IGNORECASE)
_PART = re.compile(
    r"ankle|wrist|knee|foot|hand|finger|elbow|shoulder|arm|leg|calf|rib|toe|thumb|jaw|groin|hip|breast|eye|face|testic\w+",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing that the patient can say, as it stands in the script.

    Attributes:
        source: the script's field; `complaint` where there is no script.
        sentence: whether it is a whole sentence, else a phrase.
        wordings: other ways to say it, where there are some.
    """

    text: str
    source: str
    sentence: bool
    wordings: tuple[str, ...] = ()

    @property
    def findings(self) -> frozenset[str]:
        """What it affirms."""
        return read(self.text).present

    @property
    def sensitive(self) -> bool:
        """Whether people may hesitate to tell it."""
        return bool(self.findings & sensitive())


class Story:
    """Everything that one patient can tell.

    Attributes:
        scripted: False when only the complaint is known.
        short_of_words: too breathless or too drowsy to talk much, whatever the persona.
    """

    def __init__(self, facts: Facts) -> None:
        self.scripted = facts.script is not None
        self._pieces: dict[str, list[Piece]] = _from_script(facts.script) if facts.script else {}
        self._pieces["complaint"] = _from_complaint(facts, fallback=not facts.script)
        script = facts.script
        self.cognitive_state = script.cognitive_state if script else "alert"
        self.intoxication = script.intoxication if script else "none"
        pieces = [piece for source in self._pieces.values() for piece in source]
        gasped = script is not None and len(_BROKEN_OFF.findall(script.story)) > 1
        self.short_of_words = gasped or any(piece.findings & {"cannot_breathe", "drowsy"} for piece in pieces)
        self._negatives = [_first_part(text) for text in script.pertinent_negatives] if script else []

    def pieces(self, source: str) -> list[Piece]:
        """What the script's field `source` holds, in its order."""
        return self._pieces.get(source, [])

    def about(self, findings: frozenset[str]) -> list[Piece]:
        """The pieces that affirm one of the findings, the plainest first."""
        order = ("associated_symptoms", "medical_history", "medications", "quality", "location", "story", "complaint")
        rest = [source for source in self._pieces if source not in order]
        return [
            piece for source in (*order, *rest) for piece in self._pieces.get(source, ()) if piece.findings & findings
        ]

    def denied(self, findings: frozenset[str]) -> list[str]:
        """The negatives of the script, as phrases after `no`, that are about one of the findings."""
        return [text for text in self._negatives if read(text).mentioned & findings]

    def with_words(self, pattern: re.Pattern[str], source: str) -> list[Piece]:
        """The sentences of a field (`story`, `social_history`) that hold certain words."""
        return [piece for piece in self.pieces(source) if pattern.search(piece.text.lower())]


def story_of(facts: Facts) -> Story:
    """The story of a patient; made once for equal facts."""
    return _story(facts.model_dump_json())


@lru_cache(maxsize=2048)
def _story(facts: str) -> Story:
    return Story(Facts.model_validate_json(facts))


def _from_script(script: PatientScript) -> dict[str, list[Piece]]:
    pieces: dict[str, list[Piece]] = {}
    for source in ("story", "social_history"):
        pieces[source] = [Piece(text, source, True) for text in tell_apart(getattr(script, source))]
    for source in ("onset", "duration", "location", "quality"):
        text = getattr(script, source).strip()
        pieces[source] = [Piece(text, source, False)] if text else []
    severity = ", ".join(part for part in script.severity.split(", ") if not _NUMBER_PART.search(part)).strip()
    pieces["severity"] = [Piece(severity, "severity", False)] if severity else []
    for source in ("associated_symptoms", "medical_history", "medications", "allergies"):
        pieces[source] = [Piece(text.strip(), source, False) for text in getattr(script, source) if text.strip()]
    return pieces


def _from_complaint(facts: Facts, *, fallback: bool) -> list[Piece]:
    """The complaint's parts in lay words; with `fallback`, at least one sentence."""
    sentences = []
    for part in re.split(r"[,;]", facts.chief_complaint or ""):
        plain = _ARRIVAL.sub(" ", part).strip(" .-/")
        options = _lay(plain) if plain else None
        if options:
            sentences.append(options)
    if not sentences and fallback:
        sentences = [data()["gloss_unknown"]]
    return [Piece(options[0], "complaint", True, tuple(options)) for options in sentences]


def _lay(part: str) -> list[str] | None:
    """The ways to say one part of a complaint; None when the table doesn't know it."""
    side = _SIDE.match(part)
    named = ("left " if side["left"] else "right " if side["right"] else "") if side else ""
    body = _PART.search(part)
    place = body[0].lower() if body else "side"
    for pattern, sentences in _gloss():
        if pattern.search(part.lower()):
            return [text.replace("{side}", named).replace("{part}", place) for text in sentences]
    return None


@cache
def _gloss() -> list[tuple[re.Pattern[str], list[str]]]:
    return [(re.compile(entry["words"]), entry["says"]) for entry in load_yaml("agenda/patient.yaml")["gloss"]]


def _first_part(text: str) -> str:
    """A negative without what follows it (`fever, as far as I know`)."""
    return text.split(",")[0].strip()


def data() -> dict[str, Any]:
    """The patient's phrases; read-only."""
    phrases: dict[str, Any] = load_yaml("agenda/patient.yaml")
    return phrases
