"""Turns a source of cases into shards, with every row accounted for: accepted, accepted with flags, or rejected."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from triagesim.cases import YOUNGEST, Case, Scale, make_case
from triagesim.config import Select
from triagesim.errors import InputError
from triagesim.governance import Provenance, notice, private_files
from triagesim.jsonl import digest, dumps, write_json, write_jsonl, write_table, write_text
from triagesim.mimic import Source, open_source
from triagesim.quality import SOURCE_VALUES, Reject
from triagesim.shards import shard_of
from triagesim.sources import BadRow

CASES_HEADER = ["case_id", "line", "acuity", "acuity_scale", "pain_score", "pain_status", "flags", SOURCE_VALUES]
REJECTS_HEADER = ["file", "line", "id", "code", "text"]
_LEVELS = frozenset("12345")


class Entry(NamedTuple):
    """An accepted case, small enough to hold half a million of: what selection and tables need, the rest as JSON."""

    line: int
    case_id: str
    acuity: int | None
    acuity_scale: str | None
    ambulance: bool
    provenance: str | None
    pain: tuple[float | None, str]
    flags: tuple[str, ...]
    source_values: str
    content: bytes
    digest: bytes


class Rejected(NamedTuple):
    """A row that is no case; the columns of rejects.csv."""

    file: str
    line: int
    case_id: str
    code: str
    text: str


@dataclass
class Ledger:
    """Where every row of the source went.

    Attributes:
        by_acuity: how many rows of each level were read; `none` without one, `other` for what is no level or no row.
        accepted: in the source's order.
    """

    read: int = 0
    by_acuity: Counter[str] = field(default_factory=Counter)
    accepted: list[Entry] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)


def build_cases(
    path: Path,
    out_dir: Path,
    *,
    shards: int | None,
    provenance: Provenance,
    scale: Scale | None = None,
    select: Select | None = None,
    terms: Path | None = None,
) -> dict[str, Any]:
    """Write the selected cases, `cases.csv`, `rejects.csv`, `flow.json` and a notice into `out_dir`; return the flow.

    What is written of data that isn't open is the owner's alone (`governance.private_files`).

    Args:
        path: a file of cases or a folder of MIMIC-IV-ED.
        shards: how many files `<i>-of-<n>.jsonl` the cases go into; None for one, `cases.jsonl`, in the source's order.
        terms: where the notice goes (`governance.notice`); NOTICE.txt in `out_dir` unless given.

    Raises:
        InputError: the source can't be read, or no case is left.
    """
    source = open_source(path)
    ledger = sort_rows(source, provenance=provenance, scale=scale)
    chosen = choose(ledger.accepted, select or Select())
    if not chosen:
        reasons = Counter(row.code for row in ledger.rejected)
        raise InputError(f"{path}: no case to simulate among {ledger.read} row(s); rejected: {dict(reasons) or 'none'}")
    details = source.details({entry.case_id for entry in chosen})
    beside = [Rejected(row[0].name, *row[1:]) for row in source.rejects()]
    flow = flow_of(ledger, chosen, path.name) | {"declared_provenance": provenance, "tables": source.tables()}
    with private_files(flow["provenance"]):
        for name, entries in _files(chosen, shards).items():
            write_jsonl(out_dir / name, _whole_cases(entries, details))
        write_table(out_dir / "cases.csv", CASES_HEADER, map(_listed, chosen))
        write_table(out_dir / "rejects.csv", REJECTS_HEADER, [*ledger.rejected, *beside])
        write_json(out_dir / "flow.json", flow)
        write_text(terms or out_dir / "NOTICE.txt", notice(flow["provenance"]))
    return flow


def sort_rows(source: Source, *, provenance: Provenance, scale: Scale | None) -> Ledger:
    """Accept or reject every row; read = accepted + rejected."""
    ledger = Ledger()
    unit = source.unit
    by_id: dict[str, list[tuple[str, Entry]]] = defaultdict(list)
    for path, line, row in source.rows():
        ledger.read += 1
        ledger.by_acuity[_level(row)] += 1
        try:
            if isinstance(row, BadRow):
                raise Reject(row.code, row.text)
            entry = _entry(make_case(_with_scale(row, scale), unit, provenance), line, row)
        except Reject as reject:
            raw_id = row.case_id if isinstance(row, BadRow) else str(row.get("case_id", row.get("stay_id", "")))
            ledger.rejected.append(Rejected(path.name, line, raw_id[:64], reject.code, reject.text))
            continue
        by_id[entry.case_id.lower()].append((path.name, entry))
    for rows in by_id.values():
        _settle_twins(rows, ledger)
    ledger.accepted.sort(key=lambda entry: entry.line)
    ledger.rejected.sort()
    assert ledger.read == len(ledger.accepted) + len(ledger.rejected), "a row is unaccounted for"
    return ledger


def choose(accepted: list[Entry], select: Select) -> list[Entry]:
    """The accepted cases that `select` keeps, in the source's order; what is drawn depends on the seed and the ids.

    Raises:
        InputError: a case of `select.stays` isn't there.
    """
    kept = list(accepted)
    if select.stays is not None:
        wanted = {str(stay) for stay in select.stays}
        if missing := wanted - {entry.case_id for entry in accepted}:
            raise InputError(f"data.select.stays: no accepted case {', '.join(sorted(missing)[:5])} in the source")
        kept = [entry for entry in kept if entry.case_id in wanted]
    if select.drop_ambulance_level1:
        kept = [entry for entry in kept if not (entry.ambulance and entry.acuity == 1)]
    if select.per_acuity is not None:
        by_level: dict[Any, list[Entry]] = defaultdict(list)
        for entry in kept:
            by_level[entry.acuity].append(entry)
        kept = [entry for entries in by_level.values() for entry in _drawn(entries, select.per_acuity, select.seed)]
    if select.sample is not None:
        kept = _drawn(kept, select.sample, select.seed)
    return sorted(kept, key=lambda entry: entry.line)


def flow_of(ledger: Ledger, chosen: list[Entry], source: str) -> dict[str, Any]:
    """The counts from rows read to cases selected."""
    return {
        "source": source,
        "read": ledger.read,
        "read_by_acuity": _sorted(ledger.by_acuity),
        "accepted": len(ledger.accepted),
        "accepted_by_acuity": _levels(ledger.accepted),
        "accepted_with_flags": sum(bool(entry.flags) for entry in ledger.accepted),
        "flags": _sorted(Counter(flag for entry in ledger.accepted for flag in entry.flags)),
        "rejected": len(ledger.rejected),
        "reject_reasons": _sorted(Counter(row.code for row in ledger.rejected)),
        "not_selected": len(ledger.accepted) - len(chosen),
        "selected": len(chosen),
        "selected_by_acuity": _levels(chosen),
        "provenance": _sorted(Counter(str(entry.provenance) for entry in ledger.accepted)),
    }


def _entry(case: Case, line: int, row: dict[str, Any]) -> Entry:
    """The case in the form that is held.

    Raises:
        Reject: it can't be simulated, or can't be written as JSON.
    """
    if case.chief_complaint is None:
        raise Reject("no_complaint", "there is nothing that the patient could come with")
    if case.age is not None and case.age < YOUNGEST:
        raise Reject("under_age", f"aged {case.age}: under {YOUNGEST} a companion would have to speak")
    content = case.model_dump(mode="json")
    try:
        text = dumps(content).encode()
        values = dumps(content[SOURCE_VALUES]) if SOURCE_VALUES in content else ""
    except ValueError as error:
        raise Reject("invalid_value", f"a field can't be written as JSON ({error})") from None
    return Entry(
        line=line,
        case_id=case.case_id,
        acuity=case.acuity,
        acuity_scale=case.acuity_scale,
        ambulance="ambulance" in (case.arrival_transport or "").lower(),
        provenance=case.provenance,
        pain=(case.pain_score, case.pain_status),
        flags=tuple(content.get("flags", ())),
        source_values=values,
        content=text,
        digest=bytes.fromhex(digest(row)[:32]),
    )


def _with_scale(row: dict[str, Any], scale: Scale | None) -> dict[str, Any]:
    """The row with the run's scale, unless it names its own."""
    own = row.get("acuity_scale")
    named = own.strip() if isinstance(own, str) else own
    return row if named or scale is None else row | {"acuity_scale": scale}


