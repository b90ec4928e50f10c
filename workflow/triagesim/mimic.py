"""MIMIC-IV-ED: its tables joined into rows of cases, and how its data is known from other data.

Tables are read as streams. Every stay of edstays is held (its times count as earlier visits); of diagnosis and
medrecon only the stays that are asked for.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache, lru_cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypedDict, get_args

from triagesim.errors import InputError
from triagesim.governance import OPEN, Provenance
from triagesim.jsonl import OddValue, object_of
from triagesim.quality import Unit, renamed, rules, temperature_unit
from triagesim.resources import is_there, load_yaml
from triagesim.sources import BadRow, Values, open_table, read_rows, require_columns

#: The columns that are read, of MIMIC-IV-ED 2.0 and later (1.0 has no gender, race, arrival or disposition).
TABLES: dict[str, tuple[str, ...]] = {
    name: tuple(columns.split())
    for name, columns in {
        "triage": "subject_id stay_id temperature heartrate resprate o2sat sbp dbp pain acuity chiefcomplaint",
        "edstays": "subject_id stay_id intime outtime gender race arrival_transport disposition",
        "diagnosis": "stay_id seq_num icd_code icd_version icd_title",
        "medrecon": "stay_id name gsn",
    }.items()
}
PATIENTS = ("subject_id", "anchor_age", "anchor_year")
#: Earlier visits are counted over so many days before a stay.
VISITS_DAYS = 365

_KINDS = (".csv", ".csv.gz")
# The first digit of the eight that each kind of id has in MIMIC.
_IDS = {"stay_id": "3", "case_id": "3", "subject_id": "1", "hadm_id": "2"}
# Rows after which a source that looked like no MIMIC is taken for none.
_AT_A_GLANCE = 50
_DAY = 86_400
_EPOCH = datetime(1970, 1, 1)
_WHOLE = re.compile(r"(\d+)\.0+")


class Source(Protocol):
    """Rows of cases, each with its file and line."""

    @property
    def unit(self) -> Unit:
        """Of the temperatures."""

    def rows(self) -> Iterator[tuple[Path, int, Values | BadRow]]:
        """Every row, once."""

    def details(self, stays: Collection[str]) -> dict[str, Values]:
        """What is added to the cases with these ids; to be asked for after the rows."""

    def tables(self) -> dict[str, dict[str, int]]:
        """Where the rows of the other tables went."""

    def rejects(self) -> list[tuple[Path, int, str, str, str]]:
        """File, line, id, code and text of rows of the other tables that can't be read."""


def open_source(path: Path) -> Source:
    """The source at a path: a folder of MIMIC-IV-ED, or one file of cases.

    Raises:
        InputError: a table of the folder isn't there.
    """
    return MimicFolder(path) if is_there(path) and path.is_dir() else CaseFile(path)


def source_files(path: Path) -> list[Path]:
    """The files that a source is read from.

    Raises:
        InputError: a table of the folder isn't there.
    """
    if not path.is_dir():
        return [path]
    return [*(_table(path, name) for name in TABLES), *filter(None, [_find(path, "patients")])]


def looks_like_mimic(path: Path) -> bool:
    """Whether a source looks like MIMIC by its columns or by the ids of its first rows; quick.

    Raises:
        InputError: the source can't be read.
    """
    rows = read_rows(_table(path, "triage") if path.is_dir() else path)
    return any(_kind(row) for _, row in islice(rows, _AT_A_GLANCE) if not isinstance(row, BadRow))


def provenance_of(path: Path, declared: Provenance) -> Provenance:
    """What a source counts as, for the checks before a run: MIMIC that isn't the open demo is credentialed, whatever is
    declared, and a row that names something stricter makes the whole stricter. Of the rows without a provenance of
    their own it reads the first, and on only while they are the demo's.

    Raises:
        InputError: the source can't be read.
    """
    return max([_as_a_whole(path, declared), *_stated(path)], key=_strictness)


def _strictness(provenance: str) -> int:
    return 2 if provenance == "identifiable" else int(provenance not in OPEN)


