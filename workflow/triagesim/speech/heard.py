"""What recognition keeps of the spoken dialogues: word errors, clinical slots, and the level that would be given."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from triagesim.bootstrap import ALIKE, CONFIDENCE, DRAWS, draw, percentiles, ratio, wilson
from triagesim.cases import Case, Vital, with_unit
from triagesim.errors import InputError
from triagesim.jsonl import read_lines, write_table
from triagesim.resources import load_yaml
from triagesim.speech.spoken import align
from triagesim.stored import read_episodes
from triagesim.views import NurseView, Spoken, facts_for

HEADER = ["pairing", "measure", "value", "low", "high", "n", "note"]
_FILE = "speech/asr.yaml"
_ROLES = ("nurse", "patient")


class Counts(NamedTuple):
    """Errors and what they are out of, for each measure of a dialogue; and its two levels, from text and as heard."""

    pairing: str
    errors: dict[str, int]
    of: dict[str, int]
    levels: tuple[int, int] | None


@lru_cache(maxsize=8192)
def compared(text: str) -> str:
    """A text in the form in which what was said and what was heard are compared; `resources/speech/asr.yaml`."""
    said = "".join(" " if span.kind == "cut_off" else span.spoken for span in align(text)).lower()
    said = " ".join(re.sub(r"[^\w' ]|(?<!\w)'|'(?!\w)|_", " ", said).split())
    for find, say in _replacements():
        said = find.sub(say, said)
    return " ".join(said.split())


def slots_of(text: str, medicines: Iterable[str] = ()) -> dict[str, Counter[str]]:
    """The clinical slots of a text in compared form, by kind.

    Args:
        medicines: names beside those of the list.
    """
    names = frozenset(compared(name) for name in medicines) - {""}
    return {kind: Counter(match[0] for match in find.finditer(text)) for kind, find in _slots(names).items()}


def count(heard: Mapping[str, Any], episode: Mapping[str, Any]) -> Counts:
    """Compare a dialogue as it was heard with what it says.

    Raises:
        InputError: its lines aren't those of the episode.
    """
    import jiwer

    said = [(line["speaker"], line["text"]) for line in episode["transcript"]]
    if said != [(line["speaker"], line["text"]) for line in heard["lines"]]:
        raise InputError(
            f"{heard['pairing']}/{heard['episode_id']}: what was heard is of another dialogue; transcribe anew"
        )
    errors: Counter[str] = Counter()
    of: Counter[str] = Counter()
    medicines = (episode.get("case") or {}).get("medications") or ()
    for line in heard["lines"]:
        wanted, got = compared(line["text"]), compared(line["heard"])
        words = jiwer.process_words(wanted, got) if wanted else None
        wrong = words.substitutions + words.deletions + words.insertions if words else len(got.split())
        for measure in ("wer", f"wer_{line['speaker']}"):
            errors[measure] += wrong
            of[measure] += len(wanted.split())
        found = slots_of(got, medicines)
        for kind, slots in slots_of(wanted, medicines).items():
            errors[f"{kind}_missed"] += (slots - found[kind]).total()
            errors[f"{kind}_added"] += (found[kind] - slots).total()
            of[f"{kind}_missed"] += slots.total()
            of[f"{kind}_added"] += slots.total()
    texts = [line["heard"] for line in heard["lines"]]
    levels = decide(episode, [text for _, text in said]), decide(episode, texts)
    return Counts(heard["pairing"], dict(errors), dict(of), levels)


def decide(episode: Mapping[str, Any], lines: Sequence[str]) -> int:
    """The level that the agenda nurse gives at the end of an episode whose lines read so.

    It hears the dialogue up to the last reply and sees what was measured, as the nurse of the episode did.

    Args:
        lines: a text for each line of the transcript, in its order.
    """
    from triagesim.backends.agenda.nurse import step

    dialogue = [
        Spoken(speaker=line["speaker"], text=text) for line, text in zip(episode["transcript"], lines, strict=True)
    ]
    while dialogue and dialogue[-1].speaker == "nurse":
        dialogue.pop()
    case = Case.model_validate(episode["case"])
    persona = {key: str(value) for key, value in (episode.get("nurse_persona") or {}).items() if value is not None}
    group = (episode.get("patient_persona") or {}).get("age_group")
    view = NurseView(
        algorithm=cast(Literal["esi", "ats"], episode["algorithm"]),
        facts=facts_for("nurse", case, age_group=group, unwell=""),
        persona=persona,
        dialogue=tuple(dialogue),
        vitals=_measured(episode["history"]),
        red_flags=(),
        record=None,
        actions=("end",),
        vitals_open=(),
        heard_reply=bool(dialogue),
        questions_asked=sum(line.speaker == "patient" for line in dialogue),
        questions_left=0,
        infer=None,
    )
    return step(view, 0).triage


def write_metrics(pool: Path, heard: Sequence[Path], out: Path, seed: int) -> None:
    """The table of all pairings, and of each: `results/metrics/asr.csv`.

    Raises:
        InputError: what was heard isn't of this pool.
    """
    rows = [row for path in heard for _, row in read_lines(path)]
    wanted = {(row["pairing"], row["episode_id"]) for row in rows}
    episodes = {
        key: row for _, row in read_episodes(pool) if (key := (row.get("pairing"), row.get("episode_id"))) in wanted
    }
    for row in rows:
        if (row["pairing"], row["episode_id"]) not in episodes:
            raise InputError(f"{row['pairing']}/{row['episode_id']} was heard and isn't in {pool}; transcribe anew")
    counts = [count(row, episodes[row["pairing"], row["episode_id"]]) for row in rows]
    who = "; ".join(sorted({f"{row['recogniser']['name']} on {row['engine']}" for row in rows}))
    table = []
    for pairing in [*dict.fromkeys(each.pairing for each in counts), "all"]:
        table += summary(pairing, [each for each in counts if pairing in (each.pairing, "all")], who, seed)
    write_table(out, HEADER, table)


def summary(pairing: str, counts: Sequence[Counts], note: str, seed: int) -> list[list[Any]]:
    """The rows of some dialogues: rates with intervals over dialogues drawn anew, shares with Wilson's."""
    import numpy as np

    rows: list[list[Any]] = []
    for measure in _measures():
        pairs = np.array([[each.errors.get(measure, 0), each.of.get(measure, 0)] for each in counts], dtype=float)
        errors, of = pairs.sum(axis=0) if len(pairs) else (0.0, 0.0)
        if not of:
            rows.append([pairing, measure, None, None, None, 0, f"{note}; nothing of it was said"])
            continue
        low, high, _ = percentiles(draw(pairs, DRAWS, seed), ratio, CONFIDENCE).where_drawn_apart()
        few = "; one dialogue" if len(pairs) == 1 else f"; {ALIKE}" if low is None else ""
        rows.append([pairing, measure, _rounded(errors / of), _rounded(low), _rounded(high), int(of), note + few])
    levels = [each.levels for each in counts if each.levels is not None]
    for measure, holds in _TRIAGE.items():
        share = sum(holds(*pair) for pair in levels) / len(levels) if levels else None
        low, high = wilson(share, len(levels), CONFIDENCE) if share is not None else (None, None)
        decided = f"{note}; level by the agenda nurse"
        rows.append([pairing, measure, _rounded(share), _rounded(low), _rounded(high), len(levels), decided])
    return rows


