"""The report's parts: the timeline of a dialogue, tables turned over, cautions, closing lines, colours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triagesim.cautions import cautions, graded_cases, graded_levels
from triagesim.jsonl import write_json, write_jsonl, write_table
from triagesim.report.dialogues import timeline
from triagesim.report.figures import draw
from triagesim.report.tables import MOST_ROWS, shown, view
from triagesim.resources import RESOURCES, load_yaml
from triagesim.summary import closing_lines

FLOW = {
    "read": 60,
    "accepted": 60,
    "rejected": 0,
    "selected": 60,
    "not_selected": 0,
    "selected_by_acuity": {"1": 10, "2": 10, "3": 20, "4": 10, "5": 10},
    "provenance": {"synthetic": 60},
}
ROW = {
    "pairing": "p",
    "labels": None,
    "episodes": 60,
    "ok": 60,
    "skipped": 0,
    "error": 0,
    "other_scale": 0,
    "leaked_label": 0,
    "graded": 60,
    "mean_turns": 6.5,
    "unchecked_speech": 0,
    "judged": 0,
    "completion_judge": None,
    "completion_labels": None,
}


def step(action: str, turn: int = 0, **more: Any) -> dict[str, Any]:
    return {"turn": turn, "action": action, "triage": 3, "explanation": action, **more}


def test_a_step_stands_beside_what_it_gave_and_alone_where_it_gave_nothing() -> None:
    cuff = step("check_vital", vital="sbp", utterance="The cuff first.")
    flag, silent = step("log_red_flag", red_flags=["pallor"]), step("check_vital", vital="o2sat", utterance="Finger.")
    ask, end = step("utterance", utterance="What happened?"), step("end", 1, utterance="Thank you.")
    history = [
        {"turn": 0, "actor": "nurse", "utterance": "The cuff first.", "action": "check_vital"},
        {"turn": 0, "actor": "system", "event": "vital", "name": "sbp", "value": 90.0},
        {"turn": 0, "actor": "system", "event": "vital", "name": "o2sat", "value": None, "measurable": False},
        {"turn": 0, "actor": "nurse", "utterance": "What happened?"},
        {"turn": 0, "actor": "patient", "utterance": "I fell."},
        {"turn": 1, "actor": "nurse", "utterance": "Thank you.", "action": "end"},
        {"turn": 1, "actor": "system", "event": "triage_end", "triage": 3},
    ]
    items = timeline({"history": history, "trace": [cuff, flag, silent, ask, end]})
    assert [(item.get("event") or item["actor"], item.get("step")) for item in items] == [
        ("nurse", cuff),
        ("vital", None),
        ("step", flag),
        ("vital", silent),
        ("nurse", ask),
        ("patient", None),
        ("nurse", end),
        ("triage_end", None),
    ]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["utterance", "check_vital", "log_red_flag", "end"]),
        st.integers(0, 3),
        st.sampled_from([None, "Hm.", "And then?"]),
        st.sampled_from([None, "sbp", "o2sat"]),
    ),
    max_size=8,
)
ITEMS = st.lists(
    st.one_of(
        st.builds(
            lambda turn, text: {"turn": turn, "actor": "nurse", "utterance": text},
            st.integers(0, 3),
            st.sampled_from(["Hm.", "And then?"]),
        ),
        st.builds(
            lambda turn, name: {"turn": turn, "actor": "system", "event": "vital", "name": name, "value": 1.0},
            st.integers(0, 3),
            st.sampled_from(["sbp", "o2sat"]),
        ),
        st.just({"turn": 3, "actor": "system", "event": "triage_end", "triage": 2}),
    ),
    max_size=8,
)


@given(STEPS, ITEMS)
def test_whatever_was_stored_every_step_and_every_item_stands_once_and_in_order(
    steps: list[tuple[Any, ...]], history: list[dict[str, Any]]
) -> None:
    trace = [
        step(what, turn, utterance=text, vital=vital, number=at) for at, (what, turn, text, vital) in enumerate(steps)
    ]
    items = timeline({"history": history, "trace": trace})
    assert [item["step"]["number"] for item in items if "step" in item] == list(range(len(trace)))
    bare = [
        {name: value for name, value in item.items() if name != "step"} for item in items if item["actor"] != "step"
    ]
    assert bare == history


def test_a_long_table_is_turned_over_with_intervals_and_says_why_a_cell_is_empty() -> None:
    head = {"pairing": "p", "group": "all", "level": "all"}
    rows = [
        {**head, "measure": "accuracy", "value": "0.5", "low": "0.25", "high": "0.75", "note": ""},
        {**head, "measure": "qwk", "value": "", "low": "", "high": "", "note": "undefined: one level only"},
        {**head, "measure": "lwk", "value": "-0.0001", "low": "", "high": "", "note": ""},
        {**head, "group": "gender", "measure": "accuracy", "value": "1", "low": "", "high": "", "note": ""},
    ]
    spec = {"file": "a.csv", "title": "A", "where": {"group": "all"}, "rows": {"pairing": "Pairing"}}
    turned = view({**spec, "measures": ["accuracy", "mae", "lwk", "qwk"]}, {"a.csv": rows})
    assert turned is not None
    assert turned.header == ["Pairing", "Exact", "Linear kappa", "Quadratic kappa"]
    assert [[cell.text for cell in row] for row in turned.rows] == [
        ["p", "0.500 (0.250–0.750)", "0.000", "– undefined: one level only"]
    ]


def test_an_interval_below_zero_is_written_with_a_word_and_not_with_a_dash() -> None:
    row = {"pairing": "p", "measure": "qwk", "value": "-1", "low": "-1", "high": "0", "note": ""}
    spec = {"file": "a.csv", "title": "A", "rows": {"pairing": "Pairing"}, "measures": ["qwk"]}
    found = view(spec, {"a.csv": [row]})
    assert found is not None
    assert found.rows[0][1].text == "-1.000 (-1.000 to 0.000)"


def test_each_contrast_of_a_trait_has_a_row_of_its_own_and_its_name_has_room() -> None:
    trait, measure = "patient_disfluency", "repetitions_and_repairs_per_100_words"
    rows = [
        {"pairing": "p", "trait": trait, "contrast": contrast, "measure": measure, "verdict": "holds", **numbers}
        for contrast in ("moderate against low", "high against low")
        for numbers in [{"hedges_g": "0.5", "g_low": "0.1", "g_high": "0.9"}]
    ]
    figure = draw("traits", {"traits.csv": rows})
    assert figure is not None
    drawn = re.findall(r">([^<>]+)</(?:text|tspan)>", figure.svg)
    label = "patient disfluency: repetitions and repairs per 100 words"
    assert [text for text in drawn if text == label or "against" in text] == [
        label,
        "moderate against low",
        label,
        "high against low",
    ]
    # Five pixels a character in the font that it is measured in; another may be a quarter wider.
    [left] = re.findall(r"<svg [^>]*><g [^>]*translate\((\d+),", figure.svg)
    assert int(left) > 1.25 * 5 * len(label)


def agreement_rows(pairing: str, n: int) -> list[dict[str, str]]:
    return [
        {"pairing": pairing, "group": "all", "level": "all", "measure": measure, "value": "0.5", "low": "0.4",
         "high": "0.6", "n": str(n), "cases": str(n)}
        for measure in ("accuracy", "within_one", "severe_under")
    ]  # fmt: skip


def test_a_figure_says_how_many_dialogues_it_counts_of_each_pairing() -> None:
    """Of the whole run, although a part of it may have more or fewer."""
    economy = [{"pairing": "p", "turn": str(turn), "accuracy": "0.5", "undecided": "0", "n": str(40 + turn)}
               for turn in range(3)]  # fmt: skip
    calibration = [{"pairing": "p", "confidence": name, "n": str(n), "accuracy": "0.5", "low": "0", "high": "1"}
                   for name, n in (("low", 2), ("high", 40))]  # fmt: skip
    confusion = [{"pairing": "p", "truth": str(truth), "final": "3", "n": "8"} for truth in range(1, 6)]
    tables: dict[str, list[Any]] = {
        "agreement.csv": agreement_rows("p", 42), "economy.csv": economy, "calibration.csv": calibration,
        "confusion.csv": confusion,
    }  # fmt: skip
    counts = {"agreement": 42, "economy": 42, "calibration": 42, "confusion": 40}
    for name, n in counts.items():
        figure = draw(name, tables)
        assert figure is not None
        drawn = re.findall(r">([^<>]+)</(?:text|tspan)>", figure.svg)
        assert {text for text in drawn if "n = " in text} == {f"p (n = {n})"}, name


def test_one_huge_effect_does_not_hide_the_others() -> None:
    rows = [
        {"pairing": "p", "trait": "t", "contrast": f"{size} against 0", "measure": "words", "verdict": "holds",
         "hedges_g": str(size), "g_low": str(size - 1), "g_high": str(size + 9)}
        for size in (1, 30)
    ]  # fmt: skip
    figure = draw("traits", {"traits.csv": rows})
    assert figure is not None
    drawn = re.findall(r">([^<>]+)</(?:text|tspan)>", figure.svg)
    assert "standard deviations" in drawn
    assert not {"10", "20", "30"} & set(drawn)
    assert figure.data[1][4] == 30


def test_a_table_shows_its_known_columns_and_counts_the_rows_that_it_leaves_to_the_file() -> None:
    rows = [{"pairing": "007", "n": str(at * 1000), "other": "x"} for at in range(MOST_ROWS + 3)]
    spec = {"file": "a.csv", "title": "A", "columns": {"n": "N", "pairing": "Pairing", "not there": "-"}}
    found = view(spec, {"a.csv": rows})
    assert found is not None
    assert (found.header, found.more) == (["N", "Pairing"], 3)
    assert [cell.text for cell in found.rows[1]] == ["1,000", "007"]
    assert view(spec, {"a.csv": []}) is None
    assert view(spec, {}) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "–"), ("12", "12"), ("0.12345", "0.123"), ("1234.5", "1,234.5"), ("nan", "–"), ("<b>", "<b>")],
)
def test_a_cell_is_shown_as_a_person_reads_it(text: str, said: str) -> None:
    assert shown(text).text == said


def test_every_table_and_measure_that_a_section_names_is_described_once() -> None:
    sections = load_yaml("report/sections.yaml")
    assert len({section["id"] for section in sections}) == len(sections)
    for section in sections:
        for table in section["tables"]:
            assert "measures" in table or table["columns"], table["title"]
            assert ("measures" in table) == ("rows" in table), table["title"]
            assert set(table.get("measures", ())) <= set(load_yaml("report/measures.yaml")), table["title"]


# Cautions


def test_a_sound_run_of_a_real_model_needs_no_caution() -> None:
    assert cautions(FLOW, [ROW], [], {"p": 60}) == []


@pytest.mark.parametrize(
    ("flow", "row", "said"),
    [
        ({"accepted": 59}, {}, "60 rows read, but 59 accepted and rejected"),
        ({}, {"ok": 58}, "60 episodes of p, but 58 finished, skipped and failed"),
        ({"provenance": {"mimic_iv_ed": 60}}, {}, "holds mimic_iv_ed data"),
        ({"provenance": {"mimic_iv_ed_demo": 60}}, {}, "isn't agreement with need"),
        ({"selected_by_acuity": {"3": 40, "2": 20}}, {}, "Level 3 is 67% of the cases"),
        ({"selected_by_acuity": {"3": 30, "2": 30}}, {}, "Levels 1, 4, 5: fewer than 5 cases each"),
        ({}, {"labels": "demo-quality model"}, "With a demo-quality model: p. Don't judge language models by it."),
        ({}, {"labels": "baseline without a language model"}, "With a baseline without a language model: p."),
        (
            {},
            {"labels": "baseline without a language model", "nurse_model": "big", "patient_model": "agenda"},
            "With a baseline without a language model in some roles: p. What is said there are rules,",
        ),
        ({}, {"unchecked_speech": 1}, "which is in doubt in 1 case (level 1,"),
        ({}, {"leaked_label": 4}, "p: in 4 dialogues the nurse was told"),
        ({}, {"other_scale": 4}, "p: 4 dialogues used another scale"),
        ({}, {"error": 2, "ok": 58}, "p: 2 of 60 episodes failed"),
        ({}, {"unchecked_speech": 7}, "p: nobody checks whether the patient can talk, which is in doubt in 7 cases"),
        (
            {},
            {"judged": 60, "completion_judge": "small", "completion_labels": "demo-quality model"},
            "p: completion was judged by small (demo-quality model).",
        ),
        ({}, {"graded": 0}, "p: no dialogue could be graded"),
    ],
)
def test_what_a_reader_must_know_is_said(flow: dict[str, Any], row: dict[str, Any], said: str) -> None:
    found = cautions({**FLOW, **flow}, [{**ROW, **row}], [], {"p": 60})
    assert any(said in caution for caution in found), found


def test_a_baseline_on_the_cases_of_its_own_making_is_called_circular() -> None:
    row = {**ROW, "labels": "baseline without a language model"}
    shipped = {**FLOW, "source": "vignettes.jsonl"}
    assert "circular" in cautions(shipped, [row], [], {"p": 60})[0]
    others = [(FLOW, row), ({**FLOW, "source": "own.csv"}, row), (shipped, ROW)]
    others.append(({**shipped, "provenance": {"mimic_iv_ed_demo": 60}}, row))
    for flow, one in others:
        assert not any("circular" in text for text in cautions(flow, [one], [], {"p": 60}))


def test_few_cases_are_counted_from_the_table_of_agreement() -> None:
    agreement = [
        {"pairing": "p", "group": "all", "measure": "accuracy", "cases": "29"},
        {"pairing": "p", "group": "gender", "measure": "accuracy", "cases": "12"},
    ]
    assert graded_cases(agreement) == {"p": 29}
    assert "few graded cases (29)" in cautions(FLOW, [ROW], [], graded_cases(agreement))[0]
    assert cautions(FLOW, [ROW], []) == []


def test_levels_are_counted_among_the_cases_that_a_pairing_graded() -> None:
    limited = {"1": 6, "2": 4, "3": 1, "4": 1}
    whole = {"1": 10, "2": 10, "3": 20, "4": 10, "5": 10}
    agreement = [
        {"pairing": pairing, "group": "truth", "level": level, "measure": measure, "cases": str(count)}
        for pairing, counts in {"p": whole, "limited": limited}.items()
        for level, count in counts.items()
        for measure in ("accuracy", "qwk")
    ]
    rows = [ROW, {**ROW, "pairing": "limited", "episodes": 12, "ok": 12, "graded": 12}]
    levels = graded_levels(agreement)
    assert levels == {"p": whole, "limited": limited}
    rare = "evels 2, 3, 4, 5: fewer than 5 cases each. A figure of such a level rests on single cases."
    assert cautions(FLOW, rows, [], None, levels) == [f"limited: l{rare}"]
    assert cautions(FLOW, rows[1:], [], None, {"limited": limited}) == [f"L{rare}"]


def test_a_pairing_with_fewer_cases_than_a_level_needs_is_called_few_and_no_more() -> None:
    row = {**ROW, "episodes": 3, "ok": 3, "graded": 3}
    found = cautions(FLOW, [row], [], {"p": 3}, {"p": {"1": 3}})
    assert found == ["p: few graded cases (3). Below 30 an interval says little; take such figures as an example."]


def test_voices_that_may_not_be_sold_and_voices_that_stand_in_are_named() -> None:
    engine = {"name": "xtts", "licence": "CPML (Coqui Public Model License)", "fallback": None}
    other = {"name": "espeak", "licence": "GPL-3.0-or-later", "fallback": "kokoro isn't there"}
    found = cautions(FLOW, [ROW], [{"engine": engine}, {"engine": other}, {"engine": other}])
    assert len(found) == 2
    assert "non-commercial use only" in found[0]
    assert found[1] == "The wanted voices weren't there, so espeak speaks: kokoro isn't there"


# The end of a run


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = Path("results")
    write_json(folder / "cases/flow.json", {**FLOW, "read": 61, "rejected": 1})
    write_table(folder / "metrics/summary.csv", list(ROW), [ROW.values()])
    calls = [("p", 2, 2, 51), ("p", 2, 1, 5), ("p", 2, 4, 4), ("other", 1, 1, 9)]
    write_table(folder / "metrics/confusion.csv", ["pairing", "truth", "final", "n"], calls)
    write_jsonl(folder / "pool.jsonl", [{"episode_id": "a-0"}])
    (folder / "report.html").write_text("<html>", encoding="utf-8")
    return folder


def test_the_closing_lines_count_from_the_confusion_and_name_the_page_first(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PWD", str(Path.cwd()))
    lines = closing_lines(results).splitlines()
    assert lines[0] == "cases: 61 rows read, 1 rejected (results/cases/rejects.csv), 60 to simulate"
    assert lines[2].split() == ["p", "60", "0", "0", "51", "of", "60", "5", "4", "6.5"]
    assert [line for line in lines if line.startswith("open")] == [
        "open: results/report.html",
        "open: results/metrics/summary.csv",
        "open: results/pool.jsonl",
    ]


def test_an_empty_file_is_not_offered(results: Path) -> None:
    write_jsonl(results / "pool.jsonl", [])
    write_jsonl(results / "audio/manifest-1-of-1.jsonl", [])
    assert [Path(path).name for path in re.findall("^open: (.*)", closing_lines(results), re.MULTILINE)] == [
        "report.html",
        "summary.csv",
    ]


def test_an_older_dataset_is_not_taken_for_one_of_data_that_is_not_open(results: Path) -> None:
    card = results / "dataset/README.md"
    card.parent.mkdir()
    card.write_text("A card", encoding="utf-8")
    assert "dataset/README.md" in closing_lines(results)
    write_json(results / "cases/flow.json", {**FLOW, "provenance": {"deidentified": 60}})
    printed = closing_lines(results)
    assert "dataset/README.md" not in printed
    assert "note: No dataset is made of such data" in printed
    assert "dataset is of an earlier run" in printed
    write_json(results / "config.json", {"dataset": {"include_credentialed": True}})
    assert "dataset/README.md" in closing_lines(results)


def test_the_first_line_says_which_pairings_take_fewer_cases(results: Path) -> None:
    limits = {"p": None, "q": 12, "r": 12, "s": 60, "t": 3, "gone": 1}
    for name, limit in limits.items():
        write_json(results / f"pairings/{name}.json", {"limit": limit})

    def first(*names: str) -> str:
        write_table(results / "metrics/summary.csv", list(ROW), [{**ROW, "pairing": name}.values() for name in names])
        return closing_lines(results).splitlines()[0].partition("rejects.csv), ")[2]

    assert first("p", "s") == "60 to simulate"
    assert first("p", "q", "r", "s", "t") == "60 selected, at most 12 by q, r, at most 3 by t"
    for name in ("u", "v"):
        write_json(results / f"pairings/{name}.json", {"limit": 12})
    assert first("q", "r", "u", "v") == "60 selected, at most 12 by 4 pairings"


def test_paths_are_whole_where_the_caller_stands_elsewhere(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PWD", "/somewhere/else")
    printed = closing_lines(results)
    assert f"1 rejected ({Path.cwd()}/results/cases/rejects.csv)" in printed
    assert f"open: {Path.cwd()}/results/report.html" in printed


# Colours


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_marks_stand_out_from_what_they_are_on(theme: str) -> None:
    colours = load_yaml("report/palette.yaml")[theme]

    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance(colours[one]), luminance(colours[other])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    texts = ["ink", "muted", "accent", "good", "bad", "c1", "c2"]
    assert {text: contrast(text, on) for text in texts for on in ("paper", "card") if contrast(text, on) < 4.5} == {}
    assert contrast("ink", "caution") >= 4.5
    assert {f"c{at}": contrast(f"c{at}", "paper") for at in range(1, 9) if contrast(f"c{at}", "paper") < 3} == {}


def test_style_and_drawings_name_only_colours_that_both_themes_have() -> None:
    light, dark = (set(load_yaml("report/palette.yaml")[theme]) for theme in ("light", "dark"))
    assert light == dark
    used = [RESOURCES / "report/page.css", RESOURCES.parent / "workflow/triagesim/report/figures.py"]
    named = set(re.findall(r"var\(--(\w+)\)", "".join(path.read_text(encoding="utf-8") for path in used)))
    assert named <= light


def test_what_an_earlier_number_of_shards_left_is_not_offered(results: Path) -> None:
    write_json(results / "config.json", {"audio": {"shards": 2}})
    (results / "audio").mkdir()
    for name in ("1-of-1", "1-of-2", "2-of-2"):
        (results / f"audio/manifest-{name}.jsonl").write_text("\n" if name != "1-of-1" else "{}\n", encoding="utf-8")
    assert [Path(path).name for path in re.findall("^open: (.*)", closing_lines(results), re.MULTILINE)][3:] == [
        "manifest-1-of-2.jsonl",
        "manifest-2-of-2.jsonl",
    ]
