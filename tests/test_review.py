"""The review kit: who is drawn, what raters see, what comes back, and how agreement is computed."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import personas
from triagesim import load_backend, load_cases, simulate
from triagesim.errors import InputError
from triagesim.jsonl import write_jsonl
from triagesim.resources import RESOURCES
from triagesim.review.kit import Item, draw_items, spoken, write_kit
from triagesim.review.questions import asked, columns
from triagesim.review.reliability import ac1, cohen, fleiss, krippendorff, same
from triagesim.review.results import write_results

Episode = dict[str, Any]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@cache
def run() -> tuple[Episode, ...]:
    """Two pairings of the baseline over some vignettes, one with a dialogue master."""
    agenda = load_backend("agenda")
    cases = load_cases(RESOURCES / "cases" / "vignettes.jsonl")[:14]
    pools = {"nurse_personas": personas("nurse", 6), "patient_personas": personas("patient", 6)}
    found = []
    for pairing, judge in (("plain-pairing", None), ("judged-pairing", agenda)):
        episodes = simulate(cases, nurse_llm=agenda, patient_llm=agenda, judge_llm=judge, **pools)
        found += [{**episode, "pairing": pairing} for episode in episodes]
    return tuple(json.loads(json.dumps(sorted(found, key=lambda e: (e["pairing"], e["episode_id"])))))


def kit(folder: Path, sample: int = 12, repeats: int = 2) -> list[Item]:
    """A kit of the run, in `folder`."""
    write_jsonl(folder / "episodes.jsonl", run())
    return write_kit([folder / "episodes.jsonl"], folder, sample=sample, repeats=repeats, seed=0)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def fill(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    """A filled-in file."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns(), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def answer(rater: str, item: Item, score: int, level: int, **more: Any) -> dict[str, Any]:
    return {"rater": rater, "item": item.name, **dict.fromkeys(asked().questions, score), "level": level, **more}


def results(folder: Path, *files: Path) -> dict[str, list[dict[str, str]]]:
    """The tables of a review, by name."""
    write_results(files, folder / "key.csv", [folder / "episodes.jsonl"], folder)
    return {name: table(folder / f"{name}.csv") for name in ("ratings", "means", "agreement", "rewrites")}


# Agreement


def counts(*raters: str) -> Any:
    """Items × 5 from a string of answers a rater; a dot is none."""
    return np.array(
        [[answers.count(str(k)) for k in range(1, 6)] for answers in zip(*raters, strict=True)], dtype=float
    )


#: Four observers and twelve units, the reliability data of Krippendorff's worked example.
OBSERVERS = counts("123321412...", "1233224125.3", ".3332342251.", "12332441251.")
#: Fourteen raters and ten subjects: a worked example of Fleiss' kappa that many textbooks print.
SUBJECTS = np.array(
    [
        [0, 0, 0, 0, 14],
        [0, 2, 6, 4, 2],
        [0, 0, 3, 5, 6],
        [0, 3, 9, 2, 0],
        [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0],
        [3, 2, 6, 3, 0],
        [2, 5, 3, 2, 2],
        [6, 5, 2, 1, 0],
        [0, 2, 2, 3, 7],
    ],
    dtype=float,
)


@pytest.mark.parametrize(
    ("value", "published"),
    [
        (krippendorff(OBSERVERS, 5, "nominal").value, 0.743),
        (krippendorff(OBSERVERS, 5, "ordinal").value, 0.815),
        (ac1(OBSERVERS, 5).value, 0.775),
        (fleiss(OBSERVERS, 5).value, 0.761),
        (fleiss(SUBJECTS, 5).value, 0.210),
        # By hand: 35 of 50 alike, 25 by chance; and squared distances of 1 in all, 20 / 4 by chance.
        (cohen([[(1, 1)]] * 20 + [[(2, 2)]] * 15 + [[(1, 2)]] * 5 + [[(2, 1)]] * 10, 2, 0).value, 0.4),
        (cohen([[(1, 1)], [(2, 2)], [(3, 3)], [(3, 2)]], 3, 2).value, 0.8),
        (same([[(1, 1), (1, 2)], [(3, 3)], []]).value, 2 / 3),
    ],
)
def test_the_measures_give_published_values(value: float, published: float) -> None:
    assert value == pytest.approx(published, abs=0.0006)


