"""Texts that the report's drawings can't hold as they are."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from triagesim.report.figures import draw
from triagesim.resources import load_yaml

HOSTILE = [
    "bell \x07",
    "nul \x00",
    "escape \x1b[31m",
    "\ufffe",
    "<script>x</script>",
    "]]>",
    "&amp;",
    "\u202eabc",
    "😷",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_figure_is_drawn_of_any_text(text: str) -> None:
    """The renderer ends the whole process at a character that XML doesn't have."""
    rows = [
        {
            "pairing": text,
            "group": "all",
            "level": "",
            "measure": measure,
            "value": "0.5",
            "low": "0.4",
            "high": "0.6",
        }
        for measure in load_yaml("report/measures.yaml")
    ]
    figure = draw("agreement", {"agreement.csv": rows})
    assert figure is not None
    assert ET.fromstring(figure.svg).tag.endswith("svg")
    assert "<script" not in figure.svg
    assert figure.data[0][0] == text
