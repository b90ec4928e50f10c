"""JSON and YAML that are written as they should be, and hold what no file of ours can keep or only one of two of."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from triagesim.build import build_cases
from triagesim.cases import load_cases
from triagesim.cli import main
from triagesim.config import check_syntax
from triagesim.errors import InputError
from triagesim.jsonl import read_json, read_lines, read_table
from triagesim.mimic import provenance_of
from triagesim.personas import NursePersona, load_personas
from triagesim.speech.speakers import read_speakers
from triagesim.yaml_files import read_yaml

GOOD = '{"case_id": "good", "chief_complaint": "Fall", "acuity": 3}'
DIGITS = "9" * 5000
ODD = {
    f'"own": {DIGITS}': "more than 4300 digits",
    f'"age": -{DIGITS}': "more than 4300 digits",
    r'"own": "\ud800"': "half a surrogate pair",
    r'"\uDFFF": 1': "half a surrogate pair",
    f'"own": {"[" * 5000}{"]" * 5000}': "nested without end",
    '"own": ' + '{"a": ' * 5000 + "1" + "}" * 5000: "nested without end",
    '"acuity": 2, "acuity": 3': "the key 'acuity' twice",
    '"vitals": {"sbp": 120, "sbp": 80}': "the key 'sbp' twice",
}


def _cases(folder: Path, name: str, odd: str) -> Path:
    row = f'{{"case_id": "odd", "chief_complaint": "Fall, \\"[{{,", "provenance": "synthetic", {odd}}}'
    rows = [GOOD.replace("good", "good1"), row, GOOD.replace("good", "good2")]
    path = folder / name
    path.write_text("\n".join(rows) if name.endswith("l") else "[" + ",\n".join(rows) + "]\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["cases.jsonl", "cases.json"])
@pytest.mark.parametrize(("odd", "said"), ODD.items(), ids=range(len(ODD)))
def test_such_a_case_is_rejected_with_its_reason_and_no_other(tmp_path: Path, name: str, odd: str, said: str) -> None:
    source = _cases(tmp_path, name, odd)
    assert provenance_of(source, "synthetic") == "synthetic"
    flow = build_cases(source, tmp_path / "out", shards=1, provenance="synthetic")
    assert (flow["read"], flow["accepted"], flow["reject_reasons"]) == (3, 2, {"invalid_value": 1})
    [reject] = read_table(tmp_path / "out/rejects.csv")
    assert (reject["line"], reject["id"]) == ("2", "odd")
    assert said in reject["text"]
    with pytest.raises(InputError, match="line 2: holds .*" + said):
        load_cases(source)


@pytest.mark.parametrize("end", ["", ",]", ", }]", '] {"case_id": "x"}', ", 5]"])
def test_a_list_that_is_cut_or_goes_on_is_refused_as_a_whole(tmp_path: Path, end: str) -> None:
    path = tmp_path / "cases.json"
    path.write_text(f'[{GOOD}, {{"case_id": "a", "own": {DIGITS}}}{end}', encoding="utf-8")
    with pytest.raises(InputError, match=r"cases\.json"):
        load_cases(path)
    path.write_text(f'{{"case_id": "a", "own": [{DIGITS}]}}', encoding="utf-8")
    with pytest.raises(InputError, match="no list of cases"):
        load_cases(path)


@pytest.mark.parametrize("text", [r'"own": "\ud83d\ude37"', r'"own": "\\ud800"', '"own": 1e999', '"own": NaN'])
def test_what_only_looks_like_it_is_kept(tmp_path: Path, text: str) -> None:
    assert len(load_cases(_cases(tmp_path, "cases.jsonl", text + ', "acuity": 3'))) == 3


@pytest.mark.parametrize("value", ["5", '{"aspirin": 1}', "true", "1.5", "[5]", '[["a"]]'])
def test_a_list_of_texts_that_is_none_rejects_its_row_alone(tmp_path: Path, value: str) -> None:
    source = _cases(tmp_path, "cases.jsonl", f'"acuity": 3, "medications": {value}')
    assert build_cases(source, tmp_path / "out", shards=1, provenance="synthetic")["rejected"] == 1


@pytest.mark.parametrize(("odd", "said"), [pair for pair in ODD.items() if "twice" not in pair[1]])
def test_a_line_or_file_of_ours_with_it_is_told_by_its_place(tmp_path: Path, odd: str, said: str) -> None:
    path = tmp_path / "episodes.jsonl"
    path.write_text(f'{{"a": 1}}\n{{{odd}}}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"episodes\.jsonl, line 2: holds .*" + said):
        list(read_lines(path))
    with pytest.raises(InputError, match=r"episodes\.jsonl, line 2: holds .*" + said):
        load_personas(path, NursePersona)
    path.write_text(f"{{{odd}}}", encoding="utf-8")
    with pytest.raises(InputError, match=r"episodes\.jsonl: holds .*" + said):
        read_json(path)


@pytest.mark.parametrize(("beside", "within", "rejected"), [(120, 90, 1), (120, 120, 0), (None, 120, 1), ("", 80, 1)])
def test_a_vital_sign_that_stands_twice_with_two_values_rejects_its_row(
    tmp_path: Path, beside: object, within: object, rejected: int
) -> None:
    odd = f'"acuity": 3, "sbp": {json.dumps(beside)}, "vitals": {{"sbp": {json.dumps(within)}}}'
    flow = build_cases(_cases(tmp_path, "c.jsonl", odd), tmp_path / "out", shards=1, provenance="synthetic")
    assert flow["rejected"] == rejected


def test_a_persona_with_a_key_twice_is_told(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"expertise": "novice", "expertise": "expert"}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"own\.jsonl, line 1: holds the key 'expertise' twice"):
        load_personas(path, NursePersona)


YAML = {
    b"a: 1\nb: 2\na: 3\n": "line 3: .*'a' stands there twice",
    b"a: {b: 1, 'b': 2}": "line 1: .*'b' stands there twice",
    b"a: 2026-02-30": "line 1: .*day is out of range",
    b"a: " + DIGITS.encode(): "line 1: .*4300 digits",
    b"a: " + b"[" * 5000 + b"]" * 5000: "nest",
    b"a: 1\nb: \x00": "control characters",
    "ä: 1".encode("cp1252"): "not UTF-8",
    "a: 1".encode("utf-16"): "not UTF-8",
    b'a: "\\ud800"': "line 1",
    b"[a]: 1\n": "line 1: .*unhashable",
    b"a: !!int x": "line 1",
    b'a: !!int ""': "line 1: .*no int",
    b"a: !!timestamp x": "line 1: .*no timestamp",
    b"a: !!map [1]": "line 1: .*mapping",
    b"a: !!python/object:os.system ls": "line 1",
    b"a: *b": "line 1: .*alias",
}


@pytest.mark.parametrize(("content", "said"), YAML.items(), ids=range(len(YAML)))
def test_a_yaml_file_with_it_is_told_by_file_and_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_bytes(content)
    for read in (check_syntax, read_yaml, lambda p: load_personas(p, NursePersona), lambda p: read_speakers(str(p))):
        with pytest.raises(InputError, match=r"own\.yaml.*" + said):
            read(path)


def test_a_yaml_file_as_people_write_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_bytes(b"\xef\xbb\xbfbase: &base {a: 1, b: 2}\nown:\n  <<: *base\n  a: 3\n'1': x\n1: y\n")
    assert read_yaml(path) == {"base": {"a": 1, "b": 2}, "own": {"a": 3, "b": 2}, "1": "x", 1: "y"}


def test_the_odd_line_is_the_only_one_of_a_large_file_that_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    rows = [{"case_id": f"c{number}", "chief_complaint": "Fall", "acuity": 3} for number in range(500)]
    path.write_text(json.dumps(rows).replace('"c250"', f'"c250", "own": {DIGITS}'), encoding="utf-8")
    assert build_cases(path, tmp_path / "out", shards=1, provenance="synthetic")["accepted"] == 499


@pytest.mark.parametrize(("odd", "said"), ODD.items(), ids=range(len(ODD)))
def test_an_option_with_it_is_told(
    odd: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--model", "agenda", "--sampling", f"{{{odd}}}", "--cases", "c.jsonl", "--out", "o.jsonl"]
    monkeypatch.setattr("sys.argv", ["triagesim", *options])
    with pytest.raises(SystemExit):
        main()
    assert re.search(f"--sampling: holds .*{said}", capsys.readouterr().err)