def test_where_all_answers_are_alike_there_is_no_value_but_a_reason() -> None:
    alike = counts("3333", "3333")
    assert krippendorff(alike, 5, "ordinal")[:3] == (None, None, None)
    assert "alike" in fleiss(alike, 5).note
    assert "one answer on both sides" in cohen([[(3, 3)]] * 4, 5, 2).note
    assert ac1(alike, 5).value == 1
    assert fleiss(counts("3.1.", ".2.4"), 5).note == "no two answers to the same item"


RATINGS = st.lists(st.lists(st.integers(1, 4), min_size=2, max_size=2), min_size=2, max_size=15)


@given(RATINGS)
def test_agreement_is_at_most_one_and_doesn_t_depend_on_who_is_first(found: list[list[int]]) -> None:
    tables = np.array([[answers.count(k) for k in range(1, 5)] for answers in found], dtype=float)
    values = [fleiss(tables, 4).value, ac1(tables, 4).value, krippendorff(tables, 4, "ordinal").value]
    assert all(value is None or value <= 1 + 1e-9 for value in values)
    swapped = cohen([[(b, a)] for a, b in found], 4, 2).value
    assert cohen([[(a, b)] for a, b in found], 4, 2).value == pytest.approx(swapped)


# The kit


def test_levels_and_pairings_are_drawn_evenly_and_a_larger_sample_holds_the_smaller() -> None:
    small, large = (
        {(i.episode["pairing"], i.episode["episode_id"]) for i in draw_items(run(), n, 0, 0)} for n in (8, 16)
    )
    assert (len(small), len(large)) == (8, 16)
    assert small < large
    drawn = Counter((i.episode["case"]["acuity"], i.episode["pairing"]) for i in draw_items(run(), 10, 0, 0))
    there = Counter((e["case"]["acuity"], e["pairing"]) for e in run())
    assert all(drawn[stratum] >= min(1, count) for stratum, count in there.items() if len(there) <= 10)
    assert max(drawn.values()) - min(drawn.values()) <= 1


def test_repeats_are_of_the_first_half_and_come_in_the_second() -> None:
    items = draw_items(run(), 12, 3, 0)
    assert len(items) == 15
    by_name = {item.name: number for number, item in enumerate(items)}
    again = [item for item in items if item.repeat_of]
    assert len(again) == 3
    for item in again:
        assert item.repeat_of is not None
        first = items[by_name[item.repeat_of]]
        assert first.episode is item.episode
        assert by_name[first.name] < 6 <= by_name[item.name]
    assert [item.name for item in draw_items(run(), 12, 3, 1)] != [item.name for item in items]


def test_raters_see_no_label_model_persona_or_id(tmp_path: Path) -> None:
    items = kit(tmp_path)
    key = table(tmp_path / "key.csv")
    assert [row["item"] for row in key] == [item.name for item in items]
    for shown in ("form.html", "form.csv"):
        text = (tmp_path / shown).read_text(encoding="utf-8")
        for row in key:
            assert row["item"] in text
            assert not any(row[name] in text for name in ("episode_id", "case_id", "pairing"))
        assert not re.search(r"agenda|acuity|persona|final_triage|explanation|red.flag", text, re.IGNORECASE)
        for item in items:
            assert not any(diagnosis in text for diagnosis in item.episode["case"]["diagnoses"])
    rows = table(tmp_path / "form.csv")
    assert [(row["speaker"], row["text"].removeprefix("'")) for row in rows if row["item"] == items[0].name][1:] == [
        (speaker, text) for _, speaker, text in spoken(items[0].episode)
    ]


