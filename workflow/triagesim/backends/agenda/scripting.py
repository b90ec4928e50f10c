"""The agenda master's patient script: a case in the patient's own words, with nothing that the case doesn't support."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any

from triagesim.backends.agenda import triage
from triagesim.backends.agenda.knowledge import presentations
from triagesim.backends.agenda.story import Piece, story_of
from triagesim.backends.agenda.understanding import implied, read
from triagesim.backends.agenda.wording import Picker, stop
from triagesim.cases import celsius
from triagesim.judging import Script
from triagesim.resources import load_yaml
from triagesim.views import CaseFacts, Facts, ScriptView

# Up to this acuity the case doesn't support that the presentation's dangers are absent.
_URGENT = 2
# The most items of a script's lists.
_DENIED = 5
_ILLNESSES = 6
_SYMPTOMS = 4
# Parts of a complaint that the story tells in full; the others become symptoms.
_TOLD = 2
_SIDE = re.compile(r"\b(?:(?P<left>l|left)|(?P<right>r|right))\b")
_TRANSFER = re.compile(r"\btransfer\b", re.IGNORECASE)
_IN_BRACKETS = re.compile(r"\[[^\]]*\]?|\([^)]*\)?")
_NUMBERED = re.compile(r"\b([A-Za-z])-?\d+\b")
_WITH_DIGITS = re.compile(r"\b[\w./-]*\d[\w./%-]*")
_NOT_NAMED = re.compile(r"[^A-Za-z' /-]")


def script(view: ScriptView, seed: int) -> Script:
    """The script for a case; the one that the case has already, where its author wrote it."""
    if view.facts.script is not None:
        return Script(**view.facts.script.model_dump())
    return _Author(view, seed).script()


class _Author:
    """Writes the script of one case."""

    def __init__(self, view: ScriptView, seed: int) -> None:
        self._facts = view.facts
        self._older = view.persona.get("age_group", view.facts.age_group) == "older"
        self._picker = Picker(seed, [])
        self._complaint = (view.facts.chief_complaint or "").lower()
        self._diagnoses = [title.lower() for title in view.facts.diagnoses]
        self._sentences, self._findings, self._more = self._problem()
        self._presentation = _presentation(self._sentences)
        self._kind: dict[str, Any] = _data()["problems"].get(self._presentation["id"], {})

    def script(self) -> Script:
        """All fields, in their order."""
        onset, duration = self._picker.shuffled(_data()["times"][self._kind.get("time", "hours")])[0]
        history = self._history()
        symptoms = self._symptoms()
        return Script(
            cognitive_state=self._state("cognitive_state", "alert"),
            intoxication=self._state("intoxication", "none"),
            story=self._story(onset),
            onset=onset,
            duration=duration,
            location=self._place(),
            quality=self._picker.pick(self._kind["like"]) if "like" in self._kind else "",
            severity=self._severity(),
            associated_symptoms=tuple(symptoms),
            pertinent_negatives=tuple(self._negatives({*symptoms, *history})),
            medical_history=tuple(history),
            medications=tuple(medicines(self._facts.medications)),
            allergies=tuple(self._allergies()),
            social_history=self._social(),
        )

    # -- what it is about

    def _problem(self) -> tuple[list[str], frozenset[str], frozenset[str]]:
        """The problem as sentences, the findings that these hold, and the findings of what else was complained of.

        Where the complaint says nothing ("Transfer"), the first diagnosis that is a symptom or has one speaks for it.
        """
        complained = _in_lay_words(self._facts.chief_complaint or "")
        pieces: list[Piece] = [piece for piece in complained if piece.findings]
        if not pieces:
            found = (self._symptom_of(title) for title in self._diagnoses)
            pieces = next(([piece] for piece in found if piece), []) or list(complained)
        sentences = list(dict.fromkeys(self._picker.pick(piece.wordings or (piece.text,)) for piece in pieces))
        told = frozenset().union(*(read(text).present for text in sentences[:_TOLD]))
        return sentences[:_TOLD], told, frozenset().union(*(read(text).present for text in sentences[_TOLD:]))

    def _symptom_of(self, title: str) -> Piece | None:
        """What a diagnosis is felt as, unless it is a long-standing illness."""
        if any(pattern.search(title) for pattern, _ in _known()):
            return None
        return next((piece for piece in _in_lay_words(title) if piece.findings), None)

    def _state(self, name: str, usual: str) -> Any:
        text = "; ".join([self._complaint, *self._diagnoses])
        return next((state for pattern, state in _states(name) if pattern.search(text)), usual)

    # -- the fields

    def _story(self, onset: str) -> str:
        data, facts = _data(), self._facts
        sentences = list(self._sentences)
        if self._state("cognitive_state", "alert") != "alert" and "confusion" not in self._findings:
            sentences.insert(0, self._picker.pick(data["muddled"]))
        began = data[self._kind.get("story", "began")]
        sentences.append(self._picker.pick(began).replace("{onset}", onset))
        if _score(facts.pain) == 0 and "like" in self._kind:
            sentences.append(self._picker.pick(data["no_pain_now"]))
        arrival = (facts.arrival_transport or "").lower()
        arrived = next((lines for name, lines in data["arrived"].items() if name in arrival), data["arrived"]["other"])
        sentences.append(data["transfer"] if _TRANSFER.search(self._complaint) else self._picker.pick(arrived))
        if facts.acuity is not None:
            sentences.append(self._picker.pick(data["feeling"][facts.acuity]))
        return " ".join(stop(text) for text in sentences)

    def _place(self) -> str:
        for part in re.split(r"[,;/]", self._complaint):
            for pattern, says in _places():
                match = pattern.search(part)
                if match:
                    side = _SIDE.search(part)
                    named = ("left " if side["left"] else "right ") if side else ""
                    return says.replace("{side}", named).replace("{part}", match.groupdict().get("part") or "")
        return ""

    def _severity(self) -> str:
        score = _score(self._facts.pain)
        if score is None:
            return "" if self._facts.pain is None else str(_data()["no_score"])
        says: str = next(entry["says"] for entry in _data()["severity"] if score >= entry["from"])
        article = "an " if int(score) == 8 else "a "
        return says.replace("{n}", f"{article}{score:g}")

    def _symptoms(self) -> list[str]:
        """What is complained of beside the problem, is a diagnosis of its own, or follows from a vital sign."""
        found = set(self._more)
        for title in self._diagnoses:
            piece = self._symptom_of(title)
            if piece is not None and len(piece.findings) == 1:
                found |= piece.findings & read(title).mentioned
        found = (found | self._felt()) - self._findings - implied(self._findings)
        plain = _data()["plain"]
        return [plain[name]["have"] for name in plain if name in found and "have" in plain[name]][:_SYMPTOMS]

    def _felt(self) -> set[str]:
        """What the vital signs out of range feel like."""
        return {finding for holds, finding in _felt() if holds(self._facts)}

    def _negatives(self, said: Iterable[str]) -> list[str]:
        """Typical things that the patient doesn't have, without any that the case speaks for."""
        presentation, items = self._presentation, load_yaml("agenda/nurse.yaml")["items"]
        dangers = presentation["ask"] if (self._facts.acuity or 5) > _URGENT else presentation["ask"][3:]
        asked = [name for item in [*dangers, *presentation["then"]] for name in items[item].get("asks", ())]
        asked += _data()["usual"]
        spoken_for = self._findings | self._felt() | self._brought()
        for text in said:
            spoken_for |= read(text).mentioned
        plain = _data()["plain"]
        names = [name for name in dict.fromkeys(asked) if name in plain and "none" in plain[name]]
        return [plain[name]["none"] for name in names if not {name, *implied({name})} & spoken_for][:_DENIED]

    def _brought(self) -> set[str]:
        """Findings that the complaint or a diagnosis names, or that a diagnosis may bring."""
        found = {name for pattern, names in _brings() for name in names if any(map(pattern.search, self._diagnoses))}
        for text in [self._complaint, *self._diagnoses]:
            found |= read(text).mentioned
            found.update(name for piece in _in_lay_words(text) for name in piece.findings)
        return found

    def _history(self) -> list[str]:
        """Long-standing illnesses in plain words: those that can't be today's finding."""
        taken = " ; ".join(self._facts.medications).lower()
        names = [name.lower() for name in self._facts.medications]
        found: list[str] = []
        for pattern, entry in _known():
            places = [place for place, title in enumerate(self._diagnoses) if pattern.search(title)]
            needed = entry.get("medicine")
            known = any(place > 0 or needed is None or re.search(needed, taken) for place in places)
            told = "told_by" in entry and any(re.search(entry["told_by"], name) for name in names)
            if (known or told) and not any(entry["says"] in other for other in found):
                found.append(entry["says"])
        return found[:_ILLNESSES]

    def _allergies(self) -> list[str]:
        pattern = re.compile(_data()["allergy"])
        return list(dict.fromkeys(m["what"].strip() for title in self._diagnoses if (m := pattern.search(title))))

    def _social(self) -> str:
        matters = [entry["says"] for entry in _data()["social"]
                   if any(re.search(entry["words"], title) for title in self._diagnoses)]  # fmt: skip
        homeless = any("nowhere" in text for text in matters)
        at_home = [] if homeless else [self._picker.pick(_data()["at_home"]["older" if self._older else "adult"])]
        return " ".join(stop(text) for text in [*at_home, *matters])


