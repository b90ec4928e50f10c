"""The agenda patient: answers what was asked from its script, in the manner of its persona."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from triagesim.answers import PatientReply
from triagesim.backends.agenda.asking import questions_in
from triagesim.backends.agenda.manner import Draft, speak
from triagesim.backends.agenda.story import Piece, Story, data, story_of
from triagesim.backends.agenda.understanding import Question, ask, kind_of, read, says, sensitive, tell_apart, told
from triagesim.backends.agenda.wording import Picker, join, start_large, stop
from triagesim.views import PatientView

# How many of a list's items, or sentences of the story, are told at once.
_AT_ONCE = {"terse": 1, "typical": 2, "expansive": 4}
# The most words of a terse answer.
_TERSE_WORDS = 10
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# How far the pain score that is told lies from the one that is felt.
_REPORTING = {"minimising": -2, "amplifying": 2}
# Questions of so many words are hard for somebody with little English.
_LONG_QUESTION = 11
_MEDICAL_WORDS = re.compile(
    r"\b(?:palpitations|symptoms|medications?|medical|flank|diagnosed|diarrhoea|phlegm|allerg\w+|rigid|hives|conditions?"
    r"|prescri\w+|saliva|immune|steroids|lightheaded|consciousness|vaginal|urine|stools?)\b",
    re.IGNORECASE,
)
# Words that show that a sentence of the script is about what was asked.
_ABOUT = {
    "relief": re.compile(r"\b(?:help(?:s|ed)|eas(?:es|ed)|took|tablets?|painkillers?|treatment|washed|iced?)\b"),
    "before": re.compile(r"\b(?:before|again|last time|first time|once)\b"),
    "course": re.compile(
        r"\b(?:better|worse|worst|same|off|steady|constant|constantly|non-?stop|solid|comes|goes|every|more|less|grow\w*"
        r"|eas\w+|gone|again|longer|stronger|never|spread\w*|times|change\w*|waves?)\b"
    ),
    "intake": re.compile(r"\b(?:ate|eat\w*|drink\w*|drank|lunch|supper|dinner|breakfast|food|meal|appetite)\b"),
    "smoke": re.compile(r"\bsmok\w*|\bcigar\w*|\bpack\b"),
    "home": re.compile(r"\b(?:live|wife|husband|partner|daughter|son|home|alone|married|mother|\w+friend)\b"),
}
# Topics that are answered with a list; a question may well hold two of them.
_LISTS = ("medications", "allergies", "history")
_YES_NO = re.compile(r"(?:.*[.!,] )?(?:can|do|does|did|is|are|was|were|have|has|will|would|could)\b", re.IGNORECASE)
_SHIFTED = re.compile(rf"\b(?:{'|'.join(_NUMBERS[1:])}|\d{{1,2}})\b(?= (?:minutes|hours|days|weeks|months|years)\b)")
_HOW_LONG = re.compile(r"\bhow long\b(?! ago)", re.IGNORECASE)
_LESS = re.compile(r"\b(?:hardly|barely|mild|slight|only|just|not|bearable|no more than|doesn't)\b", re.IGNORECASE)
_CLAUSES = re.compile(r"[,;:]\s+(?:and |but |so )?| - |\s(?:and|but|because|so|until) (?=[\w']+ [\w']+)")


def reply(view: PatientView, seed: int) -> PatientReply:
    """The patient's reply to the last line of the dialogue; it depends on the view and the seed alone."""
    patient = _Patient(view, seed)
    draft = patient.draft()
    utterance = speak(draft, patient.persona, patient.story, patient.picker, first=patient.first)
    return PatientReply(utterance=utterance, disclosed=draft.disclosed)


@dataclass(frozen=True)
class _Heard:
    """The question to answer, and the questions before it."""

    text: str
    topics: tuple[str, ...]
    strong: str | None
    findings: frozenset[str]
    earlier: tuple[str, ...]

    def asked_before(self, *, findings: frozenset[str] = frozenset(), topic: str | None = None) -> int:
        """How often an earlier question was about one of the findings, or about the topic."""
        questions = [ask(line) for line in self.earlier]
        return sum(bool(q.findings & findings) or (topic is not None and topic in q.topics) for q in questions)


