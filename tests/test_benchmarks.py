"""The benchmarks: the statistics of the comparison of levels, what engines are counted with, and that each prints.

The statistics are held against an independent computation, and each command prints its table.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import BASELINES, Row, cells, nurses
from dialogue import MEASURED, TURNS, Call, answer, length, rejected, sampled_trace, trace
from engines import BLOCK, Cache, Counts, ModelEngine
from large_run import fill
from scale import COLUMNS, LOOK, RULES, STATUS, VERIFY
from tokens import smollm2
from triagesim.answers import NurseStep, PatientReply
from triagesim.jsonl import read_lines, write_jsonl, write_text
from triagesim.judging import InSitu, LineCheck, NurseLineCheck, Reading, Script
from triagesim.requests import Answer
from triagesim.resources import RESOURCES

ROOT = RESOURCES.parent
LEVELS = st.integers(1, 5)
INTERVAL = re.compile(r" \(-?[\d.]+%? to [^)]*\)")


def rows(*levels: tuple[int, int], copies: int = 1) -> list[Row]:
    """One patient a pair of (true, called), each with so many equal episodes."""
    pairs = [(f"p{number:03}", *pair) for number, pair in enumerate(levels)]
    return [Row(who, who, seed % 5, "esi", truth, called, 6) for who, truth, called in pairs for seed in range(copies)]


def run(*arguments: str, script: str = "agreement.py") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, f"benchmarks/{script}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)


def a_dialogue(case_id: str, said: str) -> dict[str, Any]:
    line = {"actor": "nurse", "turn": 0, "utterance": said}
    return {"episode_id": f"{case_id}-0", "case": {"case_id": case_id}, "history": [line]}


def test_the_cells_of_a_row_are_its_measures() -> None:
    levels = [(1, 4), (2, 5), (2, 2), (2, 3), (3, 2), (4, 4), (5, 5), (3, 3)]
    found = [INTERVAL.sub("", cell) for cell in cells(rows(*levels, copies=5), 10)]
    shares = ["50.0%", "50.0% to 50.0%", "75.0%", "1.00"]
    assert found == ["8", "40", *shares, "0.23", "12.5%", "37.5%", "25.0% (10)", "6.0"]


def test_an_undefined_kappa_is_no_number_and_says_why() -> None:
    assert cells(rows((2, 2), (2, 2), copies=5), 10)[6] == "– (undefined: one level only)"


def test_the_baselines_call_one_level_on_the_same_episodes() -> None:
    given_rows = rows((1, 4), (3, 3), copies=5)
    compared = dict(nurses(given_rows))
    assert list(compared) == ["agenda", *(f"always {level}" for level in BASELINES)]
    for level in BASELINES:
        expected = [(row.case_id, row.truth, level, None) for row in given_rows]
        assert [(r.case_id, r.truth, r.called, r.questions) for r in compared[f"always {level}"]] == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--draws", "0"], "--draws is 0"), (["--demo", "benchmarks"], "holds the demo's triage.csv")],
)
def test_a_wrong_argument_is_one_clear_error(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert done.stdout == ""


def test_without_a_browser_the_page_is_not_measured() -> None:
    done = run("--chromium", "", script="report.py")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no chromium on the path")


@pytest.mark.slow
def test_the_command_prints_labelled_rows_and_the_page_shows_the_same(tmp_path: Path) -> None:
    head = "subject_id,stay_id,temperature,heartrate,resprate,o2sat,sbp,dbp,pain,acuity,chiefcomplaint"
    stays = ["1,11,98.6,80,16,99,120,80,3,3,Abd pain", "1,12,98.6,80,16,99,120,80,0,2,Chest pain", "2,13,,,,,,,,,SOB"]
    (tmp_path / "triage.csv").write_text("\n".join([head, *stays]), encoding="utf-8")
    done = run("--demo", str(tmp_path), "--draws", "20")
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed if line.startswith("|")]
    sizes = {row[0]: row[2:4] for row in table if row[1] == "agenda"}
    assert sizes == {
        "shipped (circular: the rules were written with these at hand)": ["48", "240"],
        "held-out (never opened while the rules were written)": ["14", "70"],
        "MIMIC-IV-ED demo (complaint only, no script; some rules and words were mended after reading demo dialogues)": [
            "2",
            "10",
        ],
    }
    for name in ("shipped", "held-out", "MIMIC-IV-ED demo"):
        assert [row[1] for row in table if row[0] == name][-2:] == ["always 2", "always 3"]
    assert "MIMIC-IV-ED demo: 1 of 3 cases left out, no ground-truth acuity." in printed
    page = INTERVAL.sub("", (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")).splitlines()
    ours = [INTERVAL.sub("", line) for line in printed if line.startswith(("| shipped", "| held-out"))]
    assert [line for line in ours if line not in page] == [], "run benchmarks/agreement.py and paste its table"


# The engine's benchmarks.

FORMS: dict[str, type[Answer]] = {
    "in_situ": InSitu,
    "script": Script,
    "nurse": NurseStep,
    "nurse_check": NurseLineCheck,
    "patient": PatientReply,
    "patient_check": LineCheck,
    "reading": Reading,
}


def test_the_published_lengths_have_the_measured_mean_median_and_high_percentile() -> None:
    assert trace() == sampled_trace()
    for kind, lengths in trace().items():
        mean, median, high, longest = MEASURED[kind]
        assert statistics.mean(lengths) == pytest.approx(mean, abs=0.5), kind
        assert statistics.median(lengths) == pytest.approx(median, abs=1), kind
        assert sorted(lengths)[int(0.9 * len(lengths))] == pytest.approx(high, abs=2), kind
        assert max(lengths) == pytest.approx(longest, abs=4), kind


@given(st.integers(0, 10**6), st.sampled_from(sorted(FORMS)), st.integers(0, TURNS - 1))
def test_every_answer_of_the_dialogues_is_valid_and_about_as_long_as_the_trace_says(
    number: int, kind: str, turn: int
) -> None:
    call = Call(f"episode-{number}", kind, turn)
    text = answer(call, length(call, trace()), "ours")
    assert FORMS[kind].model_validate_json(text).model_dump()
    fixed = {"reading": 250, "nurse_check": 130, "patient_check": 120}.get(kind, 220)
    assert len(text) <= max(4.6 * length(call, trace()) + 40, fixed)


def test_the_same_tenth_of_the_lines_is_rejected_and_no_closing_line_is() -> None:
    calls = [Call(f"episode-{number}", "nurse_check", number % TURNS) for number in range(4000)]
    assert sum(map(rejected, calls)) / len(calls) == pytest.approx(0.1, abs=0.02)
    assert not any(rejected(call._replace(turn=TURNS)) for call in calls)
    for call in calls[:200]:
        assert NurseLineCheck.model_validate_json(answer(call, 60, "ours")).passed is not rejected(call)


def test_a_prefix_cache_keeps_whole_blocks_and_always_computes_the_last_token() -> None:
    cache = Cache()
    prompt = list(range(3 * BLOCK))
    assert cache.count(prompt).computed == 3 * BLOCK
    assert cache.count(prompt).computed == BLOCK
    assert cache.count([*prompt, 7]).computed == 1
    assert cache.count([*prompt[: 2 * BLOCK - 1], -1, *prompt[2 * BLOCK :]]).computed == 2 * BLOCK


def test_in_the_model_of_an_engine_every_running_request_gets_a_token_a_step() -> None:
    async def work() -> tuple[Counts, Counts, Counts]:
        engine = ModelEngine()
        await engine.generate([1] * 100, 50)
        alone = engine.counts
        await asyncio.gather(engine.generate([2] * 100, 50), engine.generate([3] * 100, 20))
        both = engine.counts.since(alone)
        dropped = asyncio.ensure_future(engine.generate([4] * 100, 50))
        waiting = asyncio.ensure_future(engine.generate([5] * 100, 10))
        await asyncio.sleep(0)
        dropped.cancel()
        await waiting
        return alone, both, engine.counts.since(alone).since(both)

    alone, both, last = asyncio.run(work())
    assert alone == Counts(steps=50, occupied=50, generated=50, computed=100)
    assert both == Counts(steps=50, occupied=70, generated=70, computed=200)
    assert last == Counts(steps=10, occupied=10, generated=10, computed=100)


def test_the_tokenizer_gives_the_tokens_of_the_models_own_one() -> None:
    """The numbers are those of the library transformers, with its tokenizer made from the same file."""
    said = smollm2().chat([{"role": "system", "content": "It's 98.6 °F,  twice.\n\n- pain: 7/10"}])
    head, tail = (
        [1, 9690, 198, 1589, 506, 216, 41, 40, 30, 38, 13518, 54, 28, 216, 6757, 30],
        [2, 198, 1, 520, 9531, 198],
    )
    assert said == [*head, 198, 198, 29, 1556, 42, 216, 39, 31, 33, 32, *tail]


def tables(printed: str) -> list[list[dict[str, str]]]:
    """Every Markdown table, as its rows by column."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", printed, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
        found.append([dict(zip(head, row, strict=True)) for row in rows])
    return found