def test_the_kit_is_the_same_again_and_private_where_the_data_isn_t_open(tmp_path: Path) -> None:
    kit(tmp_path)
    before = (tmp_path / "form.html").read_bytes()
    kit(tmp_path)
    assert (tmp_path / "form.html").read_bytes() == before
    case = {**run()[0]["case"], "provenance": "mimic_iv_ed"}
    write_jsonl(tmp_path / "closed.jsonl", [{**run()[0], "case": case}])
    write_kit([tmp_path / "closed.jsonl"], tmp_path / "closed", sample=5, repeats=0, seed=0)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "closed").iterdir()} == {0o600}
    assert "data use agreement" in (tmp_path / "closed/form.html").read_text(encoding="utf-8")


# What comes back


def test_answers_agreement_and_rewrites_come_out_of_returned_files(tmp_path: Path) -> None:
    items = kit(tmp_path)
    rows: dict[str, list[dict[str, Any]]] = {"R1": [], "R2": []}
    for number, item in enumerate(items):
        for rater, score in (("R1", 1 + number % 5), ("R2", min(5, 2 + number % 5))):
            rows[rater].append(answer(rater, item, score, item.episode["final_triage"]))
    place, _, _ = next(spoken(items[0].episode))
    other, _, kept = list(spoken(items[0].episode))[1]
    rows["R1"] += [
        {"rater": "R1", "item": items[0].name, "line": place, "edit": "Something else entirely, quite unlike it?"},
        {"rater": "R1", "item": items[0].name, "line": other, "edit": kept},
    ]
    first = fill(tmp_path / "returned" / "one.csv", rows["R1"])
    second = fill(tmp_path / "returned" / "two.csv", rows["R2"], delimiter=";")
    found = results(tmp_path, first, second)
    assert len(found["ratings"]) == 2 * len(items) * (len(asked().questions) + 1)
    by = {(row["question"], row["between"], row["measure"]): row for row in found["agreement"]}
    assert by["level", "nurse, raters", "share_same"]["value"] == "1.0"
    assert by["level", "R1, R2", "cohen_kappa_quadratic"]["value"] == "1.0"
    assert float(by["safety", "raters", "krippendorff_alpha_ordinal"]["value"]) < 1
    assert by["safety", "raters", "fleiss_kappa"]["dialogues"] == "12"
    assert by["level", "the same rater again", "share_same"]["dialogues"] == "2"
    assert by["plausibility", "master, raters", "gwet_ac1"]["dialogues"] == "6"
    judged_lines = sum(
        bool(entry.get("verification")) and entry.get("in_transcript") is not False
        for item in items
        if not item.repeat_of
        for entry in item.episode["history"]
    )
    assert by["lines", "master, raters", "share_same"]["answers"] == str(2 * judged_lines)
    whole = next(row for row in found["rewrites"] if row["by"] == "all")
    assert (whole["rewritten"], whole["edited_lines"]) == ("1", "1")
    raters = {row["value"]: row["rewritten"] for row in found["rewrites"] if row["by"] == "rater"}
    assert raters == {"R1": "1", "R2": "0"}
    mean = next(row for row in found["means"] if row["by"] == "all" and row["question"] == "safety")
    shown = [number for number, item in enumerate(items) if not item.repeat_of]
    expected = sum(1 + n % 5 + min(5, 2 + n % 5) for n in shown) / (2 * len(shown))
    assert float(mean["mean"]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"safety": "7"}, r"one\.csv, line 3: safety is '7'; expected 1, 2, 3, 4, 5 or nothing"),
        ({"safety": "good"}, r"one\.csv, line 3: safety is 'good'"),
        ({"item": "D99-0000"}, r"one\.csv, line 3: item 'D99-0000' isn't in this kit"),
        ({"rater": ""}, r"one\.csv, line 3: rater ''; expected an id"),
        ({"line": "999", "edit": "x"}, r"one\.csv, line 3: line '999' is none of the dialogue's"),
    ],
)
def test_a_bad_row_is_told_with_file_and_line(change: dict[str, str], message: str, tmp_path: Path) -> None:
    items = kit(tmp_path)
    rows = [answer("R1", items[0], 3, 3), {**answer("R1", items[1], 3, 3), **change}]
    with pytest.raises(InputError, match=message):
        results(tmp_path, fill(tmp_path / "one.csv", rows))


