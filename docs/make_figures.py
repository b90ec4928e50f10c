"""Draws the README's figures from a finished run of the shipped cases: a spoken dialogue, the baseline's errors, and
the report as Chromium shows it.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))

from triagesim.console import command
from triagesim.errors import InputError, TriageSimError
from triagesim.jsonl import read_lines
from triagesim.summary import read_values

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

#: Whose confusion is drawn.
PAIRING = "agenda"
SCALES = {"esi": "ESI", "ats": "ATS"}
VITALS = {"temperature": "temp.", "heartrate": "pulse", "resprate": "breaths", "o2sat": "SpO₂", "sbp": "BP"}
COLOURS = {"nurse": "#1b6ca8", "patient": "#c2571a"}
_PAUSE_COLOUR = "#d9d9d9"
#: Points of the envelope that is drawn over a dialogue's length.
_POINTS = 1400
_DPI = 150
_PALETTE = 256
#: Characters of a line's text that the figure's whole width holds.
_CHARACTERS = 160


def main() -> None:
    """Parse the arguments and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="?", default=Path("results"), help="default: %(default)s")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "images", help="default: images beside this"
    )
    options = parser.parse_args()
    try:
        import matplotlib as mpl
    except ImportError:
        raise TriageSimError('matplotlib is missing; install the extra: pip install -e ".[docs]"') from None
    mpl.rcParams.update({"font.family": "DejaVu Sans", "font.size": 9, "axes.titlesize": 10})
    figures = {"waveform": waveform(options.results), "confusion": confusion_figure(options.results)}
    options.out.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        path = options.out / f"{name}.png"
        _save(figure, path)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
    if chromium := shutil.which("chromium"):
        _quantized(browser(options.results / "report.html", chromium), options.out / "report.png")


def waveform(results: Path) -> Figure:
    """The first spoken dialogue: a panel a speaker, lines as coloured spans, the pauses for vital signs in grey.

    Raises:
        InputError: nothing was spoken, or the pool lacks the dialogue.
    """
    import soundfile
    from matplotlib.figure import Figure

    row = _first_spoken(results)
    samples, rate = soundfile.read(results / "audio" / row["file"], always_2d=True)
    pauses = list(vital_pauses(row["lines"], _history(results, row)))
    figure = Figure(figsize=(9.6, 4.4), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True, sharey=True)
    for axes, (speaker, channel) in zip(panels, row["channels"].items(), strict=True):
        _draw_channel(axes, samples[:, channel], rate, COLOURS[speaker])
        axes.set_ylabel(f"{speaker}\n({('left', 'right')[channel]} channel)")
        for line in row["lines"]:
            if line["speaker"] == speaker:
                _draw_line(axes, line, row["duration_s"])
        for start, end, names in pauses:
            axes.axvspan(start, end, color=_PAUSE_COLOUR, lw=0)
            if speaker == "nurse":
                text = "\n".join(VITALS[name] for name in names)
                axes.text((start + end) / 2, 0, text, ha="center", va="center", fontsize=8)
    panels[0].set(xlim=(0, row["duration_s"]), ylim=(-1, 2.7), yticks=[-1, 0, 1])
    panels[1].set_xlabel("seconds (grey: a vital sign is measured)")
    what = f"{row['episode_id']}, pairing {row['pairing']}, voices of {row['engine']['name']}"
    figure.suptitle(f"A spoken dialogue: {what}", fontsize=10)
    return figure


def vital_pauses(
    lines: list[dict[str, Any]], history: list[dict[str, Any]]
) -> Iterator[tuple[float, float, list[str]]]:
    """Yield (start, end, vital signs) of each pause between spoken lines in which something was measured, in seconds.

    Args:
        lines: of the manifest, with `speaker`, `text`, `start` and `end`.
        history: of the episode.
    """
    names: list[str] = []
    found = 0
    for entry in history:
        if entry.get("event") == "vital":
            names.append(entry["name"])
        elif found < len(lines) and entry.get("utterance") == lines[found]["text"]:
            if names and found:
                yield lines[found - 1]["end"], lines[found]["start"], names
            names = []
            found += 1


def confusion_figure(results: Path) -> Figure:
    """True against final level of the baseline, a panel a scale.

    Raises:
        InputError: the run has no scores of the pairing.
    """
    from matplotlib.figure import Figure

    counts, labels = confusion(results)
    figure = Figure(figsize=(9.6, 4.6), layout="constrained")
    panels = figure.subplots(1, len(counts), squeeze=False)[0]
    for axes, (scale, table) in zip(panels, counts.items(), strict=True):
        _draw_confusion(axes, table)
        axes.set_title(f"{SCALES[scale]}, n = {sum(map(sum, table))}")
    total = sum(sum(map(sum, table)) for table in counts.values())
    what = f"{labels}; circular: its rules were written with these cases at hand"
    figure.suptitle(f"Pairing {PAIRING}, n = {total} dialogues\n{what}", fontsize=10)
    return figure