@pytest.mark.parametrize(
    ("script", "columns"),
    [
        ("driver.py", [("calls/s", 3), ("60 episodes", 3)]),
        ("hosted.py", [("s an episode", 3)]),
        ("prefix.py", [("computed a call", 8)]),
        ("score.py", [("episodes per CPU second", 3)]),
        ("steps.py", [("engine steps", 3), ("longest episode alone", 3)]),
        ("personas.py", [("peak MB", 1)]),
    ],
)
@pytest.mark.slow
def test_a_quick_run_prints_its_tables_and_what_they_were_measured_on(
    script: str, columns: list[tuple[str, int]]
) -> None:
    done = run("--quick", *(["--model"] if script == "steps.py" else []), script=script)
    assert done.returncode == 0, done.stderr
    for rows, (column, number) in zip(tables(done.stdout), columns, strict=True):
        assert len(rows) == number
        assert all(float(re.split(r"[ (]", row[column].replace(",", ""))[0]) > 0 for row in rows)
    assert re.search(r"\d+ shared \S+ cores, load average", done.stdout)


@pytest.mark.slow
def test_a_quick_run_of_speech_compares_each_way_with_the_plain_loop() -> None:
    done = run("--quick", script="speech.py")
    assert done.returncode == 0, done.stderr
    (rows,) = tables(done.stdout)
    assert [row["engine"] for row in rows] == ["espeak"] * 4
    one, _, two, _ = (float(row["speech s"]) for row in rows)
    assert two == pytest.approx(2 * one, abs=1.5)
    assert rows[0]["throughput over the plain loop"] == "1.00"
    assert all(float(row["real-time factor"]) > 0 for row in rows)