class _Patient:
    def __init__(self, view: PatientView, seed: int) -> None:
        self.story: Story = story_of(view.facts)
        self.persona = view.persona
        if self.story.short_of_words:
            self.persona = {**view.persona, "verbosity": "terse", "focus": "on_target"}
        self._own = [line.text for line in view.dialogue if line.speaker == "patient"]
        self.first = not self._own
        self.picker = Picker(seed, self._own)
        self._pain = view.facts.pain
        self._heard = _hear(view)
        self._limited = self.persona.get("english_proficiency") == "limited"
        self._verbosity = self.persona.get("verbosity", "typical")
        self._open = self.persona.get("disclosure", "open") == "open"
        self._recall = self.persona.get("recall_reliability", "reliable")
        self._own_words = set(re.findall(r"\w{4,}", " ".join(self._own).lower()))

    def draft(self) -> Draft:
        """What to say, before manner: the answer, or why there is none."""
        if self._misreads():
            words = data()["misread" if self._limited else "word_asked"]
            return Draft([self.picker.pick(words)], "misread", "Didn't understand the question.")
        return self._held_back() or self._answer()

    def _answer(self) -> Draft:
        """The answer by what the question is about; a finding that it names counts unless the topic decides."""
        strong = self._heard.strong
        answers: dict[str, Callable[[], Draft]] = {
            "complaint": self._complaint,
            "onset": self._onset,
            "pain_score": self._score,
            "location": lambda: self._field("location"),
            "quality": lambda: self._field("quality"),
            "history": lambda: self._list("medical_history", "history"),
            "medications": lambda: self._list("medications", "medications"),
            "allergies": lambda: self._list("allergies", "allergies"),
            "course": self._course,
            "associated": self._associated,
            "more": self._more,
            "worry": lambda: self._nothing("none", "worry", "nothing"),
            "function": lambda: self._nothing("none", "function", "nothing"),
            "social": lambda: self._searched(
                "smoke" if "smok" in self._heard.text.lower() else "home", "social_history"
            ),
        }
        lists = [topic for topic in self._heard.topics if topic in _LISTS]
        if len(lists) > 1:
            both = [answers[topic]() for topic in lists[:2]]
            return Draft([*both[0].core, *both[1].core], lists[0], f"{both[0].disclosed} {both[1].disclosed}")
        if strong is not None and not (strong in ("history", "medications") and self._heard.findings):
            return answers[strong]() if strong in answers else self._searched(strong, "story")
        if self._heard.findings:
            return self._findings()
        for topic in self._heard.topics:
            return answers[topic]() if topic in answers else self._searched(topic, "story")
        if self._heard.text.rstrip().endswith("?") and _YES_NO.match(self._heard.text):
            return self._nothing("unsure", "any", "unsure", "Couldn't say.")
        return self._more()

    # -- why there is no answer

    def _misreads(self) -> bool:
        """Whether the question isn't understood: at most twice in a dialogue, and never twice in a row."""
        lines = [*data()["misread"], *data()["word_asked"]]
        before = [any(line in own for line in lines) for own in self._own]
        if not before or before[-1] or sum(before) >= 2:
            return False
        if self._limited:
            return len(self._heard.text.split()) >= _LONG_QUESTION and self.picker.chance(0.6)
        shaky = self.persona.get("health_literacy") in ("limited", "marginal")
        shaky = shaky or self.persona.get("english_proficiency") == "functional"
        return shaky and _MEDICAL_WORDS.search(self._heard.text) is not None and self.picker.chance(0.2)

    def _held_back(self) -> Draft | None:
        """What a patient says who doesn't open up yet on a sensitive matter; None when it answers."""
        if self._open:
            return None
        if self._heard.strong == "complaint":
            pieces = [*self.story.pieces("story"), *self.story.pieces("complaint")]
            if self._heard.asked_before(topic="complaint") or not any(piece.sensitive for piece in pieces):
                return None
            return self._nothing("deflect_complaint", None, "deflect", "Kept the reason for coming to itself.")
        matter = self._heard.findings & sensitive()
        if not matter or self._heard.asked_before(findings=matter):
            return None
        named = join([says(name) for name in sorted(matter)])
        if self.persona.get("disclosure") == "guarded":
            return self._nothing("deflect", None, "deflect", f"Didn't answer about {named}.")
        return self._nothing("vague", None, "vague", f"Was vague about {named}.") if self.story.about(matter) else None

    # -- answers by topic

    def _complaint(self) -> Draft:
        pieces = self._untold("story")
        short = [piece for piece in self._untold("complaint") if piece.findings]
        brief = (self._limited or self._verbosity == "terse") and not self.story.short_of_words
        if (short and (brief or self._heard.asked_before(topic="complaint"))) or not pieces:
            more = [piece for piece in pieces if not short or not piece.findings or piece.findings - short[0].findings]
            pieces = [*short[:1], *more] if short else self._untold("complaint")
        if not pieces:
            pieces = [p for source in ("associated_symptoms", "location", "quality") for p in self._untold(source)][:2]
        if not pieces:
            return self._nothing("carry_on", None, "nothing")
        count = 1 if self._limited and pieces[0].source == "complaint" else _AT_ONCE[self._verbosity]
        draft = self._told(pieces[:count], "complaint")
        opens = not self._open and not self._limited and self._heard.asked_before(topic="complaint")
        if opens and any(piece.sensitive for piece in pieces):
            draft.core[0] = self._frame("open_up", draft.core[0])
        return draft

    def _onset(self) -> Draft:
        long = _HOW_LONG.search(self._heard.text) and self.story.pieces("duration")
        pieces = self.story.pieces("duration" if long else "onset") or self.story.pieces("duration")
        if not pieces:
            return self._nothing("unsure", "onset", "unsure", "Didn't know when it began.")
        text = pieces[0].text
        if self._verbosity == "terse" or self._limited or self._recall != "reliable":
            text = _when(text)
        sure = not re.search(r"\b(?:know|maybe|think|say)\b", text)
        if self._recall == "patchy" and sure and self.picker.chance(0.8):
            text = self.picker.pick(data()["recall"]["patchy"]["wrap"]).replace("{x}", text)
        elif self._recall == "unreliable":
            text = _SHIFTED.sub(lambda match: _shift(match[0], self.picker), text)
        core = [stop(start_large(text))]
        if self._verbosity == "expansive" and self._recall == "reliable" and not long and not self._limited:
            core += [stop(start_large(piece.text)) for piece in self._untold("duration")[:1]]
        return Draft(core, "onset", f"Told when it began: {text.rstrip('.')}.")

    def _score(self) -> Draft:
        severity = [stop(start_large(piece.text)) for piece in self._untold("severity")]
        try:
            felt = float(self._pain or "")
        except ValueError:
            felt = -1.0
        if not 0 <= felt <= 10:
            if severity:
                return Draft(severity, "score", "Gave no number for the pain.")
            return self._nothing("unsure", "score", "score", "Gave no number for the pain.")
        shift = _REPORTING.get(self.persona.get("symptom_reporting", "faithful"), 0)
        score = min(10, max(0, round(felt) + shift)) if felt > 0 else 0
        core = [self._frame("score" if score else "zero", _NUMBERS[score])]
        if self._verbosity != "terse" and not self._limited:
            core += [text for text in severity if shift == 0 or (score and _says_less(text) is (shift < 0))]
        felt_words = "" if score == round(felt) else f"; it feels more like {felt:g}"
        kind = "score" if score else "zero"
        return Draft(core, kind, f"Gave the pain as {score} of 10{felt_words}.", simple=self._limited)

    def _course(self) -> Draft:
        """How it went, where the script tells more of it than since when."""
        pieces = self.story.pieces("duration")
        if not pieces or not _ABOUT["course"].search(pieces[0].text):
            return self._nothing("unsure", "course", "unsure", "Couldn't say how it went.")
        return self._field("duration")

    def _field(self, source: str) -> Draft:
        """An answer from one of the script's single fields."""
        pieces = self.story.pieces(source)
        if not pieces:
            return self._nothing("unsure", "any", "unsure", "Couldn't say.")
        text = _shortened(pieces[0].text) if self._verbosity == "terse" else pieces[0].text
        if self._is_told(pieces[0]):
            text = self._frame("again", _shortened(text).rstrip("."))
        return Draft([stop(start_large(text))], source, f"Told the {source}: {pieces[0].text.rstrip('.')}.")

    def _list(self, source: str, topic: str) -> Draft:
        """An answer from one of the script's lists: history, medicines, allergies."""
        if not self.story.scripted:
            return self._nothing("unsure", topic if topic in data()["unsure"] else "any", "unsure", "Couldn't say.")
        pieces = self.story.pieces(source)
        if not self._open and not self._heard.asked_before(topic=topic):
            pieces = [piece for piece in pieces if not piece.sensitive]
        if not pieces:
            return self._nothing("none", topic, "none", f"Told of no {topic}.")
        texts, rest = self._remembered([piece.text for piece in pieces], topic)
        if self._verbosity == "terse":
            texts = [text.split(",")[0] for text in texts]
        core = [self._frame(topic, join(texts)), *rest]
        return Draft(core, topic, f"Told {topic}: {join(texts).rstrip('.')}.")

    def _remembered(self, texts: list[str], topic: str) -> tuple[list[str], list[str]]:
        """What of a list comes to mind, and what is said of the rest."""
        if self._recall == "reliable" or len(texts) < 2 or topic == "allergies":
            return texts, []
        if self._recall == "unreliable":
            return texts[:-1], []
        if topic == "medications" and not (self._limited or self.story.short_of_words):
            return texts[:-1], [self.picker.pick(data()["recall"]["patchy"]["rest"])]
        return texts, []

    def _associated(self) -> Draft:
        if not self.story.scripted:
            return self._nothing("unsure", "finding", "unsure")
        pieces = [piece for piece in self._untold("associated_symptoms") if self._open or not piece.sensitive]
        if not pieces:
            return self._nothing("none", "associated", "none")
        return self._told(pieces[: _AT_ONCE[self._verbosity]], "associated")

    def _more(self) -> Draft:
        """What is left to tell, for a question that is about nothing in particular."""
        left = (*self._untold("story"), *self._untold("associated_symptoms"))
        pieces = [piece for piece in left if self._open or not piece.sensitive]
        return self._told(pieces[:1], "more") if pieces else self._nothing("none", "more", "none")

    def _searched(self, topic: str, source: str) -> Draft:
        """The first sentence of the script that holds words of the topic."""
        pieces = [p for p in self.story.with_words(_ABOUT[topic], source) if self._open or not p.sensitive]
        if pieces:
            return self._told(pieces[:1], topic)
        if topic in data()["none"]:
            return self._nothing("none", topic, "none")
        return self._nothing("unsure", "any", "unsure", "Couldn't say.")

    def _findings(self) -> Draft:
        """Yes or no to the findings that the question names."""
        known = read(" ".join(self._own)).present
        asked = (self._heard.findings - known) or self._heard.findings
        pieces = self.story.about(asked)[:2]
        denied = self.story.denied(asked)[:1]
        if pieces:
            return self._confirmed(asked, pieces, denied)
        if denied:
            short = self._verbosity == "terse" or self._limited
            said = "No." if short else start_large(self._frame("deny", denied[0]))
            return Draft([said], "no", f"Denied {denied[0]}.", simple=True)
        of_person = any(kind_of(name) == "history" or name in sensitive() for name in asked)
        if not self.story.scripted:
            return self._nothing("unsure", "any" if of_person else "finding", "unsure")
        named = join([says(name) for name in sorted(asked)], "or")
        if self._verbosity == "terse":
            return Draft(["No."], "no", f"Denied {named}.", simple=True)
        return self._nothing("none", "person" if of_person else "finding", "no", f"Denied {named}.")

    def _confirmed(self, asked: frozenset[str], pieces: Sequence[Piece], denied: Sequence[str]) -> Draft:
        first = pieces[0]
        brief = self._verbosity == "terse" or self._limited
        if self._is_told(first):
            core = ["Yes."] if brief else [self.picker.pick(data()["confirm_again"])]
        elif first.sentence:
            core = ["Yes.", _shortened(self._text(first), asked) if brief else stop(self._text(first))]
        else:
            phrase = _part_about(first.text, asked) if brief else first.text
            framed = first.source == "associated_symptoms" and not brief
            core = [self._frame("confirm", phrase) if framed else f"Yes, {phrase}."]
        if self._verbosity == "expansive" and not self._limited:
            core += [stop(start_large(piece.text)) for piece in pieces[1:2] if not self._is_told(piece)]
        if denied and not brief:
            core.append(f"No {denied[0]}.")
        again = self._heard.asked_before(findings=self._heard.findings & sensitive())
        if again and not self._open and not self._limited:
            core[0] = self._frame("open_up", core[0])
        named = join([piece.text.rstrip(".") for piece in pieces])
        return Draft([stop(text) for text in core], "yes", f"Confirmed: {named}.")

    # -- helpers

    def _told(self, pieces: Sequence[Piece], topic: str) -> Draft:
        """Sentences as they stand, phrases in a frame."""
        core = [stop(start_large(self._text(piece))) for piece in pieces if piece.sentence]
        phrases = [piece.text for piece in pieces if not piece.sentence]
        if self._verbosity == "terse":
            core, phrases = [_shortened(text) for text in core[:1]], [] if core else phrases[:1]
        if phrases:
            core.append(self._frame("symptom", join(phrases[:2])))
        if phrases[2:]:
            core.append(self._frame("symptoms_more", join(phrases[2:])))
        named = "; ".join(piece.text.rstrip(".") for piece in pieces)
        return Draft(core, topic, f"Told: {named}.")

    def _nothing(self, bank: str, about: str | None, kind: str, disclosed: str = "Nothing new.") -> Draft:
        """A line that tells nothing of the script."""
        simple = data()["simple"]
        keys = [f"{bank}_{about}", about, {"deflect_complaint": "deflect", "vague": "deflect"}.get(bank, bank)]
        key = next((name for name in keys if name in simple), bank)
        if self._limited and key in simple:
            return Draft([self.picker.pick(simple[key])], kind, disclosed, simple=True)
        lines = data()[bank] if about is None else data()[bank][about]
        return Draft([self.picker.pick(lines)], kind, disclosed)

    def _frame(self, name: str, words: str) -> str:
        """Words in a frame of `patient.yaml`, or bare where the persona says little."""
        if name in ("again", "open_up"):
            frames = data()["simple"]["again"] if self._limited and name == "again" else data()[name]
            return start_large(self.picker.pick(frames).replace("{x}", words))
        bare = self._limited or self._verbosity == "terse"
        frame = "{x}." if bare else self.picker.pick(data()["frames"][name])
        return stop(start_large(frame.replace("{x}", words)))

    def _text(self, piece: Piece) -> str:
        return self.picker.pick(piece.wordings) if piece.wordings else piece.text

    def _untold(self, source: str) -> list[Piece]:
        return [piece for piece in self.story.pieces(source) if not self._is_told(piece)]

    def _is_told(self, piece: Piece) -> bool:
        """Whether the patient has said most of a piece, or of its short form, already."""
        for text in piece.wordings or (piece.text,):
            for form in (text, _shortened(text)):
                words = set(re.findall(r"\w{4,}", form.lower()))
                if words and len(words & self._own_words) >= 0.7 * len(words):
                    return True
        return False


