"""Linguistic measures of an episode, from the stored episode alone: one row each, for every table about language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from triagesim import phrasing
from triagesim.artifact import SPEAKING_RATE, is_said
from triagesim.backends.agenda.understanding import answer, ask, pain_score, sensitive
from triagesim.jsonl import write_table
from triagesim.leaks import KINDS, Leak, leaks
from triagesim.personas import ROLES, registry
from triagesim.resources import load_yaml
from triagesim.scoring import leaked_label, other_scale, score
from triagesim.speech.dialogue import SETTINGS, kind_of
from triagesim.stored import read_episodes

HEAD = ("pairing", "episode_id", "case_id", "status", "algorithm", "acuity")
#: The personas: a column a trait, and the patient's gender, which comes from the case.
TRAITS = (*(f"{role}_{trait}" for role in reversed(ROLES) for trait in registry(role).traits), "patient_gender")
FEATURES = (
    *("words", "lines", "turns", "replies", "seconds"),
    *("nurse_words", "nurse_lines", "nurse_questions", "open_questions", "closed_questions"),
    *("nurse_followed", "nurse_backchannels"),
    *("patient_words", "patient_lines", "patient_fillers", "patient_repetitions", "patient_repairs"),
    *("patient_articles", "patient_clarifications", "patient_backchannels"),
    *("mattr", "nurse_mattr", "patient_mattr"),
    *("cues", "cues_answered", "sensitive_questions", "sensitive_declined"),
    *("vitals_tried", "vitals_measured", "pain_said", "pain_recorded", "pain_shift", "level_shift"),
    *(f"leaks_{kind}" for kind in KINDS),
)
COLUMNS = (*HEAD, *TRAITS, *FEATURES)
LEAK_COLUMNS = ("pairing", "episode_id", *Leak._fields)


def write_language(episodes: Path, out: Path, leaks_out: Path) -> None:
    """Measure a shard: a row an episode (`COLUMNS`) to `out`, a row a leak (`LEAK_COLUMNS`) to `leaks_out`.

    Only episodes with status `ok` have measures: a dialogue that broke off says nothing of its length.
    """
    rows, found = [], []
    for _, episode in read_episodes(episodes):
        head = head_of(episode)
        spoken = list(leaks_of(episode)) if episode.get("status") == "ok" else []
        measured = features(episode, spoken) if episode.get("status") == "ok" else dict.fromkeys(FEATURES)
        rows.append([*head.values(), *traits_of(episode).values(), *measured.values()])
        found += [[head["pairing"], head["episode_id"], *leak] for leak in spoken]
    write_table(out, COLUMNS, rows)
    write_table(leaks_out, LEAK_COLUMNS, found)


def head_of(episode: Mapping[str, Any]) -> dict[str, Any]:
    """What names an episode, by `HEAD`."""
    case = episode.get("case") or {}
    return {
        "pairing": pairing_of(episode),
        "episode_id": episode.get("episode_id"),
        "case_id": case.get("case_id"),
        "status": episode.get("status"),
        "algorithm": episode.get("algorithm"),
        "acuity": case.get("acuity"),
    }


def pairing_of(episode: Mapping[str, Any]) -> str:
    """The pairing's name; without one the models, as the command and other simulators leave it."""
    return str(episode.get("pairing") or "/".join((episode.get("models") or {}).values()))


def traits_of(episode: Mapping[str, Any]) -> dict[str, Any]:
    """The level of each trait, by `TRAITS`; None for one that the episode's persona lacks."""
    levels: dict[str, Any] = {}
    for role in ROLES:
        levels |= {f"{role}_{trait}": level for trait, level in (episode.get(f"{role}_persona") or {}).items()}
    return {name: levels.get(name) for name in TRAITS}


def spoken_lines(episode: Mapping[str, Any]) -> list[tuple[int, str, str]]:
    """(turn, speaker, text) of each line as it was heard."""
    history = episode.get("history") or ()
    return [(line["turn"], line["actor"], line["utterance"]) for line in history if is_said(line)]


def leaks_of(episode: Mapping[str, Any]) -> Iterator[Leak]:
    """What the dialogue says that nobody in it should say."""
    case = episode.get("case") or {}
    script = episode.get("patient_script") or case.get("script") or {}
    return leaks(case, script, spoken_lines(episode))


def features(episode: Mapping[str, Any], found: list[Leak]) -> dict[str, Any]:
    """The measures of a finished episode, by `FEATURES`; None where there is nothing to measure.

    Args:
        found: its leaks.
    """
    lines = spoken_lines(episode)
    measured = {
        **_sizes(lines, episode.get("history") or ()),
        **_nurse(lines),
        **_patient(lines),
        **_diversity(lines),
        **_exchanges(lines),
        **_facts(episode, lines),
        **{f"leaks_{kind}": sum(leak.kind == kind for leak in found) for kind in KINDS},
    }
    return {name: measured[name] for name in FEATURES}


