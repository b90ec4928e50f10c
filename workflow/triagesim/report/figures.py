"""The report's figures: Vega-Lite drawings by Altair, rendered to SVG with the page, and the data that they show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from triagesim.report.tables import Cell, Tables, fits, measure_name, number, shown

if TYPE_CHECKING:
    import altair as alt

    Chart = alt.TopLevelMixin

#: Panels of one figure, so that a sweep of forty pairings stays a page; the table has them all.
MOST_PANELS = 12
#: Rows of one panel of a forest.
MOST_LABELS = 60
# XML 1.0, section 2.2.
_NOT_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
_BY_PAIRING = ("confusion", "by_level", "calibration", "traits")
#: Pixels of a label's line, and by which share a reader's font may be wider than the one that it was measured in.
_LABEL_LIMIT, _WIDER = 320, 0.3
#: Fonts differ in width: what is drawn may be a little wider than what was measured.
_PADDING = {"left": 32, "right": 12, "top": 5, "bottom": 5}
#: Standard deviations beyond which an effect is drawn at the edge, so that one doesn't hide the others.
_LARGEST_EFFECT = 4
_INK, _MUTED, _LINE, _ACCENT = "var(--ink)", "var(--muted)", "var(--line)", "var(--c1)"
_SERIES = [f"var(--c{number})" for number in range(1, 9)]
#: What the figure of agreement shows.
_MEASURES = ("accuracy", "within_one", "qwk", "over", "under", "severe_under")


class Figure(NamedTuple):
    """A drawing with its data.

    Attributes:
        text: what it shows, for who doesn't see it.
        svg: the drawing; colours are variables of the page.
        data: the rows that it shows, as its CSV holds them.
    """

    name: str
    title: str
    text: str
    svg: str
    header: list[str]
    data: list[list[Any]]

    @property
    def rows(self) -> list[list[Cell]]:
        """The data as the page's table shows it."""
        return [
            [shown("" if cell is None else str(cell), name) for name, cell in zip(self.header, row, strict=True)]
            for row in self.data
        ]


class _Drawn(NamedTuple):
    title: str
    text: str
    chart: Chart
    header: list[str]
    records: list[dict[str, Any]]


def draw(name: str, tables: Tables) -> Figure | None:
    """A figure by its name in `resources/report/sections.yaml`; None if its table isn't there or is empty."""
    import vl_convert

    drawn = _FIGURES[name](tables)
    if drawn is None or not drawn.records:
        return None
    spec = _drawable({**drawn.chart.to_dict(), "config": _CONFIG})
    svg = vl_convert.vegalite_to_svg(spec)
    text = drawn.text
    if name in _BY_PAIRING and (pairings := len(_distinct(drawn.records, "pairing"))) > MOST_PANELS:
        text += f" The first {MOST_PANELS} of {pairings} pairings; the table has all."
    if name == "comparisons" and len(drawn.records) > MOST_LABELS:
        text += f" At most {MOST_LABELS} pairs; the table has all."
    data = [[record.get(column) for column in drawn.header] for record in drawn.records]
    return Figure(name, drawn.title, text, _inline(svg, name), drawn.header, data)


def _drawable(value: Any) -> Any:
    """A specification with a mark in the place of characters that no SVG can hold: the renderer dies of them."""
    if isinstance(value, dict):
        return {name: _drawable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_drawable(inner) for inner in value]
    return _NOT_XML.sub("\ufffd", value) if isinstance(value, str) else value


def standalone(svg: str, colours: dict[str, str]) -> str:
    """A figure for a file of its own: the variables replaced by the colours of one theme."""
    svg = re.sub(r"var\(--(\w+)\)", lambda match: colours[match[1]], svg)
    return svg.replace("<svg ", f'<svg style="background:{colours["paper"]}" ', 1) + "\n"


def _inline(svg: str, name: str) -> str:
    """Without roles (the page describes the figure as a whole), and with ids that are the page's only ones."""
    svg = re.sub(r' (?:role|aria-[a-z]+)="[^"]*"', "", svg)
    svg = re.sub(r'id="([^"]+)"', rf'id="{name}-\1"', svg)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)