def _as_a_whole(path: Path, declared: Provenance) -> Provenance:
    if not looks_like_mimic(path):
        return declared
    rows = read_rows(_table(path, "triage") if path.is_dir() else path)
    kinds = (_kind(row) for _, row in rows if not isinstance(row, BadRow))
    return _counts_as("other" if "other" in kinds else "demo", declared)


def _stated(path: Path) -> list[Provenance]:
    """What the rows of a file of cases say of themselves."""
    if path.is_dir():
        return []
    rows: Iterable[Any]
    if path.suffix.lower() == ".jsonl":
        rows = _stating(path)
    elif path.suffix.lower() == ".json":
        rows = (row for _, row in read_rows(path))
    else:
        with open_table(path) as table:
            named = "provenance" in table.columns
        rows = (row for _, row in read_rows(path)) if named else ()
    found = {str(row.get("provenance")).strip() for row in rows if isinstance(row, dict)}
    return [known for known in get_args(Provenance) if known in found]


class _Statement(TypedDict, total=False):
    """What is read of a row; every start of Snakemake reads them all, in each job of a cluster too."""

    provenance: Any


def _stating(path: Path) -> Iterator[Mapping[str, Any] | None]:
    """The rows of JSON Lines that say where they come from; none that is rejected as it stands."""
    from msgspec import MsgspecError
    from msgspec.json import Decoder

    decode = Decoder(_Statement).decode
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if b'"provenance"' in raw:
                try:
                    yield decode(raw)
                except (MsgspecError, RecursionError):
                    with suppress(OddValue):
                        yield object_of(path, number, raw)


def provenance_of_row(row: Mapping[str, Any], declared: Provenance | None) -> Provenance | None:
    """What a row counts as: the open demo by its stay id, other data that looks like MIMIC as credentialed."""
    kind = _kind(row)
    return _counts_as(kind, declared) if kind else declared


def _counts_as(kind: Literal["demo", "other"], declared: Provenance | None) -> Provenance:
    if kind == "demo":
        return "mimic_iv_ed_demo" if declared is None or declared in OPEN else declared
    return declared if declared == "identifiable" else "mimic_iv_ed"


def _kind(row: Mapping[str, Any]) -> Literal["demo", "other"] | None:
    """`demo` for a stay of the open demo, `other` for what else looks like MIMIC."""
    by_id = any(_in_range(row.get(name), first) for name, first in _IDS.items())
    if not by_id and not ("stay_id" in row and "subject_id" in row):
        return None
    stay = _plain_id(str(row.get("stay_id", row.get("case_id"))))
    return "demo" if stay_hash(stay) in _demo() else "other"


def stay_hash(stay: str) -> str:
    """A stay id as `resources/mimic_demo.yaml` lists it."""
    return sha256(stay.encode()).hexdigest()[:16]


@cache
def _demo() -> frozenset[str]:
    return frozenset(load_yaml("mimic_demo.yaml")["stays"])


def _in_range(value: Any, first: str) -> bool:
    """Whether an id has the eight digits of MIMIC's, of which the first tells its kind."""
    text = _plain_id(str(value)) if isinstance(value, int | float | str) else ""
    return len(text) == 8 and text[0] == first and text.isdecimal()


def _plain_id(text: str) -> str:
    """An id without blanks, and without the `.0` that a table program adds."""
    text = text.strip()
    match = _WHOLE.fullmatch(text) if text.endswith("0") else None
    return match[1] if match else text


def _find(folder: Path, name: str) -> Path | None:
    return next((path for kind in _KINDS if (path := folder / f"{name}{kind}").is_file()), None)


def _table(folder: Path, name: str) -> Path:
    path = _find(folder, name)
    if path is None:
        raise InputError(
            f"{folder}: no {name}.csv or {name}.csv.gz; a folder is read as MIMIC-IV-ED, with {', '.join(TABLES)} "
            "and, for ages, patients; other cases are one file (.jsonl, .json or .csv)"
        )
    return path


