"""The dataset: what leaves, under which names, and that other tools read it."""

from __future__ import annotations

import csv
import json
import os
import re
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from actors import a_case, personas
from test_workflow import clone, edit, jobs, only_agenda, snakemake
from triagesim import load_backend, load_cases, simulate
from triagesim.config import Dataset
from triagesim.dataset import export
from triagesim.dataset.card import Contents
from triagesim.dataset.columns import TABLES, TableName, columns
from triagesim.dataset.files import paths
from triagesim.errors import InputError
from triagesim.jsonl import guarded, read_lines, unguarded, write_jsonl
from triagesim.resources import RESOURCES

os.environ["HF_HUB_OFFLINE"] = "1"

Episode = dict[str, Any]
SPLITS = Dataset().splits


@cache
def baseline(judged: bool = True) -> tuple[Episode, ...]:
    """Dialogues of the baseline over some vignettes, as a workflow's pairing has them."""
    agenda = load_backend("agenda")
    cases = load_cases(RESOURCES / "cases" / "vignettes.jsonl")[:10]
    pools = {"nurse_personas": personas("nurse", 6), "patient_personas": personas("patient", 6)}
    episodes = simulate(cases, nurse_llm=agenda, patient_llm=agenda, judge_llm=agenda if judged else None, **pools)
    return tuple(
        json.loads(json.dumps({**episode, "pairing": "base"}))
        for episode in sorted(episodes, key=lambda episode: episode["episode_id"])
    )


def of_case(**changes: Any) -> Episode:
    """One dialogue of a case with other values."""
    agenda = load_backend("agenda")
    pools = {"nurse_personas": personas("nurse"), "patient_personas": personas("patient")}
    [episode] = simulate([a_case(**changes)], nurse_llm=agenda, patient_llm=agenda, max_turns=4, **pools)
    return dict(json.loads(json.dumps(episode)))


def exported(folder: Path, episodes: Any, **options: Any) -> tuple[Path, Contents]:
    """The dataset of some episodes."""
    write_jsonl(folder / "episodes.jsonl", episodes)
    options = {"splits": SPLITS, "seed": 0, "salt": folder / "journal" / "_salt", **options}
    return folder / "dataset", export([folder / "episodes.jsonl"], folder / "dataset", **options)


def rows(dataset: Path, table: TableName, splits: Any = SPLITS) -> list[dict[str, Any]]:
    """All rows of a table."""
    return [row for split in splits for _, row in read_lines(paths(dataset, table, split)["jsonl"])]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("dataset"), baseline())[0]


def test_every_dialogue_line_and_vital_sign_is_there_once(dataset: Path) -> None:
    dialogues = {row["dialogue_id"]: row for row in rows(dataset, "dialogues")}
    assert sorted(dialogues) == [f"base/{episode['episode_id']}" for episode in baseline()]
    lines, vitals = rows(dataset, "utterances"), rows(dataset, "vitals")
    for episode in baseline():
        name = f"base/{episode['episode_id']}"
        own = [row for row in lines if row["dialogue_id"] == name]
        assert [(row["speaker"], row["text"]) for row in own] == [
            (line["speaker"], line["text"]) for line in episode["transcript"]
        ]
        assert [row["line"] for row in own] == list(range(dialogues[name]["num_lines"]))
        taken = {row["name"]: row["value"] for row in vitals if row["dialogue_id"] == name}
        assert taken == {e["name"]: e["value"] for e in episode["history"] if e.get("event") == "vital"}
        assert {row["split"] for row in own} == {dialogues[name]["split"]}


def test_a_vital_sign_says_after_which_turn_and_line_it_was_taken(dataset: Path) -> None:
    lines = {(row["dialogue_id"], row["line"]): row for row in rows(dataset, "utterances")}
    seen = 0
    for vital in rows(dataset, "vitals"):
        before = [
            row for (name, line), row in lines.items() if name == vital["dialogue_id"] and line <= vital["after_line"]
        ]
        replies = [row["turn"] for row in before if row["speaker"] == "patient"]
        assert vital["after_turn"] == max(replies, default=-1)
        seen += vital["after_turn"] >= 0
    assert seen > 5


