"""How a patient says what it says: what each trait of the persona does to an answer's words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from triagesim.backends.agenda.story import Story, data
from triagesim.backends.agenda.understanding import read
from triagesim.backends.agenda.wording import Picker, start_large, start_small


@dataclass(frozen=True)
class Draft:
    """An answer before manner.

    Attributes:
        core: its sentences.
        kind: what it is: a topic, `yes`, `no`, `none`, `unsure`, `vague`, `deflect`, `nothing` or `misread`.
        disclosed: the patient's own account of what it reveals.
        simple: whether it is in simple English already.
    """

    core: list[str]
    kind: str
    disclosed: str
    simple: bool = False


# How often a trait adds a line to a reply.
_SHARE = {
    "minimising": 0.55,
    "amplifying": 0.55,
    "anxious": 0.4,
    "highly_distressed": 0.7,
    "impatient": 0.4,
    "hostile": 0.6,
    "occasional_tangents": 0.25,
    "frequent_tangents": 0.6,
    "impaired": 0.4,
    "delirious": 0.75,
    "mild": 0.2,
    "marked": 0.5,
}
# The most words of a line that a terse speaker adds, and one who can hardly speak.
_TERSE_LINE = 7
_GASPED = 3
# How often a wrong word comes first and is put right.
_SLIPS = {"moderate": 0.2, "high": 0.45}
# Answers that are short by nature: lines are added after them only.
_SHORT = frozenset({"yes", "no", "none", "score", "zero", "unsure", "allergies", "medications", "history", "onset"})
# Answers in which a symptom is put stronger or weaker than it is.
_ABOUT_SYMPTOMS = frozenset({"complaint", "quality", "location", "score", "associated", "duration", "yes", "more"})
# Words after which a symptom stands as a noun.
_NOUN_AHEAD = r"\b((?:an?|the|this|of|got|have|dull|sharp|throbbing|constant|odd) )"
_WORD = re.compile(r"[\w'’-]+")
_STOPS = re.compile(r"[,;:.!?…]+")
_JOINTS = re.compile(r"\b(?:and|but|because|so|then)\b")
_WHENS = re.compile(r"\b(?:when|while|until)\b")
# The most words of a piece of a sentence in little English.
_PIECE_WORDS = 7
_FILLER_AHEAD = re.compile(r"(?:um|uh|er|uhm|you know|i mean|like)\b", re.IGNORECASE)
_FILLER_BEHIND = re.compile(r"\b(?:um|uh|er|uhm|you know|i mean|like)$", re.IGNORECASE)


def speak(draft: Draft, persona: dict[str, str], story: Story, picker: Picker, *, first: bool) -> str:
    """An answer in the manner of a persona, in the state that the story's patient is in.

    Args:
        first: the patient's first words in the dialogue, where nothing can have been asked before.
    """
    phrases = data()
    core = list(draft.core)
    english = persona.get("english_proficiency", "fluent")
    if draft.kind == "misread":
        return core[0]
    if story.cognitive_state == "delirious" and draft.kind not in ("complaint", "deflect") and picker.chance(0.3):
        core = []
    core = [_lay(text, persona.get("health_literacy", "adequate"), picker) for text in core]
    if draft.kind in _ABOUT_SYMPTOMS:
        core = [_coloured(text, persona.get("symptom_reporting", "faithful"), picker) for text in core]
    before, after = _added(draft, persona, story, picker, first=first)
    level = persona.get("disfluency", "low")
    if core and english != "limited" and picker.chance(_SLIPS.get(level, 0.01)):
        core[0] = _substituted(core[0], picker)
    if english != "fluent":
        if not draft.simple:
            core = [_accented(text, english, persona.get("verbosity", "typical"), picker) for text in core]
        if english == "limited" and core and not draft.simple and not after and picker.chance(0.15):
            core.append(picker.pick(phrases["english"]["helpers"]))
    sentences = [text for text in (*before, *core, *after) if text.strip(" .")]
    text = " ".join(sentences) or picker.pick(phrases["manner"]["delirious"]["before"])
    return _disfluent(text, "low" if story.short_of_words else level, picker, plain=english == "limited")


def _added(
    draft: Draft, persona: dict[str, str], story: Story, picker: Picker, *, first: bool
) -> tuple[list[str], list[str]]:
    """The lines that traits add before and after an answer, a few at most."""
    manner = data()["manner"]
    limited = persona.get("english_proficiency") == "limited"
    longest = _GASPED if story.short_of_words else _TERSE_LINE if persona.get("verbosity") == "terse" else None
    most = 1 if limited or longest is not None or draft.kind in _SHORT else 2
    before: list[str] = []
    after: list[str] = []
    for level in _levels(persona, story, picker):
        if len(before) + len(after) >= most or not picker.chance(_SHARE.get(level, 0.0)):
            continue
        if level in ("minimising", "amplifying") and draft.kind not in _ABOUT_SYMPTOMS:
            continue
        if limited:
            after += picker.fresh(data()["simple"]["tangents" if level.endswith("tangents") else level])[:1]
        elif level.endswith("tangents"):
            after += _tangent(persona, picker)
        else:
            ahead = "before" in manner[level] and not before and draft.kind not in _SHORT and picker.chance(0.5)
            side = "before" if ahead or "after" not in manner[level] else "after"
            lines = manner[level]["first" if first and "first" in manner[level] else side]
            fresh = [line for line in picker.fresh(lines) if longest is None or len(line.split()) <= longest]
            (before if side == "before" else after).extend(fresh[:1])
    clear = story.cognitive_state == "alert" and story.intoxication != "marked"
    if persona.get("verbosity") == "expansive" and clear and draft.kind not in ("deflect", "score", "zero"):
        lines = data()["simple"]["expansive"] if limited else data()["expansive"]
        room = 2 if draft.kind not in _SHORT and not before and not after else 1
        after = [*picker.fresh(lines)[:room], *after]
    return before, after


def _levels(persona: dict[str, str], story: Story, picker: Picker) -> list[str]:
    """What may add a line: the patient's state first, then the traits in random order."""
    traits = [persona.get(name, "") for name in ("distress", "demeanour", "symptom_reporting", "focus")]
    states = [level for level in (story.cognitive_state, story.intoxication) if level in data()["manner"]]
    return [*states, *picker.shuffled(traits)]