def confusion(results: Path) -> tuple[dict[str, list[list[int]]], str]:
    """Dialogues by true (row) and final (column) level, 5 × 5, by scale; and what a reader must know of the models.

    Raises:
        InputError: the run has no scores of the pairing.
    """
    counts: dict[str, list[list[int]]] = {}
    labels: set[str] = set()
    for path in sorted((results / "scores" / PAIRING).glob("*.csv")):
        for row in read_values(path):
            if row["status"] == "ok" and not row["other_scale"] and row["correct"] is not None:
                table = counts.setdefault(row["algorithm"], [[0] * 5 for _ in range(5)])
                table[row["ground_truth"] - 1][row["final_triage"] - 1] += 1
                labels.add(row["labels"])
    if not counts:
        raise InputError(f"{results}/scores/{PAIRING}: no graded dialogue; run the workflow with this pairing first")
    return {scale: counts[scale] for scale in SCALES if scale in counts}, "; ".join(sorted(labels))


def _first_spoken(results: Path) -> dict[str, Any]:
    rows = [row for path in sorted((results / "audio").glob("manifest-*.jsonl")) for _, row in read_lines(path)]
    if not rows:
        raise InputError(f"{results}/audio: no spoken dialogue; run the workflow with audio.max_dialogues of 1 or more")
    return rows[0]


def _history(results: Path, row: dict[str, Any]) -> list[dict[str, Any]]:
    """The history of a spoken dialogue."""
    pool = results / "pool.jsonl"
    for _, episode in read_lines(pool):
        if (episode["pairing"], episode["episode_id"]) == (row["pairing"], row["episode_id"]):
            history: list[dict[str, Any]] = episode["history"]
            return history
    raise InputError(f"{pool}: lacks {row['pairing']}/{row['episode_id']}, which was spoken; run the workflow again")


def browser(page: Path, chromium: str) -> bytes:
    """The report's browser with a spoken dialogue open, as a PNG."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        opened = started.new_page(viewport={"width": 1200, "height": 760}, reduced_motion="reduce")
        opened.goto(page.absolute().as_uri())
        opened.select_option("#mark", label="spoken")
        opened.click("#list button >> nth=0")
        opened.wait_for_selector("#dialogue .lines")
        opened.evaluate("document.getElementById('filters').scrollIntoView()")
        picture = opened.screenshot()
        started.close()
    return picture


def _save(figure: Figure, path: Path) -> None:
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=_DPI, facecolor="white")
    _quantized(drawn.getvalue(), path)


def _quantized(picture: bytes, path: Path) -> None:
    """Write a PNG of few colours, without date or version: the same run gives the same bytes."""
    from PIL import Image

    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").quantize(_PALETTE).save(path, optimize=True)


def _draw_channel(axes: Axes, samples: NDArray[np.float64], rate: int, colour: str) -> None:
    import numpy as np

    step = max(1, len(samples) // _POINTS)
    blocks = samples[: len(samples) // step * step].reshape(-1, step)
    peak = float(abs(samples).max()) or 1.0
    times = np.arange(len(blocks)) * step / rate
    axes.fill_between(times, blocks.min(1) / peak, blocks.max(1) / peak, color=colour, lw=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_line(axes: Axes, line: dict[str, Any], duration: float) -> None:
    """A line's span, with as much of its text as four rows hold."""
    colour = COLOURS[line["speaker"]]
    axes.axvspan(line["start"], line["end"], color=colour, alpha=0.15, lw=0)
    width = int((line["end"] - line["start"]) / duration * _CHARACTERS)
    text = textwrap.fill(line["text"], max(width, 6), max_lines=4, placeholder=" …", break_long_words=False)
    axes.text(line["start"] + 0.003 * duration, 2.62, text, fontsize=7, va="top", color=colour, clip_on=True)


def _draw_confusion(axes: Axes, table: list[list[int]]) -> None:
    most = max(map(max, table))
    axes.imshow(table, cmap="Blues", vmin=0, vmax=most * 1.2)
    for true, row in enumerate(table):
        for final, count in enumerate(row):
            colour = "white" if count > most * 0.7 else "black" if count else "#999999"
            axes.text(final, true, str(count), ha="center", va="center", color=colour, fontsize=11)
    ticks = range(5)
    axes.set(xticks=ticks, yticks=ticks, xticklabels=[f"{tick + 1}" for tick in ticks])
    axes.set(yticklabels=[f"{tick + 1}" for tick in ticks], xlabel="final level (1 most urgent)", ylabel="true level")


if __name__ == "__main__":
    command(main)