def _levels(tables: Tables) -> _Drawn | None:
    import altair as alt

    header = ["level", "read", "accepted", "selected"]
    records = _records(tables.get("levels.csv", []), numbers=header[1:])
    chart = (
        alt.Chart(_data(records), width=300, height=140)
        .mark_bar(color=_ACCENT)
        .encode(x=alt.X("level:N", title="ground-truth level"), y=alt.Y("selected:Q", title="selected cases"))
    )
    counts = ", ".join(f"{record['selected']} of level {record['level']}" for record in records)
    return _Drawn("Selected cases by level", f"The selected cases: {counts}.", chart, header, records)


def _agreement(tables: Tables) -> _Drawn | None:
    import altair as alt

    header = ["pairing", "measure", "value", "low", "high", "n", "best_constant"]
    best = _best_constant(tables)
    records = []
    for row in tables.get("agreement.csv", []):
        if fits(row, {"group": "all", "level": ["", "all"]}) and row["measure"] in _MEASURES:
            record = _record(row, ["value", "low", "high", "n"])
            if record["value"] is not None:
                constant = best.get(row["pairing"]) if row["measure"] == "accuracy" else None
                records.append({**record, "called": measure_name(row["measure"]), "best_constant": constant})
    _count(records, max, [record for record in records if record["measure"] == "accuracy"])
    shape = alt.Y("who:N", title=None, sort=None)
    base = alt.Chart(_data(records), width=190, height=alt.Step(22)).encode(y=shape)
    chart = _panels(
        [
            base.mark_tick(color=_MUTED, thickness=2, size=16).encode(x="best_constant:Q"),
            base.mark_rule(color=_ACCENT, strokeWidth=2).encode(x="low:Q", x2="high:Q"),
            base.mark_point(color=_ACCENT, filled=True, size=60).encode(x=alt.X("value:Q", title=None)),
        ],
        "called",
        _distinct(records, "called"),
        columns=3,
    )
    chart = chart.resolve_scale(x="independent")
    text = (
        "A dot a pairing and measure, with its interval; n counts dialogues. Kappa is 1 where all agree and 0 at "
        "chance; all else are shares of the dialogues, and of over- and under-triage less is better. Severe "
        "under-triage is a true level 1 or 2 called 4 or 5. The grey tick beside the exact share is the best "
        "nurse that always says one level."
    )
    return _Drawn("Agreement with its intervals", text, chart, header, records)


def _best_constant(tables: Tables) -> dict[str, float]:
    best: dict[str, float] = {}
    for row in tables.get("agreement.csv", []):
        value = number(row.get("value"))
        constant = fits(row, {"group": "all", "level": ["", "all"], "measure": "accuracy_always_*"})
        if constant and value is not None:
            best[row["pairing"]] = max(value, best.get(row["pairing"], 0.0))
    return best


def _confusion(tables: Tables) -> _Drawn | None:
    import altair as alt

    header = ["pairing", "truth", "final", "n"]
    records = _records(tables.get("confusion.csv", []), numbers=header[1:])
    totals: dict[tuple[str, float], float] = {}
    for record in records:
        key = (record["pairing"], record["truth"])
        totals[key] = totals.get(key, 0) + (record["n"] or 0)
    _count(records, sum)
    for record in records:
        whole = totals[record["pairing"], record["truth"]]
        record["share"] = (record["n"] or 0) / whole if whole else 0
    levels = [1, 2, 3, 4, 5]
    base = alt.Chart(_data(records), width=170, height=170).encode(
        x=alt.X("final:O", title="the nurse's level", scale=alt.Scale(domain=levels)),
        y=alt.Y("truth:O", title="ground truth", scale=alt.Scale(domain=levels)),
    )
    opacity = alt.FillOpacity("share:Q", scale=alt.Scale(domain=[0, 1], range=[0, 0.55]), legend=None)
    chart = _panels(
        [
            base.mark_rect(fill=_ACCENT, stroke=_LINE).encode(fillOpacity=opacity),
            base.mark_text(color=_INK, fontSize=12).encode(text="n:Q"),
        ],
        "who",
        _distinct(records, "who"),
        columns=3,
    )
    text = (
        "Dialogues by ground truth (rows) and the nurse's final level (columns), darker for a larger share of a "
        "row. Left of the diagonal is over-triage, right of it under-triage."
    )
    return _Drawn("Confusion of levels", text, chart, header, records)


