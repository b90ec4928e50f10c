"""The summary of a run by pairing, and the few lines shown at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from triagesim.cautions import cautions, graded_cases, graded_levels, restricted
from triagesim.completion import Judge
from triagesim.config import Model, Score
from triagesim.environment import as_seen
from triagesim.errors import InputError
from triagesim.governance import attributions
from triagesim.jsonl import read_json, read_table, write_json, write_table
from triagesim.measured import rates
from triagesim.pairing import ResolvedPairing
from triagesim.resources import load_yaml
from triagesim.scoring import summarize_scores
from triagesim.shards import of_run
from triagesim.stored import read_model, read_recordings

#: The tables of agreement, `results/metrics/<name>.csv` (`triagesim.metric_tables`).
TABLES = ("agreement", "confusion", "comparisons", "economy", "calibration", "behaviour", "status", "references")
#: Pairings that the first closing line names for one limit; of more it says how many.
MOST_NAMES = 3
#: Columns that stay text, whatever stands in them.
_TEXTS = frozenset({"pairing", "episode_id", "case_id", "levels", "subject"})
_WORDS = {"true": True, "false": False, "": None}


def summarise(
    scores: Iterable[Path],
    pairings: Iterable[Path],
    selected: Path,
    usage: Iterable[Path],
    measures: Iterable[Path],
    options: Score,
    out_dir: Path,
    judge: Path | None = None,
) -> list[dict[str, Any]]:
    """Write `summary.csv`, `summary.json` (one row a pairing), `usage.json` (what each pairing took) and every table of
    agreement (`triagesim.metric_tables`) into `out_dir`.

    Args:
        usage: what each shard took, `<pairing>/<shard>.json`.
        measures: the measures of each shard's episodes (`triagesim.measured`).
        judge: `results/completion/judge.json`; None where no completion was judged.

    Raises:
        InputError: the episodes don't add up to the selected cases; the text names what is missing or too much.
    """
    from triagesim.metric_tables import write_tables
    from triagesim.score_rows import Scores, columns, read_scores

    scored = read_scores(scores).by("pairing")
    measured: dict[str, list[Path]] = {}
    for path in measures:
        measured.setdefault(path.parent.name, []).append(path)
    chosen = list(read_table(selected))
    cases = [row["case_id"] for row in chosen]
    judging = read_model(judge, Judge) if judge else None
    rows, by_pairing = [], {}
    for path in pairings:
        pairing = read_model(path, ResolvedPairing)
        by_pairing[pairing.name] = scored.get(pairing.name, Scores({name: [] for name in columns()}))
        found = by_pairing[pairing.name].rows()
        _assert_complete(pairing, found, cases)
        rows.append(
            {
                **_row(pairing, found),
                "unchecked_speech": _unchecked_speech(pairing, chosen),
                **rates(row for path in measured.get(pairing.name, ()) for row in read_values(path)),
                **_completion_judge(pairing, judging),
            }
        )
    write_tables(by_pairing, options, out_dir)
    write_table(out_dir / "summary.csv", list(rows[0]), [row.values() for row in rows])
    write_json(out_dir / "summary.json", {"cases": len(cases), "pairings": rows})
    write_json(out_dir / "usage.json", total_usage(usage))
    return rows


def total_usage(shards: Iterable[Path]) -> dict[str, Any]:
    """What each pairing took, number by number over its shards' files (`triagesim.usage.Account.as_json`)."""
    totals: dict[str, Any] = {}
    for path in shards:
        shard = read_json(path)
        total = totals.setdefault(path.parent.name, {})
        for key, value in shard.items():
            if isinstance(value, dict):
                total[key] = dict(Counter(total.get(key, {})) + Counter(value))
            else:
                total[key] = total.get(key, 0) + value
    return totals


def closing_lines(results: Path) -> str:
    """What a finished run shows: where the rows went, a table by pairing, what to know of it, and the paths to open."""
    place = as_seen(results)
    metrics = results / "metrics"
    lines = []
    rows = list(read_values(metrics / "summary.csv")) if (metrics / "summary.csv").exists() else []
    flow: dict[str, Any] = {}
    if (results / "cases" / "flow.json").exists():
        flow = read_json(results / "cases" / "flow.json")
        rejected = f"{flow['rejected']} rejected" + (f" ({place}/cases/rejects.csv)" if flow["rejected"] else "")
        lines.append(f"cases: {flow['read']} rows read, {rejected}, {_to_simulate(flow, rows, results / 'pairings')}")
    run = read_json(results / "config.json") if (results / "config.json").exists() else {}
    manifests = of_run((results / "audio").glob("manifest-*.jsonl"), run.get("audio", {}).get("shards"))
    if flow and rows:
        width = max(24, *(len(row["pairing"]) + 2 for row in rows))
        lines.append(
            f"{'pairing':<{width}}{'ok':>6}{'skipped':>9}{'error':>7}{'right':>14}{'over':>7}{'under':>7}{'turns':>7}"
        )
        lines += [_closing_row(row, width, _called(metrics / "confusion.csv", row["pairing"])) for row in rows]
        spoken = [row for path in manifests for _, row in read_recordings(path)]
        agreement = list(read_table(metrics / "agreement.csv")) if (metrics / "agreement.csv").exists() else None
        counts = (graded_cases(agreement), graded_levels(agreement)) if agreement is not None else ()
        lines += [f"note: {caution}" for caution in cautions(flow, rows, spoken, *counts)]
    paths = [results / "report.html", metrics / "summary.csv", results / "pool.jsonl", *manifests]
    dataset = results / "dataset" / "README.md"
    if restricted(flow) and not (run and run["dataset"]["include_credentialed"]):
        lines.append(
            "note: No dataset is made of such data unless dataset.include_credentialed says so."
            + (f" {place}/dataset is of an earlier run: don't take it for this one's." if dataset.exists() else "")
        )
    else:
        paths.append(dataset)
    lines += [f"open: {place / path.relative_to(results)}" for path in paths if path.exists() and path.stat().st_size]
    return "\n".join([*lines, *attributions(flow.get("provenance", {}))])