class CaseFile:
    """One file of cases."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checked = False

    @property
    def unit(self) -> Unit:
        """By the column's definition in MIMIC's tables, else that of most values."""
        rows = (row for _, row in read_rows(self._path) if not isinstance(row, BadRow))
        first = next(rows, None)
        if first is None or {"stay_id", "subject_id"} <= first.keys():
            return "F"
        return temperature_unit(_temperature(row) for row in (first, *rows))

    def rows(self) -> Iterator[tuple[Path, int, Values | BadRow]]:
        """Every row, once.

        Raises:
            InputError: a column of a table has a name that isn't read.
        """
        for number, row in read_rows(self._path):
            if not self._checked and not isinstance(row, BadRow):
                self._check_columns(row)
            yield self._path, number, row

    def _check_columns(self, row: Values) -> None:
        self._checked = True
        if ".csv" not in self._path.suffixes:
            return
        names = ["chief_complaint" if name == "chiefcomplaint" else name for name in row]
        wrong = renamed(names)
        if wrong:
            needed = [*rules()["limits"], "acuity", "chief_complaint"]
            require_columns(self._path, names, [*dict.fromkeys([*needed, *wrong.values()])], wrong)

    def details(self, stays: Collection[str]) -> dict[str, Values]:
        """Nothing: a row holds its whole case."""
        return {}

    def tables(self) -> dict[str, dict[str, int]]:
        """There are no others."""
        return {}

    def rejects(self) -> list[tuple[Path, int, str, str, str]]:
        """There are none."""
        return []


def _temperature(row: Values) -> Any:
    nested = row.get("vitals")
    return nested.get("temperature") if isinstance(nested, dict) else row.get("temperature")


class _Stay(NamedTuple):
    """A row of edstays; times in seconds, None where they can't be read."""

    line: int
    subject: str
    begin: int | None
    end: int | None
    gender: str
    race: str
    arrival: str
    disposition: str