def test_a_doubled_answer_a_foreign_table_and_nothing_at_all_are_errors(tmp_path: Path) -> None:
    items = kit(tmp_path)
    one = fill(tmp_path / "one.csv", [answer("R1", items[0], 3, 3)])
    two = fill(tmp_path / "two.csv", [answer("R1", items[0], 4, 3)])
    with pytest.raises(InputError, match=r"two\.csv, line 2: rater R1 answered .* already, at .*one\.csv, line 2"):
        results(tmp_path, one, two)
    (tmp_path / "odd.csv").write_text("rater,item,line,edit,mood\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"odd\.csv, line 1: the header has mood; expected rater, item"):
        results(tmp_path, tmp_path / "odd.csv")
    (tmp_path / "short.csv").write_text("item\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"short\.csv, line 1: the header lacks rater, line, edit"):
        results(tmp_path, tmp_path / "short.csv")
    with pytest.raises(InputError, match="no filled-in review file"):
        results(tmp_path)
    with pytest.raises(InputError, match=r"csv files into back/here, the folder that review\.returned names"):
        write_results([], tmp_path / "key.csv", [], tmp_path, Path("back/here"))


def test_the_empty_table_of_the_kit_says_nothing_and_a_filled_one_is_read(tmp_path: Path) -> None:
    items = kit(tmp_path)
    rows: list[dict[str, Any]] = [dict(row) for row in table(tmp_path / "form.csv")]
    with_rater = [{**row, "rater": "R1", "safety": "4.0" if not row["line"] else ""} for row in rows]
    found = results(tmp_path, fill(tmp_path / "filled.csv", rows), fill(tmp_path / "more.csv", with_rater))
    assert {(row["question"], row["answer"]) for row in found["ratings"]} == {("safety", "4")}
    assert len(found["ratings"]) == len(items)


def test_the_form_is_filled_by_keyboard_keeps_its_state_and_saves_a_file_that_is_read(tmp_path: Path) -> None:
    if CHROMIUM is None:
        if os.environ.get("TRIAGESIM_CHROMIUM"):
            pytest.fail("TRIAGESIM_CHROMIUM is set, but there is no Chromium on the path")
        pytest.skip("no Chromium on the path; on Debian: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    items = kit(tmp_path)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        logged: list[str] = []
        asked_for: list[str] = []
        page.on("console", lambda message: logged.append(message.text))
        page.on("pageerror", lambda error: logged.append(str(error)))
        page.on("request", lambda request: asked_for.append(request.url))
        page.goto((tmp_path / "form.html").as_uri())
        page.click("#save")
        assert "Enter your rater id first" in page.inner_text("#told")
        page.keyboard.type("R1")
        section = f"section[data-item='{items[0].name}']"
        for question in (*asked().questions, "level"):
            page.focus(f"{section} [data-question={question}]")
            page.keyboard.press("Space")
            page.keyboard.press("ArrowRight")
            page.keyboard.press("ArrowRight")
        page.focus(f"{section} li.nurse summary")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.type('=So, "what" happened?')
        assert page.inner_text("#told") == f"1 of {len(items)} complete"
        page.focus("#next")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.textContent") == f"Dialogue {items[1].name}"
        page.reload()
        assert page.input_value("#rater") == "R1"
        assert page.is_visible(f"section[data-item='{items[1].name}']")
        assert not page.is_visible(section)
        with page.expect_download() as download:
            page.click("#save")
        download.value.save_as(tmp_path / download.value.suggested_filename)
        browser.close()
    assert logged == []
    assert {url.partition(":")[0] for url in asked_for} <= {"file", "blob"}
    found = results(tmp_path, tmp_path / "review-R1.csv")
    assert {(row["item"], row["answer"]) for row in found["ratings"]} == {(items[0].name, "3")}
    assert len(found["ratings"]) == len(asked().questions) + 1
    assert next(row for row in found["rewrites"] if row["by"] == "all")["edited_lines"] == "1"
