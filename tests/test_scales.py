"""What `docs/scales.md` says of the scales is what their data hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from triagesim.resources import RESOURCES, load_yaml

PAGE = (RESOURCES.parent / "docs/scales.md").read_text(encoding="utf-8")
FLAT = " ".join(PAGE.split())
SCALES = {name: load_yaml(f"scales/{name}.yaml") for name in ("esi", "ats")}
CODE = re.compile(r"`([^`\n]+)`")
NAMED = sorted({text for text in CODE.findall(PAGE) if text.startswith(("esi.", "ats."))})


def at(path: str) -> Any:
    """What a dotted path leads to; an entry of a list is found by its id.

    Raises:
        KeyError: there is nothing.
    """
    scale, *keys = path.split(".")
    value: Any = SCALES[scale]
    for key in keys:
        value = {entry["id"]: entry for entry in value} if isinstance(value, list) else value
        value = value[key]
    return value


def conditions(rule: dict[str, Any]) -> set[str]:
    return {text for key in ("all", "any", "none") for text in rule.get(key, ())}


def rows() -> Iterator[list[str]]:
    """The cells of every row of a table that begins with a key path."""
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and CODE.findall(cells[0])[0] in NAMED:
            yield cells


@pytest.mark.parametrize("path", NAMED)
def test_a_key_path_that_the_page_names_exists(path: str) -> None:
    assert at(path) is not None


def test_a_number_beside_a_rule_is_one_of_its_conditions() -> None:
    stated = {CODE.findall(cells[0])[0]: set(CODE.findall(cells[1])) for cells in rows() if ".rules." in cells[0]}
    assert len(stated) > 20
    assert {path: numbers for path, numbers in stated.items() if not numbers <= conditions(at(path))} == {}


def test_a_stated_number_of_rules_is_how_many_there_are() -> None:
    points = [cells for cells in rows() if cells[-1].isdigit()]
    stated = {CODE.findall(cells[0])[0]: int(cells[-1]) for cells in points}
    assert stated == {path: len(at(path)["rules"]) for path in stated}
    assert len(stated) == 7


def test_the_adult_limits_of_the_danger_zone_are_the_stated_ones() -> None:
    (text,) = [cells[1] for cells in rows() if cells[0] == "`esi.danger_zone.adult`" and "%" in cells[1]]
    assert [int(number) for number in re.findall(r"\d+", text)] == list(at("esi.danger_zone.adult").values())


def test_the_page_names_every_kind_of_resource_in_order() -> None:
    listed = FLAT.partition("lists eleven: ")[2].partition(". Each counts once")[0]
    assert listed == ", ".join(at("esi.decision_points.C.counts"))
    assert len(at("esi.decision_points.C.counts")) == 11


def test_no_rule_predicts_angiography_and_every_other_kind_has_one() -> None:
    kinds = {rule["kind"] for rule in at("esi.decision_points.C.rules")}
    assert set(at("esi.decision_points.C.counts")) - kinds == {"angiography"}


def test_no_rule_of_point_b_rests_on_pain_alone() -> None:
    for rule in at("esi.decision_points.B.rules"):
        needed = [set(rule.get("any", ())), *({condition} for condition in rule.get("all", ()))]
        beside = [group for group in needed if group and not any(text.startswith("pain") for text in group)]
        assert beside or not any(text.startswith("pain ") for group in needed for text in group), rule["id"]


def test_two_things_explain_a_sign_in_the_danger_zone() -> None:
    assert [entry["says"] for entry in at("esi.explained")] == [
        "a fast pulse after a nebuliser",
        "a usual oxygen level on home oxygen",
    ]


@pytest.mark.parametrize("scale", SCALES)
def test_the_trademark_line_is_on_the_page(scale: str) -> None:
    owner = re.search(r"\((ENA|ACEM)\)", SCALES[scale]["trademark"])
    assert owner
    assert f"({owner[1]}), which doesn't endorse this project" in FLAT