def _by_level(tables: Tables) -> _Drawn | None:
    import altair as alt

    header = ["pairing", "level", "measure", "value", "low", "high", "n"]
    rows = [
        row for row in tables.get("agreement.csv", []) if fits(row, {"group": "truth", "measure": ["over", "under"]})
    ]
    records = [record for record in _records(rows, numbers=header[3:]) if record["value"] is not None]
    for record in records:
        record["called"] = measure_name(record["measure"])
    _count(records, sum, [record for record in records if record["measure"] == "over"])
    names = [measure_name("over"), measure_name("under")]
    base = alt.Chart(_data(records), width=170, height=120).encode(
        x=alt.X("level:N", title="ground-truth level"), xOffset=alt.XOffset("called:N", sort=names)
    )
    colour = alt.Color(
        "called:N", scale=alt.Scale(domain=names, range=_SERIES), legend=alt.Legend(title=None, orient="top")
    )
    share = alt.Y("value:Q", title="share", scale=alt.Scale(domain=[0, 1]))
    chart = _panels(
        [
            base.mark_bar().encode(y=share, color=colour),
            base.mark_rule(color=_INK).encode(y="low:Q", y2="high:Q"),
        ],
        "who",
        _distinct(records, "who"),
        columns=3,
    )
    text = (
        "Over- and under-triage as a share of the dialogues of each ground-truth level, with their intervals; the "
        "table has n of each. Nothing can be over-triaged at level 1, nor under-triaged at level 5."
    )
    return _Drawn("Over- and under-triage by level", text, chart, header, records)


def _comparisons(tables: Tables) -> _Drawn | None:
    header = ["a", "b", "measure", "difference", "low", "high", "cases"]
    records = [
        {
            **record,
            "called": measure_name(record["measure"]),
            "pair": f"{record['a']} − {record['b']} (n = {record['cases'] or 0:g})",
        }
        for record in _records(tables.get("comparisons.csv", []), numbers=header[3:])
        if record["difference"] is not None
    ]
    chart = _forest(records, "pair", "difference", "called", columns=2)
    text = (
        "A dot a pair and measure: how far the first pairing is above the second, with its interval; a line at 0; "
        "n counts the cases of both. Above 0 the first is better in agreement, kappa, F1 and sensitivity, and "
        "worse in errors and in over- and under-triage. A dot alone has no interval, as all draws are alike."
    )
    return _Drawn("Paired differences", text, chart, header, records)


def _economy(tables: Tables) -> _Drawn | None:
    import altair as alt

    header = ["pairing", "turn", "accuracy", "undecided", "n"]
    records = [
        record
        for record in _records(tables.get("economy.csv", []), numbers=header[1:])
        if record["accuracy"] is not None
    ]
    _count(records, max)
    names = _distinct(records, "who")
    colour = alt.Color(
        "who:N",
        scale=alt.Scale(domain=names, range=[_SERIES[index % len(_SERIES)] for index in range(len(names))]),
        legend=alt.Legend(title=None, orient="bottom", columns=3, columnPadding=40),
    )
    dash = alt.StrokeDash("who:N", scale=alt.Scale(domain=names), legend=None)
    chart = (
        alt.Chart(_data(records), width=520, height=220)
        .mark_line(point=True)
        .encode(
            x=alt.X("turn:Q", title="replies of the patient", axis=alt.Axis(format="d", tickMinStep=1)),
            y=alt.Y("accuracy:Q", title="exact share", scale=alt.Scale(domain=[0, 1])),
            color=colour,
            strokeDash=dash,
        )
    )
    text = (
        "A line a pairing: the share of dialogues whose nurse has the right level after each reply, without "
        "intervals. A dialogue that has ended keeps its last level."
    )
    return _Drawn("The nurse's level after each reply", text, chart, header, records)