def test_the_three_formats_hold_the_same_rows(dataset: Path) -> None:
    import pyarrow.parquet as pq

    for table in TABLES:
        for split in SPLITS:
            files = paths(dataset, table, split)
            listed = [row for _, row in read_lines(files["jsonl"])]
            assert pq.read_table(files["parquet"]).to_pylist() == listed
            with files["csv"].open(encoding="utf-8", newline="") as file:
                cells = list(csv.DictReader(file))
            assert len(cells) == len(listed)
            for cell, row in zip(cells, listed, strict=True):
                for column in columns(table):
                    assert unguarded(cell[column.name]) == as_text(row[column.name])


def as_text(value: Any) -> str:
    """A value as a CSV cell says it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "; ".join(value) if isinstance(value, list) else "" if value is None else str(value)


@pytest.mark.parametrize("table", TABLES)
def test_datasets_loads_the_folder(dataset: Path, table: TableName, tmp_path: Path) -> None:
    import datasets

    loaded = datasets.load_dataset(str(dataset), table, cache_dir=str(tmp_path))
    assert set(loaded) == {row["split"] for row in rows(dataset, table)}
    assert [row for split in loaded for row in loaded[split]] == rows(dataset, table)


def test_croissant_describes_the_files_and_reads_their_rows(dataset: Path) -> None:
    import mlcroissant

    description = mlcroissant.Dataset(str(dataset / "croissant.json"))
    issues = description.metadata.ctx.issues
    assert not issues.errors
    assert all("datePublished" in warning for warning in issues.warnings)
    listed = json.loads((dataset / "croissant.json").read_text(encoding="utf-8"))["distribution"]
    hashes = {entry["@id"]: entry["sha256"] for entry in listed if entry["@type"] == "cr:FileObject"}
    tables = [path for path in dataset.rglob("*") if path.is_file() and path.suffix not in (".md", ".json")]
    assert hashes == {p.relative_to(dataset).as_posix(): sha256(p.read_bytes()).hexdigest() for p in tables}
    found = {row["utterances/text"].decode() for row in description.records("utterances")}
    assert found == {row["text"] for row in rows(dataset, "utterances")}


def test_the_page_explains_the_columns_that_are_written_and_no_other(dataset: Path) -> None:
    page = (RESOURCES.parent / "docs/dataset.md").read_text(encoding="utf-8")
    for table in TABLES:
        part = page.partition(f"\n## {table}\n")[2].partition("\n## ")[0]
        stated = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", part, re.MULTILINE))
        written = [
            column for column in columns(table) if not re.match(r"(nurse|patient)_(?!id|model|script)", column.name)
        ]
        assert stated == {column.name: column.kind for column in written}
        assert list(rows(dataset, table)[0]) == [column.name for column in columns(table)]


def test_the_card_and_the_rows_say_what_the_dialogues_must_not_be_taken_for(dataset: Path, tmp_path: Path) -> None:
    card = (dataset / "README.md").read_text(encoding="utf-8")
    assert "chosen because the nurse reached the label" in card
    assert "- baseline without a language model: 10 of 10 dialogues." in card
    labels = rows(dataset, "dialogues")[0]["labels"]
    assert labels == ["simulated dialogue: no nurse and no patient said it", "synthetic patient", *labels[2:]]
    leaked = {**baseline()[0], "features": {"feedback": True}, "labels": {"feedback": "leaked label"}}
    other, _ = exported(tmp_path, [leaked], pool=False)
    assert "- leaked label: 1 of 1 dialogues." in (other / "README.md").read_text(encoding="utf-8")
    assert rows(other, "dialogues")[0]["leaked_label"] is True


def test_a_dataset_without_a_dialogue_says_so_and_claims_no_licence(tmp_path: Path) -> None:
    dataset, contents = exported(tmp_path, [])
    assert contents.dialogues == 0
    card = (dataset / "README.md").read_text(encoding="utf-8")
    block = yaml.safe_load(card.split("---\n")[1])
    assert not {"license", "configs"} & block.keys()
    assert "no licence follows from its cases" in card
    assert "load_dataset" not in card
    assert json.loads((dataset / "croissant.json").read_text(encoding="utf-8"))["recordSet"] == []


def test_no_name_means_anything_in_the_card(tmp_path: Path) -> None:
    name = "<img src=x onerror=a()> `x` | [y](javascript:z) *_~~\n# h"
    episode = {**baseline()[0], "pairing": name, "models": {"nurse": name, "patient": name}, "labels": {"nurse": name}}
    dataset, _ = exported(tmp_path, [episode])
    shown = [line for line in (dataset / "README.md").read_text(encoding="utf-8").splitlines() if "onerror" in line]
    assert len(shown) == 4
    for line in shown:
        assert re.search(r"(?<!\\)[<`\[*]", line.removeprefix("- ")) is None
        assert r"\|" in line


def test_unfinished_episodes_stay_out(tmp_path: Path) -> None:
    first, *others = baseline()
    dataset, contents = exported(tmp_path, [{**first, "status": "error"}, *others[:2]])
    assert contents.dialogues == len(rows(dataset, "dialogues")) == 2


def test_the_same_episodes_give_the_same_bytes_and_leave_no_old_split_behind(dataset: Path, tmp_path: Path) -> None:
    again, _ = exported(tmp_path, baseline(), splits={"all": 1.0})
    assert rows(again, "dialogues", ["all"])
    (again / "notes.txt").write_text("mine", encoding="utf-8")
    exported(tmp_path, baseline())
    files = {path.relative_to(again): path.read_bytes() for path in again.rglob("*") if path.is_file()}
    assert files.pop(Path("notes.txt")) == b"mine"
    assert files == {path.relative_to(dataset): path.read_bytes() for path in dataset.rglob("*") if path.is_file()}


STAY = {"name": "33333333", "subject_id": "10000032", "age": 97, "race": "WHITE", "hadm_id": "22222222"}


@pytest.mark.parametrize(
    "changes",
    [{"provenance": "mimic_iv_ed"}, {"provenance": "identifiable"}, {"provenance": "synthetic", **STAY}],
)
def test_credentialed_text_is_refused_and_nothing_is_written(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"episodes.jsonl, line 1: .*dataset.include_credentialed: true"):
        exported(tmp_path, [of_case(**changes)])
    assert not (tmp_path / "dataset").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"episodes.jsonl"}


def test_a_case_of_unknown_origin_is_refused_until_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing says where its case comes from; name it with --provenance"):
        exported(tmp_path, [of_case()])
    assert rows(exported(tmp_path, [of_case()], provenance="synthetic")[0], "dialogues")


def test_asked_for_credentialed_text_has_its_notice_hashed_ids_and_one_reader(tmp_path: Path) -> None:
    episode = of_case(**STAY)
    dataset, _ = exported(tmp_path, [episode], include_credentialed=True)
    assert "data use agreement" in (dataset / "README.md").read_text(encoding="utf-8")
    [row] = rows(dataset, "dialogues")
    assert re.fullmatch(r"[0-9a-f]{16}", row["case_id"])
    assert row["episode_id"] == f"{row['case_id']}-0"
    assert re.fullmatch(r"[0-9a-f]{16}", row["patient_id"])
    assert (row["provenance"], row["age"]) == ("mimic_iv_ed", 90)
    files = [path for path in dataset.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    for path in files:
        content = path.read_bytes()
        assert not any(secret in content for secret in (b"33333333", b"10000032", b"22222222", b"WHITE")), path
    assert rows(exported(tmp_path, [episode], include_credentialed=True)[0], "dialogues") == [row]


def test_a_recording_is_named_with_its_times_where_its_name_tells_no_id(tmp_path: Path) -> None:
    episode = baseline()[0]
    said = enumerate(episode["transcript"])
    lines = [{**line, "spoken": line["text"], "start": float(n), "end": n + 0.5} for n, line in said]
    spoken = {"pairing": "base", "episode_id": episode["episode_id"], "file": "dialogues/base/x.flac", "sha256": "ab"}
    spoken |= {"duration_s": 9.5, "rate": 24000, "lufs": -23.0, "channels": {"nurse": 0, "patient": 1}, "lines": lines}
    voice = {"id": "v", "gender": "female", "accent": "gb"}
    engine = {"name": "espeak", "version": "1", "licence": None}
    row = {**spoken, "voices": {"nurse": voice, "patient": voice}, "engine": engine}
    write_jsonl(tmp_path / "manifest.jsonl", [row])
    dataset, _ = exported(tmp_path, baseline()[:2], audio=[tmp_path / "manifest.jsonl"])
    by_id = {row["episode_id"]: row for row in rows(dataset, "dialogues")}
    found = by_id[episode["episode_id"]]
    assert (found["audio_file"], found["audio_engine"]) == ("dialogues/base/x.flac", "espeak")
    assert by_id[baseline()[1]["episode_id"]]["audio_sha256"] is None
    times = [row["audio_start_s"] for row in rows(dataset, "utterances") if row["dialogue_id"] == found["dialogue_id"]]
    assert times == [float(n) for n in range(len(lines))]
    real = {**episode, "case": {**episode["case"], "provenance": "deidentified"}}
    hidden, _ = exported(tmp_path, [real], audio=[tmp_path / "manifest.jsonl"], include_credentialed=True)
    assert (rows(hidden, "dialogues")[0]["audio_file"], rows(hidden, "dialogues")[0]["audio_sha256"]) == (None, "ab")


@pytest.mark.slow
def test_a_run_on_closed_data_plans_no_dataset_unless_it_is_asked_for(tmp_path: Path) -> None:
    def closed(config: dict[str, Any]) -> None:
        only_agenda(config)
        config["data"]["provenance"] = "deidentified"

    folder = clone(tmp_path / "triagesim")
    edit(folder, closed)
    assert "export" not in jobs(snakemake(folder, "snakemake -n"))
    edit(folder, lambda config: config.update(dataset={"include_credentialed": True}))
    assert jobs(snakemake(folder, "snakemake -n"))["export"] == 1


@given(st.text(st.sampled_from("'=+-@\t\r\n＝aé "), max_size=6))
def test_a_csv_cell_is_no_formula_and_gives_its_text_back(text: str) -> None:
    assert not re.match(r"[=+\-@\t\r\n＝]", guarded(text))
    assert unguarded(guarded(text)) == text


def test_a_text_like_a_formula_is_guarded_in_csv_alone(tmp_path: Path) -> None:
    episode = of_case(provenance="synthetic", chief_complaint='=HYPERLINK("x")')
    dataset, _ = exported(tmp_path, [episode], splits={"all": 1})
    assert "'=HYPERLINK" in (dataset / "dialogues_all.csv").read_text(encoding="utf-8")
    assert rows(dataset, "dialogues", ["all"])[0]["chief_complaint"].startswith("=HYPER")


def test_episodes_of_the_published_simulator_are_exported(tmp_path: Path) -> None:
    kept = ("episode_id", "status", "algorithm", "models", "final_triage", "num_turns", "transcript", "end_reason")
    episode = {key: baseline()[0][key] for key in kept}
    episode["case"] = {"case_id": baseline()[0]["case"]["case_id"], "acuity": 2}
    episode["history"] = [
        {key: value for key, value in entry.items() if key != "t"} for entry in baseline()[0]["history"]
    ]
    dataset, _ = exported(tmp_path, [episode], provenance="synthetic", splits={"all": 1})
    assert len(rows(dataset, "utterances", ["all"])) == len(episode["transcript"])