def _tangent(persona: dict[str, str], picker: Picker) -> list[str]:
    """A stray remark and now and then the way back; of a terse speaker a short remark at most."""
    manner = data()["manner"]["tangent"]
    fresh = picker.fresh(manner[persona.get("age_group", "adult")])[:1]
    if persona.get("verbosity") == "terse":
        return [line for line in fresh if len(line.split()) <= _TERSE_LINE + 2]
    back = picker.fresh(manner["back"])[:1]
    return [*fresh, *(back if fresh and picker.chance(0.5) else [])]


def _lay(text: str, literacy: str, picker: Picker) -> str:
    """Everyday stand-ins for medical words."""
    if literacy == "adequate":
        return text
    seen: set[str] = set()

    def stand_in(says: str) -> str:
        again = says in seen
        seen.add(says)
        return "another one" if again else says

    for pattern, says in _stand_ins():
        if literacy == "limited" or picker.chance(0.4):
            text = pattern.sub(lambda _, says=says: stand_in(says), text)  # type: ignore[misc]
    return start_large(re.sub(r"\b(?:my|the|an?|some) ((?:my|the|an?|some)\b)", r"\1", text, flags=re.IGNORECASE))


@cache
def _stand_ins() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(rf"\b(?:{entry['words']})\b(?!'s)", re.IGNORECASE), entry["says"]) for entry in data()["lay"]]


def _coloured(text: str, reporting: str, picker: Picker) -> str:
    """A symptom in weaker or stronger words: every strong word softened, or one noun strengthened."""
    if reporting == "minimising":
        for word, weaker in data()["soften"].items():
            text = re.sub(rf"\b{word}\b", weaker, re.sub(rf"^{start_large(word)}\b", start_large(weaker), text))
    elif reporting == "amplifying":
        for word in picker.shuffled(sorted(data()["strengthen"])):
            stronger = rf"\1{data()['strengthen'][word]}"
            new, count = re.subn(rf"{_NOUN_AHEAD}{word}\b", stronger, text, count=1)
            if count:
                # The new word begins with a consonant.
                return re.sub(rf"\b([Aa])n (?={data()['strengthen'][word]})", r"\1 ", new)
    return text


def _accented(text: str, level: str, verbosity: str, picker: Picker) -> str:
    """A sentence in imperfect English; a small word that carries the sense stays ("a little", "one hour")."""
    rules: dict[str, Any] = data()["english"]
    words = text.replace("’", "'").split()
    dropped = rules["glue"] if level == "limited" else rules["small"]
    kept: list[str] = []
    for word, after in zip(words, [*words[1:], ""], strict=True):
        plain = word.lower().strip(",.;:!?")
        tail = word[len(word.rstrip(",.;:!?")) :]
        follows = after.lower().strip(",.;:!?")
        if plain in ("a", "an") and (follows in rules["kept"] or follows in rules["one"]):
            word = "a" if follows in rules["kept"] else "one"
            kept.append(word if kept else start_large(word))
            continue
        if plain in dropped and (level == "limited" or picker.chance(0.5)):
            if kept and tail:
                kept[-1] = kept[-1].rstrip(",.;:!?") + tail
            continue
        form = rules["forms"].get(plain)
        if form and (level == "limited" or picker.chance(0.6)):
            word = (start_large(form) if word[:1].isupper() else form) + tail
        kept.append(word)
    text = " ".join(kept)
    if level == "limited":
        return _in_pieces(text, {"terse": 1, "typical": 3, "expansive": 5}[verbosity])
    return start_large(text)