def _calibration(tables: Tables) -> _Drawn | None:
    import altair as alt

    header = ["pairing", "confidence", "accuracy", "low", "high", "n"]
    records = [
        record
        for record in _records(tables.get("calibration.csv", []), numbers=header[2:])
        if record["accuracy"] is not None
    ]
    _count(records, sum)
    base = alt.Chart(_data(records), width=150, height=140).encode(
        x=alt.X("confidence:N", title="stated confidence", sort=["low", "medium", "high"])
    )
    share = alt.Y("accuracy:Q", title="exact share", scale=alt.Scale(domain=[0, 1]))
    chart = _panels(
        [
            base.mark_rule(color=_ACCENT, strokeWidth=2).encode(y="low:Q", y2="high:Q"),
            base.mark_point(color=_ACCENT, filled=True, size=60).encode(y=share),
        ],
        "who",
        _distinct(records, "who"),
        columns=3,
    )
    text = (
        "The share of right levels by the nurse's stated confidence, with its interval (Wilson's); n counts "
        "dialogues, of each confidence in the table. It should rise from left to right."
    )
    return _Drawn("Calibration", text, chart, header, records)


def _traits(tables: Tables) -> _Drawn | None:
    import altair as alt

    header = ["pairing", "trait", "contrast", "measure", "hedges_g", "g_low", "g_high", "verdict"]
    records = [
        {
            **record,
            "what": _effect_label(record),
            "low": record["g_low"],
            "high": record["g_high"],
        }
        for record in _records(tables.get("traits.csv", []), numbers=["hedges_g", "g_low", "g_high"])
        if record["hedges_g"] is not None and record["g_low"] is not None
    ]
    scale = alt.Scale(domain=[-_LARGEST_EFFECT, _LARGEST_EFFECT], clamp=True)
    title = "standard deviations"
    chart = _forest(records, "what", "hedges_g", "pairing", columns=2, scale=scale, title=title)
    text = (
        "A dot an effect of a trait in standard deviations (Hedges' g), with its interval; a line at 0, to the "
        "right of it the first-named level has more of the measure. A level shift is the nurse's level less the "
        f"true one, so to the left is more urgent. What lies beyond {_LARGEST_EFFECT} is drawn at the edge; the "
        "table has all, with n and what was expected."
    )
    return _Drawn("Effects of traits", text, chart, header, records)


def _effect_label(record: dict[str, Any]) -> str:
    """Trait and measure, and the contrast on a second line: a trait has several."""
    words = [str(record[name]).replace("_", " ") for name in ("trait", "contrast")]
    return f"{words[0]}: {measure_name(record['measure'])}\n{words[1]}"


def _audit(tables: Tables) -> _Drawn | None:
    import altair as alt

    header = ["pairing", "trait", "level", "keep_rate", "low", "high", "run"]
    records = [
        {
            **record,
            "what": f"{record['trait']}: {record['level']} (n = {record['run'] or 0:g})".replace("_", " "),
            "who": "all pairings",
        }
        for record in _records(tables.get("audit.csv", []), numbers=header[3:])
        if record["keep_rate"] is not None and record["pairing"] == "all"
    ]
    scale = alt.Scale(domain=[0, 1])
    chart = _forest(records, "what", "keep_rate", "who", columns=2, scale=scale, title="share kept")
    text = (
        "A dot a trait's level: the share of its dialogues, over all pairings, that the pool keeps, with its "
        "interval (Wilson's); n counts dialogues. With so many levels some stand apart by chance alone."
    )
    return _Drawn("Keep rate of the pool by trait", text, chart, header, records)