class MimicFolder:
    """A folder of MIMIC-IV-ED: triage joined with the other tables by `stay_id`, never by position."""

    unit: Unit = "F"

    def __init__(self, folder: Path) -> None:
        self._paths = {name: _table(folder, name) for name in TABLES}
        self._patients = _find(folder, "patients")
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in TABLES}
        self._rejects: list[tuple[Path, int, str, str, str]] = []
        self._intern: dict[str, str] = {}

    def tables(self) -> dict[str, dict[str, int]]:
        """By table: rows read, and where they went. The parts add up to `rows`."""
        found = {name: dict(counts) for name, counts in self._counts.items() if name != "triage"}
        for name, counts in found.items():
            assert counts.get("rows", 0) == sum(counts.values()) - counts.get("rows", 0), f"{name}: a row is lost"
        return found

    def rejects(self) -> list[tuple[Path, int, str, str, str]]:
        """Rows of edstays, diagnosis and medrecon that can't be read."""
        return self._rejects

    def rows(self) -> Iterator[tuple[Path, int, Values | BadRow]]:
        """Every row of triage with its stay, then every stay without one."""
        stays, conflicts = self._stays()
        visits = _visits(stays)
        ages = self._ages()
        file, columns = self._paths["triage"], TABLES["triage"]
        seen: set[str] = set()
        for line, cells in self._read("triage"):
            if isinstance(cells, BadRow):
                yield file, line, cells
                continue
            row: Values = dict(zip(columns, cells, strict=True))
            stay_id = row["stay_id"] = self._shared(_plain_id(row["stay_id"]))
            row["subject_id"] = _plain_id(row["subject_id"])
            seen.add(stay_id)
            if stay_id in conflicts:
                yield file, line, BadRow("conflicting_stay", "edstays has rows that differ for this stay", stay_id)
                continue
            yield file, line, _joined(row, stays.get(stay_id), visits, ages)
        edstays = self._paths["edstays"]
        counts = self._counts["edstays"]
        for stay_id, stay in stays.items():
            counts["joined" if stay_id in seen else "no_triage_row"] += 1
            if stay_id not in seen:
                yield edstays, stay.line, BadRow("no_triage_row", "triage has no row for this stay", stay_id)

    def details(self, stays: Collection[str]) -> dict[str, Values]:
        """Diagnoses in the order of `seq_num`, medicines in that of their rows, for these stays alone."""
        wanted = set(stays)
        diagnoses: dict[str, list[tuple[int, str, str]]] = {}
        for stay_id, (seq_num, code, version, title) in self._of_stays("diagnosis", wanted):
            entry = (int(seq_num), self._shared(title.strip()), self._shared(f"ICD-{version.strip()} {code.strip()}"))
            entries = diagnoses.setdefault(stay_id, [])
            if self._is_new("diagnosis", all(entry[1:] != one[1:] for one in entries)):
                entries.append(entry)
        medicines: dict[str, list[tuple[str, str, str]]] = {}
        for stay_id, (name, gsn) in self._of_stays("medrecon", wanted):
            medicine = medicine_of(name, gsn)
            taken = medicines.setdefault(stay_id, [])
            if self._is_new("medrecon", all(medicine[0] != one[0] for one in taken)):
                taken.append(medicine)
        return {stay_id: _details(diagnoses.get(stay_id, []), medicines.get(stay_id, [])) for stay_id in wanted}

    # -- reading

    def _read(self, name: str) -> Iterator[tuple[int, list[str] | BadRow]]:
        """The rows of a table, with the cells of `TABLES[name]` in that order."""
        path, columns = self._paths[name], TABLES[name]
        with open_table(path, ("stay_id",)) as table:
            require_columns(path, table.columns, columns, rules()["renamed"])
            places = [table.columns.index(column) for column in columns]
            for line, cells in table.rows:
                self._counts[name]["rows"] += 1
                yield line, cells if isinstance(cells, BadRow) else [cells[place] for place in places]

    def _of_stays(self, name: str, wanted: set[str]) -> Iterator[tuple[str, list[str]]]:
        """Stay id and other cells of the rows that belong to one of these stays."""
        counts = self._counts[name]
        others = 0
        for line, cells in self._read(name):
            if isinstance(cells, BadRow):
                self._reject(name, line, "", cells)
                continue
            stay_id, *rest = cells
            if stay_id not in wanted and (stay_id := _plain_id(stay_id)) not in wanted:
                others += 1
            elif bad := _bad_detail(name, rest):
                self._reject(name, line, stay_id, bad)
            else:
                yield stay_id, rest
        counts["other_stays"] = others

    def _is_new(self, name: str, new: bool) -> bool:
        """Count a row as joined or as a repetition; whether it is the former."""
        self._counts[name]["joined" if new else "repeated"] += 1
        return new

    def _reject(self, name: str, line: int, stay_id: str, bad: BadRow) -> None:
        self._counts[name]["rejected"] += 1
        self._rejects.append((self._paths[name], line, stay_id[:64], bad.code, bad.text))

    def _shared(self, text: str) -> str:
        """The same text held once: the big tables repeat theirs."""
        return self._intern.setdefault(text, text)

    def _stays(self) -> tuple[dict[str, _Stay], set[str]]:
        """The stays by id, and the ids that rows of edstays tell different things about."""
        stays: dict[str, _Stay] = {}
        conflicts: set[str] = set()
        for line, cells in self._read("edstays"):
            if isinstance(cells, BadRow):
                self._reject("edstays", line, "", cells)
                continue
            subject, stay_id, begin, end, *others = (cell.strip() for cell in cells)
            stay = _Stay(
                line, self._shared(_plain_id(subject)), seconds(begin), seconds(end), *map(self._shared, others)
            )
            stay_id = self._shared(_plain_id(stay_id))
            first = stays.setdefault(stay_id, stay)
            if first is not stay:
                self._counts["edstays"]["repeated"] += 1
                if first[1:] != stay[1:]:
                    conflicts.add(stay_id)
        return stays, conflicts

    def _ages(self) -> dict[str, int]:
        """Year of birth by patient: the anchor's year less the age in it. Nothing without patients.csv."""
        born: dict[str, int] = {}
        if self._patients is None:
            return born
        with open_table(self._patients, ("subject_id",)) as table:
            require_columns(self._patients, table.columns, PATIENTS, {})
            places = [table.columns.index(column) for column in PATIENTS]
            for line, cells in table.rows:
                texts = [] if isinstance(cells, BadRow) else [_plain_id(cells[place]) for place in places]
                if not texts or not all(text.isdecimal() for text in texts):
                    raise InputError(f"{self._patients}, line {line}: expected whole numbers in {', '.join(PATIENTS)}")
                born[self._shared(texts[0])] = int(texts[2]) - int(texts[1])
        return born