@pytest.mark.slow
def test_what_the_workflow_itself_costs_is_printed_for_a_fresh_run_a_finished_one_and_a_job() -> None:
    done = run("--shards", "2", "--episodes", "48", script="dag.py")
    assert done.returncode == 0, done.stderr
    shards, jobs = tables(done.stdout)
    assert [row["what"] for row in shards] == ["plan of a fresh run", "look at a finished run"]
    assert [row["what"] for row in jobs] == ["asks the baseline", "replays the journal"]
    assert all(float(row["of these on a core"]) > 0 for row in (*shards, *jobs))


@pytest.mark.slow
def test_a_run_s_stages_are_measured_one_by_one_where_the_workflow_starts_them() -> None:
    done = run("--quick", script="scale.py")
    assert done.returncode == 0, done.stderr
    stages, *pages = tables(done.stdout)
    assert tuple(stages[0]) == COLUMNS
    rules = [rule for rule, _ in RULES.values()]
    assert [row["stage"] for row in stages] == [*rules, LOOK, STATUS, VERIFY]
    assert {row["episodes"] for row in stages} == {"40"}
    assert all(float(row[name]) > 0 for row in stages for name in ("seconds", "of these on a core", "peak MB"))
    assert all(float(row["filter ms"]) > 0 for (row,) in pages)


def test_no_two_of_the_dialogues_that_fill_a_large_run_need_be_alike_and_each_is_its_own_case_s(tmp_path: Path) -> None:
    played = [a_dialogue(f"made-up-{number:06}", f"said in {number}") for number in (0, 48, 96, 1)]
    for folder, cases in (("small", ["made-up-000000"]), ("large", ["made-up-000144", "made-up-000049"])):
        write_jsonl(tmp_path / folder / "results/cases/1-of-1.jsonl", ({"case_id": case} for case in cases))
    write_jsonl(tmp_path / "small/results/episodes/agenda/1-of-1.jsonl", played)
    write_text(tmp_path / "small/results/usage/agenda/1-of-1.json", "{}")
    fill(tmp_path / "large", tmp_path / "small")
    first, second = (row for _, row in read_lines(tmp_path / "large/results/episodes/agenda/1-of-1.jsonl"))
    assert (first["case"]["case_id"], first["episode_id"]) == ("made-up-000144", "made-up-000144-0")
    assert first["history"][0]["utterance"] in {"said in 0", "said in 48", "said in 96"}
    assert (second["case"]["case_id"], second["history"]) == ("made-up-000049", played[3]["history"])


@pytest.mark.parametrize("script", ["driver.py", "hosted.py", "prefix.py", "score.py", "steps.py", "personas.py"])
def test_a_peer_that_is_not_there_is_one_clear_error(script: str) -> None:
    done = run("--quick", "--peer", sys.executable, script=script)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --peer ")
    assert "pip install triagesim==0.2.0.post1" in done.stderr
    assert done.stdout == ""