def _forest(
    records: list[dict[str, Any]],
    label: str,
    value: str,
    panel: str,
    *,
    columns: int,
    scale: alt.Scale | None = None,
    title: str | None = None,
) -> Chart:
    """Dots with intervals and a line at 0, a row a label (one or two lines) and a panel a value of `panel`."""
    import altair as alt

    labels = _distinct(records, label)[:MOST_LABELS]
    shown = [record for record in records if record[label] in labels]
    lines = [line for text in labels for line in text.split("\n")]
    tall = len(lines) > len(labels)
    names = alt.Axis(
        labelLimit=_LABEL_LIMIT,
        labelExpr="split(datum.label, '\\n')",
        labelBaseline="middle",
        labelOffset=-6 if tall else 0,
    )
    base = alt.Chart(_data(shown), width=220 if columns > 1 else 300, height=alt.Step(30 if tall else 16)).encode(
        y=alt.Y(f"{label}:N", title=None, sort=labels, axis=names)
    )
    at_zero = {"condition": {"test": "datum.value === 0", "value": _INK}, "value": _LINE}
    axis = alt.Axis(gridColor=at_zero, grid=True)
    across = alt.X(f"{value}:Q", title=title, axis=axis, scale=scale or alt.Undefined)
    chart = _panels(
        [
            base.mark_rule(color=_ACCENT, strokeWidth=2).encode(x="low:Q", x2="high:Q"),
            base.mark_point(color=_ACCENT, filled=True, size=50).encode(x=across),
        ],
        panel,
        _distinct(records, panel),
        columns=columns,
        own_rows=True,
    )
    widest = min(_LABEL_LIMIT, 6 * max(map(len, lines), default=0))
    return chart.properties(padding={**_PADDING, "left": max(_PADDING["left"], round(_WIDER * widest))})


def _panels(layers: list[alt.Chart], by: str, names: list[str], *, columns: int, own_rows: bool = False) -> Chart:
    """The layers once a value of `by`, the first `MOST_PANELS` of `names`, `columns` beside each other."""
    import altair as alt

    header = alt.Header(title=None, labelFontWeight="bold")
    chart = (
        alt.layer(*layers)
        .transform_filter(alt.FieldOneOfPredicate(field=by, oneOf=names[:MOST_PANELS]))
        .facet(
            facet=alt.Facet(f"{by}:N", sort=names, header=header),
            columns=min(columns, max(1, len(names))),
            spacing={"row": 40, "column": 80} if own_rows else 20,
        )
    )
    return chart.resolve_scale(x="independent", y="independent") if own_rows else chart


def _data(records: list[dict[str, Any]]) -> alt.InlineData:
    import altair as alt

    return alt.InlineData(values=records)


def _records(rows: Iterable[Any], numbers: list[str]) -> list[dict[str, Any]]:
    return [_record(row, numbers) for row in rows]


def _record(row: Any, numbers: list[str]) -> dict[str, Any]:
    return {name: number(text) if name in numbers else text for name, text in row.items()}


def _count(
    records: list[dict[str, Any]],
    whole: Callable[[Iterable[float]], float],
    of: list[dict[str, Any]] | None = None,
) -> None:
    """Set `who` of each record: its pairing's name with the dialogues that the figure shows of it.

    Args:
        whole: makes one count of those of a pairing's rows.
        of: the records whose `n` count; all unless given.
    """
    counts: dict[str, list[float]] = {}
    for record in records if of is None else of:
        if record.get("n") is not None:
            counts.setdefault(record["pairing"], []).append(record["n"])
    for record in records:
        name = record["pairing"]
        record["who"] = f"{name} (n = {whole(counts[name]):g})" if name in counts else name


def _distinct(records: list[dict[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(record[name] for record in records))


_FIGURES: dict[str, Callable[[Tables], _Drawn | None]] = {
    "levels": _levels,
    "agreement": _agreement,
    "confusion": _confusion,
    "by_level": _by_level,
    "comparisons": _comparisons,
    "economy": _economy,
    "calibration": _calibration,
    "traits": _traits,
    "audit": _audit,
}
_AXIS = {
    "labelColor": _MUTED,
    "titleColor": _INK,
    "domainColor": _MUTED,
    "labelAngle": 0,
    "tickColor": _MUTED,
    "gridColor": _LINE,
    "titleFontWeight": "normal",
    "labelFontSize": 11,
    "titleFontSize": 12,
}
_CONFIG = {
    "background": None,
    "padding": _PADDING,
    "mark": {"opacity": 1},
    # The renderer brings the first, so that a machine's own fonts move nothing; the second has the same widths.
    "font": "Liberation Sans, Arial, sans-serif",
    "axis": _AXIS,
    "header": {"labelColor": _INK, "titleColor": _INK, "labelFontSize": 12},
    "legend": {"labelColor": _INK, "titleColor": _INK, "labelFontSize": 12},
    "title": {"color": _INK},
    "view": {"stroke": _LINE},
    "range": {"category": _SERIES},
}
