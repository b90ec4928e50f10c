"""The rows that one stored episode gives to the dataset's three tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from triagesim.artifact import RECORD_FIELDS, is_said
from triagesim.cases import FAHRENHEIT_FROM, VITALS
from triagesim.dataset.columns import TableName, trait_columns
from triagesim.jsonl import dumps
from triagesim.quality import pain_status
from triagesim.scoring import leaked_label, other_scale, score
from triagesim.splits import patient_key
from triagesim.views import OLDEST_TOLD

Row = dict[str, Any]

SIMULATED = "simulated dialogue: no nurse and no patient said it"
SYNTHETIC = "synthetic patient"

_UNITS = {"temperature": "degF", "heartrate": "/min", "resprate": "/min", "o2sat": "%", "sbp": "mmHg"}


def rows_of(
    episode: Mapping[str, Any],
    split: str,
    *,
    provenance: str,
    hide: Callable[[str], str] | None,
    spoken: Mapping[str, Any] | None,
) -> dict[TableName, list[Row]]:
    """The rows of an episode by table, with the keys of `columns`.

    Args:
        provenance: of its case.
        hide: what stands for an identifier; None where identifiers may stay.
        spoken: its row of an audio manifest, if it was spoken.
    """
    case = episode["case"]
    case_id, patient = str(case["case_id"]), patient_key(case)
    number = str(episode["episode_id"])[len(case_id) + 1 :]
    hidden = (hide(case_id), hide(patient)) if hide else (case_id, patient)
    episode_id = f"{hidden[0]}-{number}"
    pairing = episode.get("pairing") or ""
    key = {"dialogue_id": f"{pairing}/{episode_id}" if pairing else episode_id, "split": split}
    lines, vitals = _said(episode)
    dialogue = {
        **key,
        "pairing": pairing,
        "episode_id": episode_id,
        "case_id": hidden[0],
        "patient_id": hidden[1],
        "provenance": provenance,
        **_about(episode, provenance),
        **_case(case, capped=hide is not None),
        "patient_script": dumps(episode["patient_script"]) if episode.get("patient_script") else None,
        **_outcome(episode, len(lines)),
        **_recording(spoken, named=hide is None),
        **_personas(episode),
    }
    times = _audio_times(lines, spoken)
    return {
        "dialogues": [dialogue],
        "utterances": [{**key, **line, **time} for line, time in zip(lines, times, strict=True)],
        "vitals": [{**key, **vital} for vital in vitals],
    }


def _about(episode: Mapping[str, Any], provenance: str) -> Row:
    """What must be known of a dialogue before a figure of it is used, and who spoke."""
    labels = [SIMULATED, *([SYNTHETIC] if provenance == "synthetic" else [])]
    models = episode.get("models") or {}
    return {
        "labels": labels + sorted(set((episode.get("labels") or {}).values())),
        "leaked_label": leaked_label(episode),
        "other_scale": other_scale(episode),
        "algorithm": episode.get("algorithm"),
        **{f"{role}_model": models.get(role) for role in ("nurse", "patient", "judge")},
    }


def _case(case: Mapping[str, Any], capped: bool) -> Row:
    """What the case says, field by field: what it holds beside these (times, race, other ids) stays behind.

    Args:
        capped: whether the patient is real, so that a greater age than `OLDEST_TOLD` isn't told.
    """
    age, vitals, pain = case.get("age"), case.get("vitals") or {}, case.get("pain")
    status = pain_status(pain)
    return {
        "chief_complaint": case.get("chief_complaint"),
        "age": min(age, OLDEST_TOLD) if capped and age is not None else age,
        "gender": case.get("gender"),
        "arrival_transport": case.get("arrival_transport"),
        "pain_score": pain if status == "score" else None,
        "pain_status": status,
        **{f"case_{name}": vitals.get(name) for name in VITALS},
        **{name: case.get(name) or [] for name in ("diagnoses", "medications", "expert_red_flags")},
        "prior_ed_visits": case.get("prior_ed_visits"),
    }


def _outcome(episode: Mapping[str, Any], lines: int) -> Row:
    scores = score(episode)
    taken = ("final_triage", "correct", "first_correct_turn", "end_reason", "num_turns", "num_vitals")
    record = episode.get("record") or {}
    return {
        "acuity": scores["ground_truth"],
        "acuity_scale": episode["case"].get("acuity_scale") or episode.get("algorithm"),
        **{name: scores[name] for name in (*taken, "flagged_utterances", "edited_utterances")},
        "num_lines": lines,
        "red_flags": episode.get("red_flags") or [],
        **{f"record_{field}": record.get(field) for field in RECORD_FIELDS},
    }


def _personas(episode: Mapping[str, Any]) -> Row:
    found: Row = {}
    for role in ("nurse", "patient"):
        levels = episode.get(f"{role}_persona") or {}
        found |= {name: levels.get(name.removeprefix(f"{role}_")) for name in trait_columns(role)}
    return found


def _said(episode: Mapping[str, Any]) -> tuple[list[Row], list[Row]]:
    """The spoken lines and the vital signs taken, without what was kept out of the transcript."""
    lines: list[Row] = []
    vitals: list[Row] = []
    for entry in episode.get("history") or ():
        if entry.get("event") == "vital":
            vitals.append(_vital(entry, len(lines)))
        elif is_said(entry):
            lines.append(_line(entry, len(lines)))
    return lines, vitals


def _line(entry: Mapping[str, Any], number: int) -> Row:
    information, check = entry.get("information") or {}, entry.get("verification")
    return {
        "line": number,
        "turn": entry.get("turn"),
        "speaker": entry.get("actor"),
        "text": entry["utterance"],
        "start_s": entry.get("t"),
        **{name: entry.get(name) for name in ("triage", "action", "infers")},
        **{name: information.get(name) for name in ("disclosed", "understood", "conveyed")},
        "passed": check.get("passed") if check else None,
        "edited": bool(check.get("edited")) if check else None,
        "rejected_drafts": len(check.get("rejected") or ()) if check else None,
    }


def _vital(entry: Mapping[str, Any], lines: int) -> Row:
    name, value = entry.get("name"), entry.get("value")
    celsius = name == "temperature" and value is not None and value < FAHRENHEIT_FROM
    return {
        "after_turn": entry["turn"] - 1,
        "after_line": lines - 1,
        "name": name,
        "value": value,
        "unit": "degC" if celsius else _UNITS.get(str(name)),
        "measurable": value is not None,
        "at_s": entry.get("t"),
    }


def _recording(spoken: Mapping[str, Any] | None, named: bool) -> Row:
    found = spoken or {}
    return {
        "audio_file": found.get("file") if named else None,
        "audio_sha256": found.get("sha256"),
        "audio_duration_s": found.get("duration_s"),
        "audio_engine": (found.get("engine") or {}).get("name"),
    }


def _audio_times(lines: list[Row], spoken: Mapping[str, Any] | None) -> list[Row]:
    """Begin and end of each line in the recording; nothing where the recording isn't of these very lines."""
    timed = (spoken or {}).get("lines") or []
    same = [entry.get("text") for entry in timed] == [line["text"] for line in lines]
    found = timed if same else [{}] * len(lines)
    return [{"audio_start_s": entry.get("start"), "audio_end_s": entry.get("end")} for entry in found]