def medicines(names: Iterable[str]) -> list[str]:
    """Medicines as a patient names them: no strengths, salts, brackets or supplies, the telling ones first."""
    supplies, salts = re.compile(_data()["supplies"]), re.compile(_data()["salts"], re.IGNORECASE)
    found: dict[str, str] = {}
    for name in names:
        if supplies.search(name.lower()):
            continue
        plain = _WITH_DIGITS.sub(" ", _NUMBERED.sub(r"\1", _IN_BRACKETS.sub(" ", name)))
        plain = _NOT_NAMED.sub(" ", salts.sub(" ", plain))
        plain = " ".join(plain.split()).strip("-' /")
        if len(plain) > 2:
            found.setdefault(plain.lower(), plain)
    return sorted(found.values(), key=lambda plain: not read(plain).present)[: _data()["medicines"]]


@lru_cache(maxsize=4096)
def _in_lay_words(complaint: str) -> tuple[Piece, ...]:
    """A complaint or a diagnosis as the patient's own sentences, part by part."""
    return tuple(story_of(Facts(chief_complaint=complaint)).pieces("complaint"))


def _score(pain: str | None) -> float | None:
    """A pain score from 0 to 10; None for words and for codes above 10."""
    try:
        score = float(pain or "")
    except ValueError:
        return None
    return score if 0 <= score <= 10 else None