def _level(row: dict[str, Any] | BadRow) -> str:
    """The level as it is counted before the row is looked at."""
    if isinstance(row, BadRow):
        return "other"
    value = row.get("acuity")
    text = "" if value is None or value != value else str(value).strip().removesuffix(".0")
    return text if text in _LEVELS else ("other" if text else "none")


def _settle_twins(rows: list[tuple[str, Entry]], ledger: Ledger) -> None:
    """Rows under one id: identical ones are kept once, with a flag; rows that differ are all rejected."""
    _, first = rows[0]
    if len({entry.digest for _, entry in rows}) > 1:
        lines = ", ".join(str(entry.line) for _, entry in rows)
        text = f"rows that differ share this id (lines {lines}); give each its own"
        ledger.rejected += [Rejected(file, entry.line, entry.case_id, "conflicting_id", text) for file, entry in rows]
        return
    ledger.accepted.append(first if len(rows) == 1 else _flagged(first, "duplicate_row"))
    text = f"the same row stands at line {first.line}, which is kept"
    ledger.rejected += [Rejected(file, entry.line, entry.case_id, "duplicate_row", text) for file, entry in rows[1:]]


def _flagged(entry: Entry, flag: str) -> Entry:
    flags = tuple(dict.fromkeys((*entry.flags, flag)))
    return entry._replace(flags=flags, content=dumps(json.loads(entry.content) | {"flags": list(flags)}).encode())


def _files(chosen: list[Entry], shards: int | None) -> dict[str, list[Entry]]:
    """The cases of each file, also of one without any."""
    if shards is None:
        return {"cases.jsonl": chosen}
    files: dict[str, list[Entry]] = {f"{number}-of-{shards}.jsonl": [] for number in range(1, shards + 1)}
    for entry in chosen:
        files[f"{shard_of(entry.case_id, shards)}-of-{shards}.jsonl"].append(entry)
    return files


def _whole_cases(entries: list[Entry], details: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for entry in entries:
        case: dict[str, Any] = json.loads(entry.content)
        yield case | details.get(entry.case_id, {})


def _listed(entry: Entry) -> list[Any]:
    head = [entry.case_id, entry.line, entry.acuity, entry.acuity_scale]
    return [*head, *entry.pain, " ".join(entry.flags), entry.source_values]


def _levels(entries: list[Entry]) -> dict[str, int]:
    return _sorted(Counter(str(entry.acuity or "none") for entry in entries))


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def _drawn(entries: list[Entry], count: int, seed: int) -> list[Entry]:
    """`count` of them by a seeded rank of the id, so that other cases beside them don't change the draw."""
    ranked = sorted(entries, key=lambda entry: random.Random(f"{seed}|{entry.case_id}").random())
    return ranked[:count]