def _sizes(lines: list[tuple[int, str, str]], history: Any) -> dict[str, Any]:
    """Length. A turn is all that one speaker says until the other one does; words are split at spaces, as for `t`."""
    speakers = [speaker for _, speaker, _ in lines]
    changes = sum(one != other for one, other in pairwise(speakers))
    words = sum(len(text.split()) for _, _, text in lines)
    events = [event for event in history if event.get("event") == "vital"]
    measured = sum(event.get("value") is not None for event in events)
    return {
        "words": words,
        "lines": len(lines),
        "turns": changes + 1 if lines else 0,
        "replies": speakers.count("patient"),
        "seconds": round(60 * words / SPEAKING_RATE + _silence(lines, len(events)), 1),
        "vitals_tried": len(events),
        "vitals_measured": measured,
    }


def _silence(lines: list[tuple[int, str, str]], taken: int) -> float:
    """Seconds of pauses between the lines, as a spoken dialogue has them at its median gaps."""
    settings = load_yaml(SETTINGS)
    if not lines:
        return 0.0
    gaps = {kind: gap["median"] for kind, gap in settings["gaps"].items()}
    between = sum(gaps[kind_of(before, text, speaker)] for (_, before, text), (_, speaker, _) in pairwise(lines))
    return float(settings["edges"]["first"] + between + taken * gaps["vital"] + settings["edges"]["last"])


def _nurse(lines: list[tuple[int, str, str]]) -> dict[str, Any]:
    texts = [text for _, speaker, text in lines if speaker == "nurse"]
    forms = [form for text in texts for form in phrasing.question_forms(text)]
    # What a nurse says after a reply, line by line: any of these may show that it has listened.
    after: list[list[str]] = []
    for (_, before, _), (_, speaker, text) in pairwise(lines):
        if speaker == "nurse" and before == "patient":
            after.append([])
        if speaker == "nurse" and after:
            after[-1].append(text)
    return {
        "nurse_words": sum(len(text.split()) for text in texts),
        "nurse_lines": len(texts),
        "nurse_questions": len(forms),
        "open_questions": forms.count("open"),
        "closed_questions": forms.count("closed"),
        "nurse_followed": len(after),
        "nurse_backchannels": sum(any(map(phrasing.begins_listening, said)) for said in after),
    }


def _patient(lines: list[tuple[int, str, str]]) -> dict[str, Any]:
    texts = [text for _, speaker, text in lines if speaker == "patient"]
    return {
        "patient_words": sum(len(text.split()) for text in texts),
        "patient_lines": len(texts),
        "patient_fillers": sum(map(phrasing.fillers, texts)),
        "patient_repetitions": sum(map(phrasing.repetitions, texts)),
        "patient_repairs": sum(map(phrasing.repairs, texts)),
        "patient_articles": sum(map(phrasing.articles, texts)),
        "patient_clarifications": sum(map(phrasing.asks_back, texts)),
        "patient_backchannels": sum(map(phrasing.only_listens, texts)),
    }


def _diversity(lines: list[tuple[int, str, str]]) -> dict[str, Any]:
    said = {who: phrasing.tokens(" ".join(t for _, s, t in lines if who in (s, ""))) for who in ("nurse", "patient")}
    said[""] = [word for _, _, text in lines for word in phrasing.tokens(text)]
    found = {who: phrasing.mattr(words) for who, words in said.items()}
    return {f"{who}_mattr".lstrip("_"): None if value is None else round(value, 4) for who, value in found.items()}


def _exchanges(lines: list[tuple[int, str, str]]) -> dict[str, Any]:
    """Feelings and sensitive questions, each with what came next."""
    cues = answered = asked = declined = 0
    question = ""
    for place, (_, speaker, text) in enumerate(lines):
        if speaker == "nurse":
            question = f"{question} {text}"
            continue
        if question and ask(question).findings & sensitive():
            asked += 1
            declined += answer(text) == "declined"
        question = ""
        reply = _until_patient(lines[place + 1 :])
        if reply and phrasing.shows_feeling(text):
            cues += 1
            answered += phrasing.answers_feeling(reply)
    return {
        "cues": cues,
        "cues_answered": answered,
        "sensitive_questions": asked,
        "sensitive_declined": declined,
    }


def _until_patient(lines: list[tuple[int, str, str]]) -> str:
    """What the nurse says before the patient speaks again."""
    said = []
    for _, speaker, text in lines:
        if speaker != "nurse":
            break
        said.append(text)
    return " ".join(said)


def _facts(episode: Mapping[str, Any], lines: list[tuple[int, str, str]]) -> dict[str, Any]:
    """Pain as said against the case's, and how far the final level is from the truth (below 0: more urgent)."""
    said = _pain_said(lines)
    pain = (episode.get("case") or {}).get("pain")
    known = isinstance(pain, int | float) and not isinstance(pain, bool) and 0 <= pain <= 10
    scores = score(episode)
    gradable = scores["correct"] is not None and not other_scale(episode) and not leaked_label(episode)
    return {
        "pain_said": said,
        "pain_recorded": pain if known else None,
        "pain_shift": said - pain if known and pain is not None and said is not None else None,
        "level_shift": scores["final_triage"] - scores["ground_truth"] if gradable else None,
    }


def _pain_said(lines: list[tuple[int, str, str]]) -> float | None:
    """The first pain score that the patient gives."""
    question = ""
    for _, speaker, text in lines:
        if speaker == "nurse":
            question = f"{question} {text}"
            continue
        # "One more time, please" is no score.
        asked = "pain_score" in ask(question).topics and not phrasing.asks_back(text)
        found = pain_score(text, asked=asked)
        if found is not None:
            return found
        question = ""
    return None
