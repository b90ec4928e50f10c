"""Tables that a table program, another tool or a long text has changed, read back in."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from actors import personas
from triagesim import load_backend, simulate
from triagesim.cases import Case
from triagesim.errors import InputError
from triagesim.jsonl import read_table, write_jsonl, write_table
from triagesim.review.questions import asked, columns
from triagesim.review.returned import read_returned
from triagesim.score_rows import read_scores, write_scores
from triagesim.sources import read_rows

LINES = {"D1-ab12": {0: "What brings you in?", 2: "My chest hurts."}}
QUESTION = next(iter(asked().questions))


def _file(folder: Path, *rows: dict[str, str], encoding: str = "utf-8", more: int = 0, end: str = "\n") -> Path:
    """A filled-in file with `more` empty columns at its end."""
    path = folder / "review.csv"
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, lineterminator=end)
        writer.writerow([*columns(), *[""] * more])
        writer.writerows([*(row.get(name, "") for name in columns()), *[""] * more] for row in rows)
    return path


def _row(**cells: str) -> dict[str, str]:
    return {"rater": "r1", "item": "D1-ab12", **cells}


def test_empty_columns_at_the_end_count_for_nothing(tmp_path: Path) -> None:
    file = _file(tmp_path, _row(**{QUESTION: "4"}), more=3)
    assert read_returned([file], LINES)["r1", "D1-ab12"].answers == {QUESTION: 4}


def test_a_text_beyond_the_named_columns_is_told(tmp_path: Path) -> None:
    file = _file(tmp_path, _row(**{QUESTION: "4"}))
    file.write_text(file.read_text(encoding="utf-8").rstrip("\n") + ",more\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 2: \d+ cells, but the header has"):
        read_returned([file], LINES)


def test_a_line_that_a_table_program_made_a_fraction_of_is_the_same_line(tmp_path: Path) -> None:
    file = _file(tmp_path, _row(line="2.0", edit="It hurts here."))
    assert read_returned([file], LINES)["r1", "D1-ab12"].edits == {2: "It hurts here."}
    twice = _file(tmp_path, _row(line="2", edit="It hurts."), _row(line="2.0", edit="It hurts here."))
    with pytest.raises(InputError, match="line 3: rater r1 answered line 2 of D1-ab12 already"):
        read_returned([twice], LINES)


@pytest.mark.parametrize("line", ["1", "-2", "2.5", "9" * 5000, "²", "٢"])
def test_a_line_that_is_none_of_the_dialogue_is_told(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match=r"line 2: line .* is none of the dialogue's"):
        read_returned([_file(tmp_path, _row(line=line, edit="x"))], LINES)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_line_ending_and_mark_is_read(tmp_path: Path, encoding: str, end: str) -> None:
    file = _file(tmp_path, _row(**{QUESTION: "5.0"}), encoding=encoding, end=end)
    assert read_returned([file], LINES)["r1", "D1-ab12"].answers == {QUESTION: 5}


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
def test_another_encoding_is_told(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(InputError, match="not UTF-8"):
        read_returned([_file(tmp_path, _row(comment="naïve"), encoding=encoding)], LINES)


def test_a_long_text_is_read_back(tmp_path: Path) -> None:
    """Python's own limit is 131,072 characters a cell."""
    long = "pain " * 200_000
    file = _file(tmp_path, _row(text=long, **{QUESTION: "3"}))
    assert read_returned([file], LINES)["r1", "D1-ab12"].answers == {QUESTION: 3}
    cases = tmp_path / "cases.csv"
    cases.write_text(f"case_id,chief_complaint\na,{long}\n", encoding="utf-8")
    assert [row["chief_complaint"] for row in read_table(cases)] == [long]
    assert [dict(row)["chief_complaint"] for _, row in read_rows(cases)] == [long]  # type: ignore[call-overload]


def test_a_quotation_mark_that_swallows_a_table_is_told(tmp_path: Path) -> None:
    file = _file(tmp_path, _row(**{QUESTION: "3"}))
    file.write_text(file.read_text(encoding="utf-8") + 'r2,D1-ab12,"' + "x" * (1 << 25), encoding="utf-8")
    with pytest.raises(InputError, match=r"not CSV .*save it as CSV UTF-8"):
        read_returned([file], LINES)


FORMULAS = ['=HYPERLINK("http://x")', "+1+cmd", "-2+3", "@SUM(A1)", "\t=1", "'=1", "''@x", "＝1"]


def test_no_table_runs_a_text_as_a_formula_and_every_reader_has_the_text_back(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", ["n", "text", "yes"], [[-1.5, text, True] for text in [*FORMULAS, "-1.5", None]])
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        stored = list(csv.reader(file))[1:]
    assert all(cells[1].startswith("'") for cells in stored[: len(FORMULAS)])
    assert stored[-2:] == [["-1.5", "-1.5", "true"], ["-1.5", "", "true"]]
    assert [row["text"] for row in read_table(tmp_path / "t.csv")] == [*FORMULAS, "-1.5", ""]


def test_a_gender_like_a_formula_is_one_group_from_the_episode_to_the_tables(tmp_path: Path) -> None:
    agenda = load_backend("agenda")
    cases = [
        Case(case_id=f"c{number}", chief_complaint="Fall", acuity=3, gender=FORMULAS[0], arrival_transport="@x")
        for number in range(2)
    ]
    pools = {"nurse_personas": personas("nurse", 2), "patient_personas": personas("patient", 2)}
    rows = [{**episode, "pairing": "a"} for episode in simulate(cases, nurse_llm=agenda, patient_llm=agenda, **pools)]
    write_jsonl(tmp_path / "episodes.jsonl", rows)
    write_scores(tmp_path / "episodes.jsonl", tmp_path / "scores.csv")
    scores = read_scores([tmp_path / "scores.csv"])
    assert set(scores["gender"]) == {FORMULAS[0].lower()}
    assert set(scores["arrival"]) == {"@x"}
    assert ",@" not in (tmp_path / "scores.csv").read_text(encoding="utf-8")
