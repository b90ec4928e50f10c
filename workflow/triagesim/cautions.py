"""What a reader of a run must know before its figures: what the page and the terminal say first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from triagesim.governance import OPEN
from triagesim.resources import load_yaml


def cautions(
    flow: Mapping[str, Any],
    summary: Iterable[Mapping[str, Any]],
    manifests: Iterable[Mapping[str, Any]] = (),
    cases: Mapping[str, int] | None = None,
    levels: Mapping[str, Mapping[str, int]] | None = None,
) -> list[str]:
    """Sentences, the gravest first; each once.

    Args:
        flow: `results/cases/flow.json`.
        summary: the rows of `results/metrics/summary.csv`, numbers as numbers.
        manifests: the rows of the audio manifests.
        cases: graded cases by pairing; without it none is called few.
        levels: graded cases by pairing and level; without it the selected cases are counted.
    """
    rules = load_yaml("report/cautions.yaml")
    rows = list(summary)
    said = [*_of_data(flow, rules), *_of_counts(flow, rows, rules), *_of_own_cases(flow, rows, rules)]
    said += _of_pairings(rows, cases, rules)
    return list(dict.fromkeys([*said, *_of_levels(flow, levels, rules), *_of_voices(manifests, rules)]))


def graded_cases(agreement: Iterable[Mapping[str, str]]) -> dict[str, int]:
    """The graded cases by pairing, from the rows of `results/metrics/agreement.csv`."""
    wanted = ("all", "accuracy")
    return {row["pairing"]: int(row["cases"]) for row in agreement if (row["group"], row["measure"]) == wanted}


def graded_levels(agreement: Iterable[Mapping[str, str]]) -> dict[str, dict[str, int]]:
    """The graded cases by pairing and ground-truth level, from the same rows."""
    found: dict[str, dict[str, int]] = {}
    for row in agreement:
        if (row["group"], row["measure"]) == ("truth", "accuracy"):
            found.setdefault(row["pairing"], {})[row["level"]] = int(row["cases"])
    return found


def restricted(flow: Mapping[str, Any]) -> list[str]:
    """The kinds of data in a run whose text may not be passed on."""
    return sorted(set(flow.get("provenance", {})) - OPEN)


def _of_data(flow: Mapping[str, Any], rules: Mapping[str, Any]) -> Iterator[str]:
    if kinds := restricted(flow):
        yield rules["texts"]["restricted"].format(provenance=" and ".join(kinds))
    if set(flow.get("provenance", {})) & set(rules["observed_levels"]):
        yield rules["texts"]["observed"]


def _of_counts(flow: Mapping[str, Any], rows: list[Mapping[str, Any]], rules: Mapping[str, Any]) -> Iterator[str]:
    sums = [
        ("rows read", flow["read"], "accepted and rejected", flow["accepted"] + flow["rejected"]),
        ("cases accepted", flow["accepted"], "selected and not selected", flow["selected"] + flow["not_selected"]),
    ]
    for row in rows:
        ended = sum(row[status] for status in ("ok", "skipped", "error"))
        sums.append((f"episodes of {row['pairing']}", row["episodes"], "finished, skipped and failed", ended))
    for whole, count, parts, total in sums:
        if count != total:
            yield rules["texts"]["flow"].format(what=f"{count} {whole}, but {total} {parts}")


def _of_pairings(
    rows: list[Mapping[str, Any]], cases: Mapping[str, int] | None, rules: Mapping[str, Any]
) -> Iterator[str]:
    texts = rules["texts"]
    for label in sorted({label for row in rows for label in _labels(row)}):
        kind = next((kind for kind in ("demo", "baseline") if label.startswith(kind)), "label")
        named = [row for row in rows if label in _labels(row)]
        beside = [row for row in named if kind == "baseline" and len(_models(row)) > 1]
        if alone := [row for row in named if row not in beside]:
            yield texts[kind].format(pairing=_names(alone), label=label)
        if beside:
            yield texts["baseline_beside"].format(pairing=_names(beside), label=label)
    for row in rows:
        for key in ("leaked_label", "other_scale", "error"):
            if row[key]:
                yield texts[key].format(pairing=row["pairing"], n=row[key], episodes=row["episodes"])
    yield from _of_completion(rows, texts)
    unchecked = [row for row in rows if row.get("unchecked_speech")]
    if unchecked:
        counted = _cases([row["unchecked_speech"] for row in unchecked])
        yield texts["unchecked_speech"].format(pairing=_names(unchecked), n=counted)
    if nothing := [row for row in rows if not row["graded"]]:
        yield texts["nothing"].format(pairing=_names(nothing))
    least = rules["few_cases"]
    few = [row for row in rows if cases is not None and row["graded"] and cases.get(row["pairing"], 0) < least]
    if cases is not None and few:
        counts = ", ".join(str(cases.get(row["pairing"], 0)) for row in few)
        yield texts["few"].format(pairing=_names(few), n=counts, least=least)


def _of_own_cases(flow: Mapping[str, Any], rows: list[Mapping[str, Any]], rules: Mapping[str, Any]) -> Iterator[str]:
    """That a baseline plays the cases with which it was written."""
    own = [row for row in rows if any(label.startswith("baseline") for label in _labels(row))]
    if own and flow.get("source") in rules["written_with"] and set(flow.get("provenance", {})) <= {"synthetic"}:
        yield rules["texts"]["circular"].format(source=flow["source"], pairing=_names(own))


def _of_completion(rows: list[Mapping[str, Any]], texts: Mapping[str, str]) -> Iterator[str]:
    judged = [row for row in rows if row.get("judged") and row.get("completion_labels")]
    for labels in dict.fromkeys(row["completion_labels"] for row in judged):
        same = [row for row in judged if row["completion_labels"] == labels]
        judge = same[0]["completion_judge"]
        yield texts["completion"].format(pairing=_names(same), judge=judge, labels=labels)


def _labels(row: Mapping[str, Any]) -> list[str]:
    return [label for label in (row["labels"] or "").split("; ") if label]


def _models(row: Mapping[str, Any]) -> set[str]:
    return {row[key] for key in ("nurse_model", "patient_model", "judge_model") if row.get(key)}


def _cases(counts: list[int]) -> str:
    """As "1 case", "9 cases each" or "9, 3 cases"."""
    if len(set(counts)) > 1:
        return f"{', '.join(map(str, counts))} cases"
    return f"{counts[0]} case{'s' if counts[0] != 1 else ''}{' each' if len(counts) > 1 else ''}"


def _names(rows: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(str(row["pairing"]) for row in rows)


def _of_levels(
    flow: Mapping[str, Any], levels: Mapping[str, Mapping[str, int]] | None, rules: Mapping[str, Any]
) -> Iterator[str]:
    """What holds of every pairing without their names: a pairing may take fewer cases than are selected."""
    by_pairing = levels or {"": flow["selected_by_acuity"]}
    said: dict[str, list[str]] = {}
    for pairing, counts in by_pairing.items():
        for text in _of_level_counts({level: counts.get(level, 0) for level in "12345"}, rules):
            said.setdefault(text, []).append(pairing)
    for text, pairings in said.items():
        everywhere = len(pairings) == len(by_pairing)
        yield text if everywhere else f"{', '.join(pairings)}: {text[:1].lower()}{text[1:]}"


def _of_level_counts(counts: Mapping[str, int], rules: Mapping[str, Any]) -> Iterator[str]:
    labelled = sum(counts.values())
    # With fewer cases than one level needs, that there are few says it all.
    if labelled < rules["smallest_level"]:
        return
    level, most = max(counts.items(), key=lambda item: item[1])
    if most / labelled > rules["largest_share"]:
        yield rules["texts"]["majority"].format(level=level, share=most / labelled)
    rare = [level for level, count in counts.items() if count < rules["smallest_level"]]
    if rare:
        levels = ("levels " if len(rare) > 1 else "level ") + ", ".join(rare)
        yield rules["texts"]["rare"].format(levels=levels.capitalize(), least=rules["smallest_level"])


def _of_voices(manifests: Iterable[Mapping[str, Any]], rules: Mapping[str, Any]) -> Iterator[str]:
    for row in manifests:
        engine = row.get("engine") or {}
        if engine.get("fallback"):
            yield rules["texts"]["fallback"].format(engine=engine["name"], why=engine["fallback"])
        licence = str(engine.get("licence") or "")
        if re.search(rules["non_commercial"], licence):
            yield rules["texts"]["voices"].format(engine=engine["name"], licence=licence)