def _in_pieces(text: str, most: int) -> str:
    """Short pieces in place of a sentence."""
    mark = "?" if text.endswith("?") else "."
    pieces = [cut for piece in _STOPS.split(text) for cut in _cut(piece.strip()) if len(cut) > 2]
    telling = [piece for piece in pieces if read(piece).present]
    if len(pieces) > most and telling:
        pieces = [piece for piece in pieces if piece in telling or (most > 1 and piece == pieces[0])]
    return " ".join(f"{start_large(piece)}{mark if number == 0 else '.'}" for number, piece in enumerate(pieces[:most]))


def _cut(piece: str) -> list[str]:
    """A piece as it is if it is short, else cut before its joining words; none ends in the middle of a phrase."""
    if len(piece.split()) <= _PIECE_WORDS:
        return [piece]
    parts = [part for clause in _JOINTS.split(piece) for part in _parted(clause)]
    found = []
    for part in parts:
        words = part.split()[:_PIECE_WORDS]
        while (
            len(words) > 1 and len(words) < len(part.split()) and words[-1].lower() in data()["english"]["unfinished"]
        ):
            words.pop()
        found.append(" ".join(words))
    return found


def _parted(clause: str) -> list[str]:
    """A clause, cut before the words that tell when, if it is long."""
    return [clause] if len(clause.split()) <= _PIECE_WORDS else _WHENS.split(clause)


def _disfluent(text: str, level: str, picker: Picker, *, plain: bool) -> str:
    """Speech with filled pauses, repetitions, insertions and broken-off words.

    Args:
        plain: no idle words are put in (`you know`): of somebody who has little of the language.
    """
    count = len(text.split())
    wanted = {"moderate": 1 + (count > 16), "high": max(2, min(5, 1 + count // 5))}.get(level, int(picker.chance(0.06)))
    if count < 2:
        wanted = min(wanted, 1)
    kinds = [_filled, _repeated, _broken] if plain else [_filled, _repeated, _inserted, _broken]
    done = 0
    order = [*([_filled] if picker.chance(0.5) else []), *picker.shuffled(kinds), *picker.shuffled(kinds[1:])]
    for kind in order:
        if done >= wanted:
            break
        new = kind(text, picker)
        if new != text:
            text, done = new, done + 1
    return text


def _filled(text: str, picker: Picker) -> str:
    """A filled pause at the start, or after a comma; never beside another filler."""
    pause = picker.pick(data()["disfluency"]["filled"])
    commas = _free_commas(text)
    if commas and (picker.chance(0.5) or _FILLER_AHEAD.match(text)):
        place = commas[picker.place(len(commas))]
        return f"{text[:place]} {pause},{text[place:]}"
    return text if _FILLER_AHEAD.match(text) else f"{start_large(pause)}, {start_small(text)}"


def _free_commas(text: str) -> list[int]:
    """Where a filler may stand: behind each comma that has none on either side."""
    places = [match.end() - 1 for match in re.finditer(r", ", text)]
    return [
        place
        for place in places
        if not _FILLER_AHEAD.match(text, place + 1) and not _FILLER_BEHIND.search(text, 0, place - 1)
    ]


def _repeated(text: str, picker: Picker) -> str:
    """A small word said twice."""
    small = set(data()["disfluency"]["repeated"])
    places = [m for m in _WORD.finditer(text) if m[0].lower() in small and text[m.end() : m.end() + 1] == " "]
    if not places:
        return text
    match = places[picker.place(len(places))]
    again = match[0] if match[0] == "I" or match[0].startswith("I'") else match[0].lower()
    return f"{text[: match.end()]}, {again}{text[match.end() :]}"


def _inserted(text: str, picker: Picker) -> str:
    """Words that say nothing, at a comma."""
    commas = _free_commas(text)
    words = picker.pick(data()["disfluency"]["inserted"])
    if commas:
        place = commas[picker.place(len(commas))]
        return f"{text[:place]} {words},{text[place:]}"
    ends = [match.start() for match in re.finditer(r"\.(?= |$)", text)]
    return f"{text[: ends[-1]]}, {words}{text[ends[-1] :]}" if ends and words == "you know" else text


def _substituted(text: str, picker: Picker) -> str:
    """A wrong word put right at once."""
    table: dict[str, str] = data()["disfluency"]["substituted"]
    places = [
        match for match in _WORD.finditer(text) if match[0] in table and text[match.end() : match.end() + 1] == " "
    ]
    if not places:
        return text
    match = places[picker.place(len(places))]
    return f"{text[: match.start()]}{table[match[0]]}{text[match.end() :]}"


def _broken(text: str, picker: Picker) -> str:
    """A longer word broken off and begun again."""
    places = [
        match for match in _WORD.finditer(text) if len(match[0]) >= 5 and match[0].isalpha() and match[0].islower()
    ]
    if not places:
        return text
    match = places[picker.place(len(places))]
    cut = match[0][: 2 + picker.place(2)]
    return f"{text[: match.start()]}{cut}- {text[match.start() :]}"
