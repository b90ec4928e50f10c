"""Turns a source of cases into shards, with every row accounted for: accepted, accepted with flags, or rejected."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from triagesim.cases import YOUNGEST, Case, Scale, explain, read_rows
from triagesim.config import Select
from triagesim.errors import InputError
from triagesim.governance import OPEN, Provenance
from triagesim.jsonl import digest, write_json, write_jsonl, write_table


@dataclass
class Ledger:
    """Where every row of the source went.

    Attributes:
        accepted: (line, case, flags), in the source's order.
        rejected: (line, case id as it stands there, reason code, detail).
    """

    read: int = 0
    accepted: list[tuple[int, Case, list[str]]] = field(default_factory=list)
    rejected: list[tuple[int, str, str, str]] = field(default_factory=list)


def build_cases(
    source: Path,
    out_dir: Path,
    *,
    shards: int,
    provenance: Provenance,
    scale: Scale | None = None,
    select: Select | None = None,
) -> dict[str, Any]:
    """Write `<i>-of-<n>.jsonl`, `cases.csv`, `rejects.csv` and `flow.json` into `out_dir`; return the flow.

    Raises:
        InputError: the source can't be read, or no case is left.
    """
    ledger = sort_rows(source, provenance=provenance, scale=scale)
    chosen = choose(ledger.accepted, select or Select())
    if not chosen:
        reasons = Counter(reason for _, _, reason, _ in ledger.rejected)
        raise InputError(
            f"{source}: no case to simulate among {ledger.read} row(s); rejected: {dict(reasons) or 'none'}"
        )
    for number in range(1, shards + 1):
        rows = [case.model_dump(mode="json") for _, case, _ in chosen if shard_of(case.case_id, shards) == number]
        write_jsonl(out_dir / f"{number}-of-{shards}.jsonl", rows)
    write_table(
        out_dir / "cases.csv",
        ["case_id", "line", "acuity", "acuity_scale", "flags"],
        ([case.case_id, line, case.acuity, case.acuity_scale, " ".join(flags)] for line, case, flags in chosen),
    )
    write_table(out_dir / "rejects.csv", ["line", "case_id", "reason", "detail"], ledger.rejected)
    flow = flow_of(ledger, chosen, source.name)
    write_json(out_dir / "flow.json", flow)
    return flow


def sort_rows(source: Path, *, provenance: Provenance, scale: Scale | None) -> Ledger:
    """Accept or reject every row; read = accepted + rejected."""
    ledger = Ledger()
    by_id: dict[str, list[tuple[int, Case, str]]] = defaultdict(list)
    for line, row in read_rows(source):
        ledger.read += 1
        try:
            case = Case.model_validate(row)
        except ValidationError as error:
            raw_id = str(row.get("case_id", row.get("stay_id", "")))
            ledger.rejected.append((line, raw_id[:64], "invalid_value", explain(error)))
            continue
        if reason := _unusable(case):
            ledger.rejected.append((line, case.case_id, *reason))
            continue
        by_id[case.case_id.lower()].append((line, _stamped(case, provenance, scale), digest(row)))
    for rows in by_id.values():
        _settle_twins(rows, ledger)
    ledger.accepted.sort(key=lambda item: item[0])
    ledger.rejected.sort()
    assert ledger.read == len(ledger.accepted) + len(ledger.rejected), "a row is unaccounted for"
    return ledger


def choose(accepted: list[tuple[int, Case, list[str]]], select: Select) -> list[tuple[int, Case, list[str]]]:
    """The accepted cases that `select` keeps, in the source's order; what is drawn depends on the seed and the ids.

    Raises:
        InputError: a case of `select.stays` isn't there.
    """
    kept = list(accepted)
    if select.stays is not None:
        wanted = {str(stay) for stay in select.stays}
        if missing := wanted - {case.case_id for _, case, _ in accepted}:
            raise InputError(f"data.select.stays: no accepted case {', '.join(sorted(missing)[:5])} in the source")
        kept = [item for item in kept if item[1].case_id in wanted]
    if select.drop_ambulance_level1:
        kept = [item for item in kept if not _ambulance_level1(item[1])]
    if select.per_acuity is not None:
        by_level: dict[Any, list[tuple[int, Case, list[str]]]] = defaultdict(list)
        for item in kept:
            by_level[item[1].acuity].append(item)
        kept = [item for items in by_level.values() for item in _drawn(items, select.per_acuity, select.seed)]
    if select.sample is not None:
        kept = _drawn(kept, select.sample, select.seed)
    return sorted(kept, key=lambda item: item[0])


def shard_of(case_id: str, shards: int) -> int:
    """The shard of a case, 1 … `shards`, by its id alone: another case added changes one shard."""
    return int.from_bytes(sha256(case_id.encode()).digest()[8:16]) % shards + 1


def flow_of(ledger: Ledger, chosen: list[tuple[int, Case, list[str]]], source: str) -> dict[str, Any]:
    """The counts from rows read to cases selected."""
    return {
        "source": source,
        "read": ledger.read,
        "accepted": len(ledger.accepted),
        "accepted_with_flags": sum(bool(flags) for _, _, flags in ledger.accepted),
        "flags": dict(sorted(Counter(flag for _, _, flags in ledger.accepted for flag in flags).items())),
        "rejected": len(ledger.rejected),
        "reject_reasons": dict(sorted(Counter(reason for _, _, reason, _ in ledger.rejected).items())),
        "not_selected": len(ledger.accepted) - len(chosen),
        "selected": len(chosen),
        "selected_by_acuity": dict(sorted(Counter(str(case.acuity or "none") for _, case, _ in chosen).items())),
    }


def _unusable(case: Case) -> tuple[str, str] | None:
    if case.chief_complaint is None:
        return "no_complaint", "there is nothing that the patient could come with"
    if case.age is not None and case.age < YOUNGEST:
        return "under_age", f"aged {case.age}: under {YOUNGEST} a companion would have to speak"
    return None


def _stamped(case: Case, provenance: Provenance, scale: Scale | None) -> Case:
    """The case with the run's provenance, unless its own is stricter, and with a scale."""
    keeps = case.provenance is not None and case.provenance not in OPEN
    update = {"provenance": case.provenance if keeps else provenance, "acuity_scale": case.acuity_scale or scale}
    return case.model_copy(update=update)