def _to_simulate(flow: dict[str, Any], rows: list[dict[str, Any]], pairings: Path) -> str:
    """How many cases are selected, and which pairings take fewer of them."""
    fewer: dict[int, list[str]] = {}
    for name in (row["pairing"] for row in rows):
        path = pairings / f"{name}.json"
        limit = read_json(path)["limit"] if path.exists() else None
        if limit is not None and limit < flow["selected"]:
            fewer.setdefault(limit, []).append(name)
    if not fewer:
        return f"{flow['selected']} to simulate"
    most = [
        f"at most {limit} by {', '.join(names) if len(names) <= MOST_NAMES else f'{len(names)} pairings'}"
        for limit, names in fewer.items()
    ]
    return ", ".join([f"{flow['selected']} selected", *most])


def _called(confusion: Path, pairing: str) -> tuple[int, int, int] | None:
    """How many graded dialogues of a pairing ended at the right level, at one too urgent, at one not urgent enough."""
    if not confusion.exists():
        return None
    counts: Counter[int] = Counter()
    for row in read_values(confusion):
        if row["pairing"] == pairing:
            counts[(row["final"] > row["truth"]) - (row["final"] < row["truth"])] += row["n"]
    return counts[0], counts[-1], counts[1]


def _closing_row(row: dict[str, Any], width: int, called: tuple[int, int, int] | None) -> str:
    """A pairing's figures as counts of graded dialogues."""
    right, over, under = called if row["graded"] and called else ("–", "–", "–")
    graded = f"{right} of {row['graded']}"
    turns = "–" if row["mean_turns"] is None else f"{row['mean_turns']:.1f}"
    counts = f"{row['pairing']:<{width}}{row['ok']:>6}{row['skipped']:>9}{row['error']:>7}"
    return f"{counts}{graded:>14}{over:>7}{under:>7}{turns:>7}"


def read_values(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a CSV table, numbers and truth values as such."""
    for row in read_table(path):
        yield {key: _value(key, text) for key, text in row.items()}


def _row(pairing: ResolvedPairing, found: list[dict[str, Any]]) -> dict[str, Any]:
    ok = [row for row in found if row["status"] == "ok"]
    counts = {status: sum(row["status"] == status for row in found) for status in ("ok", "skipped", "error")}
    graded = [{**row, "correct": None} if row["other_scale"] or row["leaked_label"] else row for row in ok]
    labels = sorted({row["labels"] for row in found if row["labels"]})
    seated = {role: pairing.models.get(role) for role in ("nurse", "patient", "judge")}
    models = {f"{role}_model": seat and seat.name for role, seat in seated.items()}
    summary = summarize_scores(graded)
    del summary["episodes"]
    head = {"pairing": pairing.name, **models, "labels": "; ".join(labels), "episodes": len(found)}
    ungraded = {why: sum(bool(row[why]) for row in ok) for why in ("other_scale", "leaked_label")}
    return {**head, **counts, **ungraded, **summary}


def _unchecked_speech(pairing: ResolvedPairing, selected: list[dict[str, str]]) -> int:
    """Cases that may not be able to talk, where no dialogue master checks whether they are."""
    if "judge" in pairing.models:
        return 0
    rules = load_yaml("report/cautions.yaml")["may_not_talk"]
    return sum(
        row.get("acuity") in rules["acuity"] or row.get("pain_status") in rules["pain_status"]
        for row in selected[: pairing.limit]
    )


def _completion_judge(pairing: ResolvedPairing, judge: Judge | None) -> dict[str, str | None]:
    """Who judged completion, and what must be known of that: its label, and whose own model it is."""
    if judge is None:
        return {"completion_judge": None, "completion_labels": None}
    known = [judge.label] if judge.label else []
    own = [role for role in ("nurse", "patient") if _same_model(pairing.models[role].options, judge.options)]
    if own:
        known.append(f"also plays the {' and the '.join(own)}")
    return {"completion_judge": judge.name, "completion_labels": "; ".join(known)}


def _same_model(one: Model, other: Model) -> bool:
    return (one.backend, getattr(one, "model", "")) == (other.backend, getattr(other, "model", ""))


def _assert_complete(pairing: ResolvedPairing, found: list[dict[str, Any]], cases: list[str]) -> None:
    wanted = {f"{case}-{k}" for case in cases[: pairing.limit] for k in range(pairing.episodes_per_case)}
    ids = [row["episode_id"] for row in found]
    missing, extra = sorted(wanted - set(ids)), sorted(set(ids) - wanted)
    twice = sorted(name for name, count in Counter(ids).items() if count > 1)
    for what, names in (("missing", missing), ("too much", extra), ("twice", twice)):
        if names:
            raise InputError(
                f"pairing {pairing.name}: {len(ids)} episodes don't add up to {len(wanted)}; {what}: "
                f"{', '.join(names[:5])}{' …' if len(names) > 5 else ''}. Delete results/episodes/{pairing.name} and "
                "run again: all answers are in the journal"
            )


def _value(key: str, text: str) -> Any:
    if key in _TEXTS:
        return text
    if text in _WORDS:
        return _WORDS[text]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
