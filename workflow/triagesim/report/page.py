"""The page itself: what is read, put together and written."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from triagesim.cautions import cautions, graded_cases, graded_levels, restricted
from triagesim.errors import InputError
from triagesim.governance import notice, private_files
from triagesim.jsonl import read_json, read_table, write_table, write_text
from triagesim.report.dialogues import Dialogues
from triagesim.report.figures import Figure, draw, standalone
from triagesim.report.tables import Row, Tables, View, view
from triagesim.resources import RESOURCES, load_yaml
from triagesim.sampling import WEIGHTS_HEADER
from triagesim.score_rows import read_scored
from triagesim.stored import read_recordings
from triagesim.summary import read_values

#: Characters of packed dialogues that the page holds itself: about 11,000, with which it still loads at once
#: (benchmarks/README.md). With more they lie in files beside it, one a chunk.
HELD = 16_000_000

_FOLDER = RESOURCES / "report"


@dataclass(frozen=True)
class Sources:
    """The files of a run that the page is made of.

    Attributes:
        tables: of `results/metrics`, found by their names; a section whose table isn't among them is left out.
        flow, selected: `flow.json` and `cases.csv` of `results/cases`.
        manifests: of the audio, `results/audio/manifest-<shard>.jsonl`.
        weights: of the persona pools, `results/personas/<role>.weights.csv`.
    """

    tables: list[Path]
    flow: Path
    selected: Path
    pairings: list[Path]
    episodes: list[Path]
    pool: Path
    manifests: list[Path]
    weights: list[Path] = field(default_factory=list)


def write_report(sources: Sources, out: Path, data: Path) -> None:
    """Write the page, and beside it the folder with each figure, its data, and the dialogues where they are many.

    Args:
        out: the page.
        data: the folder; its own files of an earlier page are replaced.

    Raises:
        InputError: a table that every page has is missing, or a file isn't what it should be.
    """
    flow = read_json(sources.flow)
    with private_files(flow["provenance"]):
        _write_all(sources, flow, out, data)


def _write_all(sources: Sources, flow: dict[str, Any], out: Path, data: Path) -> None:
    paths = {path.name: path for path in sources.tables}
    if "summary.csv" not in paths or "usage.json" not in paths:
        raise InputError("the report needs summary.csv and usage.json among its tables; run the rule summarise first")
    if data.absolute() in {path.parent.absolute() for path in sources.tables}:
        raise InputError(f"{data} holds the tables themselves; name a folder of its own for the report's data")
    sections = load_yaml("report/sections.yaml")
    drawn = [name for section in sections for name in section.get("figures", ())]
    _clear(data, drawn)
    spoken = _spoken(sources.manifests, out)
    dialogues = Dialogues.gather(
        sources.episodes,
        data,
        held=HELD,
        pooled={(str(row.get("pairing", "")), str(row["episode_id"])) for row in read_scored(sources.pool, whole=True)},
        spoken={(row["pairing"], row["episode_id"]): row for row in spoken},
        case_flags={row["case_id"]: row["flags"] for row in read_table(sources.selected)},
    )
    tables = {name: _read(path) for name, path in paths.items() if path.suffix == ".csv"}
    own = dict(_own_tables(flow, paths["usage.json"], dialogues, spoken)) | _pools(sources.weights)
    for name, (header, rows) in own.items():
        write_table(data / name, header, rows)
        tables[name] = _read(data / name)
    figures = _draw(drawn, tables, data)
    summary = list(read_values(paths["summary.csv"]))
    agreement = tables.get("agreement.csv")
    counts = (graded_cases(agreement), graded_levels(agreement)) if agreement is not None else ()
    page = _render(
        flow=flow,
        summary=summary,
        cautions=cautions(flow, summary, spoken, *counts),
        restricted=restricted(flow),
        notice=notice(flow["provenance"]).split("\n\n"),
        sections=[_section(section, tables, figures, paths, data.name) for section in sections],
        pairings=[read_json(path) for path in sources.pairings],
        pooled={row["value"] or None: row for row in tables.get("coverage.csv", []) if row["by"] in ("pairing", "all")},
        spoken=spoken,
        files=sorted(path.name for path in data.iterdir() if path.suffix in (".csv", ".svg")),
        folder=data.name,
        index=dialogues.index(),
        count=len(dialogues.rows),
        chunks=dialogues.chunks,
        beside=dialogues.beside,
    )
    write_text(out, page)


def _draw(names: Iterable[str], tables: Tables, data: Path) -> dict[str, Figure]:
    """The figures whose tables are there, each with its drawing and its numbers in the folder."""
    figures = {name: figure for name in names if (figure := draw(name, tables))}
    for name, figure in figures.items():
        write_table(data / f"{name}.csv", figure.header, figure.data)
        write_text(data / f"{name}.svg", standalone(figure.svg, load_yaml("report/palette.yaml")["light"]))
    return figures


def _read(path: Path) -> list[Row]:
    return list(read_table(path))


def _section(
    spec: Mapping[str, Any], tables: Tables, figures: Mapping[str, Figure], paths: Mapping[str, Path], folder: str
) -> dict[str, Any]:
    """A section for the template: its figures and tables, and the files that this run doesn't have."""
    found: list[View] = [shown for table in spec["tables"] if (shown := view(table, tables))]
    wanted = {table["file"]: table["title"] for table in reversed(spec["tables"])}
    return {
        **spec,
        "figures": [figures[name] for name in spec.get("figures", ()) if name in figures],
        "tables": found,
        "missing": [f"{title} ({name})" for name, title in wanted.items() if name not in tables],
        "empty": [
            f"{title} ({name})"
            for name, title in wanted.items()
            if name in tables and not any(one.file == name for one in found)
        ],
        "home": {name: f"metrics/{name}" if name in paths else f"{folder}/{name}" for name in wanted},
    }