def _hear(view: PatientView) -> _Heard:
    lines = view.dialogue
    last = lines[-1].text if lines and lines[-1].speaker == "nurse" else ""
    question = _asked(last)
    earlier = tuple(
        line.text for line, after in pairwise(lines) if line.speaker == "nurse" and after.speaker == "patient"
    )
    return _Heard(last, question.topics, question.strong, question.findings, earlier)


@lru_cache(maxsize=4096)
def _asked(line: str) -> Question:
    """What a nurse's line asks about: the sentences that ask, not those before them, unless these say nothing alone."""
    parts = questions_in(line)
    question = ask(" ".join(text for text in tell_apart(line) if any(part in text for part in parts)))
    return question if question.topics or question.findings else ask(line)


def _shift(number: str, picker: Picker) -> str:
    """A number one or two beside the true one, as a bad memory gives it."""
    value = int(number) if number.isdigit() else _NUMBERS.index(number)
    moved = value + (1, 2, -1)[picker.place(3)]
    moved = value + 1 if moved < 2 else moved
    return str(moved) if number.isdigit() or moved > 10 else _NUMBERS[moved]


def _says_less(text: str) -> bool:
    """Whether a word on the pain makes it less than the number does."""
    return _LESS.search(text) is not None


def _part_about(text: str, findings: frozenset[str]) -> str:
    """The part of a phrase that holds one of the findings, else the first."""
    parts = re.split(r",\s+(?:and |but )?", text)
    return next((part for part in parts if read(part).present & findings), parts[0])


def _when(text: str) -> str:
    """The part of an onset that tells the time, without the circumstances."""
    parts = re.split(r"([,;]\s+)", text)
    for end in range(1, len(parts) + 1, 2):
        if told("onset", "".join(parts[:end])):
            return "".join(parts[:end])
    return parts[0]


def _shortened(text: str, about: frozenset[str] = frozenset()) -> str:
    """A long sentence cut to one clause: the first about a finding of `about`, or about any, else the first."""
    if len(text.split()) <= _TERSE_WORDS:
        return stop(text)
    clauses = [clause.strip() for clause in _CLAUSES.split(text) if len(clause.split()) >= 3]
    telling = [clause for clause in clauses if read(clause).present]
    asked = [clause for clause in telling if read(clause).present & about]
    return stop(start_large((asked or telling or clauses or [text])[0]))