def seconds(text: str) -> int | None:
    """A time of MIMIC (`2180-05-06 19:17:00`) in seconds; None if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((moment.replace(tzinfo=None) - _EPOCH).total_seconds())


@lru_cache(maxsize=65536)
def medicine_of(name: str, gsn: str) -> tuple[str, str, str]:
    """What tells a medicine from others, its name as it is kept, and its GSN with its zeros."""
    data = rules()["medicines"]
    plain = " ".join(name.split()).strip(f"{data['marks']} ")
    plain = re.sub(f"(?i:{data['strength']})", "", plain)
    words = plain.split()
    if plain.isupper() and max(map(len, words)) > data["longest_abbreviation"]:
        plain = plain.lower()
    return sys.intern(plain.lower()), sys.intern(plain), sys.intern(gsn.strip())


def _bad_detail(name: str, cells: list[str]) -> BadRow | None:
    if name == "diagnosis" and not cells[0].strip().isdecimal():
        return BadRow("invalid_value", f"seq_num: expected a whole number (found {cells[0]!r:.60})")
    if name == "diagnosis" and not cells[3].strip():
        return BadRow("invalid_value", "icd_title: is blank")
    if name == "medrecon" and not medicine_of(*cells)[0]:
        return BadRow("invalid_value", f"name: no name of a medicine (found {cells[0]!r:.60})")
    return None


def _details(diagnoses: list[tuple[int, str, str]], medicines: list[tuple[str, str, str]]) -> Values:
    diagnoses.sort(key=lambda one: one[0])
    return {
        "diagnoses": [title for _, title, _ in diagnoses],
        "diagnosis_codes": [code for _, _, code in diagnoses],
        "medications": [name for _, name, _ in medicines],
        "medication_gsn": [gsn for _, _, gsn in medicines],
    }


def _visits(stays: Mapping[str, _Stay]) -> dict[str, list[int]]:
    """When each patient's stays begin, in order."""
    found: dict[str, list[int]] = {}
    for stay in stays.values():
        if stay.begin is not None:
            found.setdefault(stay.subject, []).append(stay.begin)
    for times in found.values():
        times.sort()
    return found


def _joined(row: Values, stay: _Stay | None, visits: Mapping[str, list[int]], born: Mapping[str, int]) -> Values:
    """A row of triage with what its stay says. MIMIC's level is ESI's."""
    row["acuity_scale"] = "esi"
    if stay is None:
        return row | {"flags": ["no_stay_row"]}
    flags = [] if row["subject_id"] == stay.subject else ["subject_differs"]
    row["subject_id"] = stay.subject
    length = None
    if stay.begin is None or stay.end is None:
        flags.append("stay_times_unreadable")
    elif stay.end < stay.begin:
        flags.append("stay_times_inverted")
    else:
        length = round((stay.end - stay.begin) / 60)
    row |= {
        "gender": stay.gender,
        "arrival_transport": stay.arrival.lower(),
        "race": stay.race or None,
        "disposition": stay.disposition or None,
        "length_of_stay_min": length,
        "prior_ed_visits": None if stay.begin is None else _before(visits[stay.subject], stay.begin),
    }
    if stay.begin is not None and stay.subject in born:
        row["age"] = (_EPOCH + timedelta(seconds=stay.begin)).year - born[stay.subject]
    if flags:
        row["flags"] = flags
    return row


def _before(times: list[int], begin: int) -> int:
    """How many of the times lie before one, by up to `VISITS_DAYS` days."""
    return bisect_left(times, begin) - bisect_left(times, begin - VISITS_DAYS * _DAY)