def _own_tables(
    flow: Mapping[str, Any], usage: Path, dialogues: Dialogues, spoken: list[dict[str, Any]]
) -> Iterator[tuple[str, tuple[list[str], list[list[Any]]]]]:
    """Tables that no other stage writes: levels of the cases, usage by pairing and role, checked lines, speech."""
    counts = ("read", "accepted", "selected")
    levels = [key for key in flow["read_by_acuity"] if key]
    yield (
        "levels.csv",
        (["level", *counts], [[one, *(flow[f"{name}_by_acuity"].get(one, 0) for name in counts)] for one in levels]),
    )
    taken = ["calls", "prompt", "cached", "completion", "reasoning", "cost"]
    totals = read_json(usage)
    rows = [
        [name, *(total[key] for key in taken), sum(total["failed_tries"].values()), total["given_up"]]
        for name, total in totals.items()
    ]
    yield "usage.csv", (["pairing", *taken, "failed_tries", "given_up"], rows)
    by_role = [[*key, sums["episodes"], *(sums[name] for name in taken)] for key, sums in dialogues.usage.items()]
    yield "usage_by_role.csv", (["pairing", "role", "episodes", *taken], by_role)
    kinds = ["checked", "redrafted", "edited", "failed", "unread"]
    lines = [[*key, *(counted[kind] for kind in kinds)] for key, counted in dialogues.lines.items()]
    yield "lines.csv", (["pairing", "speaker", *kinds], lines)
    header = ["pairing", "engine", "version", "licence", "dialogues", "minutes", "lines", "voices", "lufs"]
    yield "spoken.csv", (header, list(_speech(spoken)))


def _pools(weights: list[Path]) -> dict[str, tuple[list[str], list[list[Any]]]]:
    """The weights of both persona pools in one table, if there are any."""
    rows = [[path.name.partition(".")[0], *row.values()] for path in weights for row in read_table(path)]
    return {"persona_weights.csv": (["role", *WEIGHTS_HEADER], rows)} if rows else {}


def _speech(spoken: list[dict[str, Any]]) -> Iterator[list[Any]]:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in spoken:
        engine = row["engine"]
        groups.setdefault((row["pairing"], engine["name"], engine["version"], engine["licence"]), []).append(row)
    for key, rows in groups.items():
        minutes = round(sum(row["duration_s"] for row in rows) / 60, 2)
        voices = {voice["id"] for row in rows for voice in row["voices"].values()}
        loud = [row["lufs"] for row in rows if row["lufs"] is not None]
        mean = round(sum(loud) / len(loud), 1) if loud else None
        yield [*key, len(rows), minutes, sum(len(row["lines"]) for row in rows), len(voices), mean]


def _spoken(manifests: Iterable[Path], out: Path) -> list[dict[str, Any]]:
    """The manifests' rows, `file` as the page reaches it."""
    rows = []
    for path in manifests:
        for _, row in read_recordings(path):
            file = os.path.relpath(path.parent / row["file"], out.parent)
            rows.append({**row, "file": Path(file).as_posix()})
    return rows


def _render(**facts: Any) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    script = (_FOLDER / "browser.js").read_text(encoding="utf-8")
    return environment.get_template("page.html.j2").render(
        script=script,
        script_hash=base64.b64encode(sha256(script.encode()).digest()).decode(),
        style=(_FOLDER / "page.css").read_text(encoding="utf-8"),
        palette=load_yaml("report/palette.yaml"),
        **facts,
    )


def _clear(data: Path, figures: Iterable[str]) -> None:
    """Remove what an earlier page left: figures that this one may not have, and dialogues."""
    left = [data / f"{name}.{kind}" for name in figures for kind in ("csv", "svg")]
    for path in [*left, *data.glob("dialogues-*.js")]:
        path.unlink(missing_ok=True)