_TRIAGE: dict[str, Callable[[int, int], bool]] = {
    "triage_agreement": lambda text, heard: text == heard,
    "triage_more_urgent": lambda text, heard: heard < text,
    "triage_less_urgent": lambda text, heard: heard > text,
}


def _measures() -> list[str]:
    kinds = load_yaml(_FILE)["slots"]
    return [
        "wer",
        *(f"wer_{role}" for role in _ROLES),
        *(f"{kind}_{how}" for kind in kinds for how in ("missed", "added")),
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 4)


def _measured(history: Sequence[Mapping[str, Any]]) -> dict[Vital, str | None]:
    """The vital signs of a history as its nurse saw them."""
    found: dict[Vital, str | None] = {}
    for entry in history:
        if entry.get("event") == "vital":
            value = entry.get("value") if entry.get("measurable") is not False else None
            found[entry["name"]] = None if value is None else with_unit(entry["name"], value)
    return found


@cache
def _replacements() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(find), say) for find, say in load_yaml(_FILE)["replace"]]


@lru_cache(maxsize=1024)
def _slots(more: frozenset[str]) -> dict[str, re.Pattern[str]]:
    """The expressions of the slots, with the names of some further medicines."""
    data = load_yaml(_FILE)
    word = f"(?:{'|'.join(data['number_words'])})"
    names = sorted({name for group in data["medicines"] for name in group} | more, key=len, reverse=True)
    macros = {"number": rf"\b{word}(?: {word})*\b", "medicine": "|".join(map(re.escape, names))}
    filled = {
        kind: re.sub(r"\$(number|medicine)", lambda match: macros[match[1]], find)
        for kind, find in data["slots"].items()
    }
    return {kind: re.compile(find) for kind, find in filled.items()}