def _presentation(sentences: list[str]) -> dict[str, Any]:
    """What the nurse would take the problem for: by the first sentence, else by all."""
    for told in (sentences[:1], sentences):
        facts = triage.Facts(frozenset().union(*(read(text).present for text in told)))
        found = next(entry for entry in presentations() if entry["rule"].holds(facts))
        if found["id"] != "general":
            break
    return found


def _data() -> dict[str, Any]:
    data: dict[str, Any] = load_yaml("agenda/master.yaml")["script"]
    return data


@cache
def _states(name: str) -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(entry["words"]), entry["is"]) for entry in _data()[name]]


@cache
def _places() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(entry["words"]), entry["says"]) for entry in _data()["places"]]


@cache
def _known() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    return [(re.compile(entry["words"]), entry) for entry in _data()["known"]]


@cache
def _brings() -> list[tuple[re.Pattern[str], list[str]]]:
    return [(re.compile(entry["words"]), entry["findings"]) for entry in _data()["brings"]]


@cache
def _felt() -> list[tuple[Callable[[CaseFacts], bool], str]]:
    return [(_limit(entry), entry["finding"]) for entry in _data()["felt"]]


def _limit(entry: dict[str, Any]) -> Callable[[CaseFacts], bool]:
    """Whether a vital sign lies beyond the limit of an entry of `felt`."""
    name = entry["vital"]
    compare, limit = (operator.gt, entry["above"]) if "above" in entry else (operator.lt, entry["below"])

    def holds(facts: CaseFacts) -> bool:
        value = facts.vitals.get(name)
        if value is not None and name == "temperature":
            value = celsius(value)
        return value is not None and bool(compare(value, limit))

    return holds