def _settle_twins(rows: list[tuple[int, Case, str]], ledger: Ledger) -> None:
    """Rows under one id: identical ones are kept once, with a flag; rows that differ are all rejected."""
    first_line, case, _ = rows[0]
    if len({row_digest for _, _, row_digest in rows}) > 1:
        lines = ", ".join(str(line) for line, _, _ in rows)
        detail = f"rows that differ share this id (lines {lines}); give each its own"
        ledger.rejected += [(line, twin.case_id, "conflicting_id", detail) for line, twin, _ in rows]
        return
    flags = ["duplicate_row"] if len(rows) > 1 else []
    flags += ["no_reference_acuity"] if case.acuity is None else []
    ledger.accepted.append((first_line, case, flags))
    detail = f"the same row stands at line {first_line}, which is kept"
    ledger.rejected += [(line, twin.case_id, "duplicate_row", detail) for line, twin, _ in rows[1:]]


def _ambulance_level1(case: Case) -> bool:
    return case.acuity == 1 and "ambulance" in (case.arrival_transport or "").lower()


def _drawn(items: list[tuple[int, Case, list[str]]], count: int, seed: int) -> list[tuple[int, Case, list[str]]]:
    """`count` of them by a seeded rank of the id, so that other cases beside them don't change the draw."""
    ranked = sorted(items, key=lambda item: random.Random(f"{seed}|{item[1].case_id}").random())
    return ranked[:count]
