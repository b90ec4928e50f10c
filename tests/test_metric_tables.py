"""The tables of a run through its scripts: every episode counted, figures by hand, the same bytes elsewhere."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from actors import Puppet, a_case, personas
from tables import table
from test_docs import CODE
from test_docs import tables as documented
from triagesim import Features, completion, simulate, summarize
from triagesim.cases import Case
from triagesim.config import Score, check_config
from triagesim.errors import InputError
from triagesim.jsonl import read_lines, write_json, write_jsonl, write_table
from triagesim.judging import InSitu
from triagesim.metric_tables import COLUMNS, write_tables
from triagesim.pairing import as_json, resolve
from triagesim.requests import Request
from triagesim.resources import RESOURCES
from triagesim.score_rows import Scores, columns, read_scored, read_scores, row_of
from triagesim.scoring import levels_held
from triagesim.summary import TABLES

SCRIPTS = RESOURCES.parent / "workflow/scripts"
PER_CASE = 2


class Odd(Puppet):
    """Gives up one case as the nurse and sends another away as the master."""

    def answer(self, request: Request) -> str:
        if request.name.episode.startswith("broken") and request.role == "nurse":
            return "{}"
        if request.output_type is InSitu and request.name.episode.startswith("mute"):
            return InSitu(reasoning=f"{request.name.episode} is intubated", conversation=False).model_dump_json()
        return super().answer(request)


CASES = [
    *(a_case(f"c{level}", acuity=level, subject_id=10 + level // 3, age=60 + level) for level in range(1, 6)),
    a_case("broken", gender=None, arrival_transport=" Walk  IN"),
    a_case("mute"),
    a_case("unlabelled", acuity=None),
    a_case("edited-level"),
    a_case("edited-truth"),
]


def play(pairing: str, cases: Sequence[Case] = CASES, **options: Any) -> list[dict[str, Any]]:
    """The episodes of a pairing, as its shard holds them."""
    llm = Odd()
    episodes = simulate(
        cases,
        nurse_llm=llm,
        patient_llm=llm,
        judge_llm=llm,
        nurse_personas=personas("nurse", 9),
        patient_personas=personas("patient", 9),
        episodes_per_case=PER_CASE,
        max_turns=4,
        **options,
    )
    found = [{**episode, "pairing": pairing} for episode in episodes]
    for episode in found:  # as no run of ours leaves them, but another simulator's may
        if episode["episode_id"] == "edited-level-0":
            episode["final_triage"] = None
        if episode["episode_id"] == "edited-truth-1":
            episode["case"]["acuity"] = None
    return sorted(found, key=lambda episode: episode["episode_id"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stored episodes of three pairings with every outcome, and their tables."""
    results = tmp_path_factory.mktemp("run") / "results"
    made = {
        "plain": play("plain"),
        "ats": play("ats", algorithm="ats"),
        "leaky": play("leaky", features=Features(feedback=True)),
    }
    config = {
        "data": {"source": "x.jsonl", "provenance": "synthetic"},
        "models": {"agenda": {"backend": "agenda"}},
        "pairings": [{"nurse": "agenda", "patient": "agenda", "name": name} for name in made],
        "simulation": {"episodes_per_case": PER_CASE},
    }
    checked = check_config(config)
    for pairing in checked.expanded():
        write_json(results / "pairings" / f"{pairing.slug}.json", as_json(resolve(checked, pairing)))
        half = len(made[pairing.slug]) // 2
        write_jsonl(results / "episodes" / pairing.slug / "1-of-2.jsonl", made[pairing.slug][:half])
        write_jsonl(results / "episodes" / pairing.slug / "2-of-2.jsonl", made[pairing.slug][half:])
    write_table(results / "cases" / "cases.csv", ["case_id"], [[case.case_id] for case in CASES])
    score_and_summarise(results)
    return results


def script(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def score_and_summarise(results: Path, *options: str) -> None:
    """What the rules score and summarise run, from episodes alone."""
    for path in sorted((results / "episodes").rglob("*.jsonl")):
        done = script(
            "score.py", path, "--out", results / "scores" / path.relative_to(results / "episodes").with_suffix(".csv")
        )
        assert done.returncode == 0, done.stderr
    scores, pairings = sorted((results / "scores").rglob("*.csv")), sorted((results / "pairings").glob("*.json"))
    selected, out = results / "cases" / "cases.csv", results / "metrics"
    done = script("summarise.py", *scores, "--pairings", *pairings, "--selected", selected, *options, "--out-dir", out)
    assert done.returncode == 0, done.stderr


def metric(results: Path, name: str, **where: str) -> list[dict[str, str]]:
    """The rows of a table with these cells."""
    rows = table(results / "metrics" / f"{name}.csv")
    return [row for row in rows if all(row[key] == cell for key, cell in where.items())]


def figures(results: Path, **where: str) -> dict[str, dict[str, str]]:
    """The measures of a group of dialogues, by name."""
    return {row["measure"]: row for row in metric(results, "agreement", **where)}


def test_every_episode_of_a_run_with_every_outcome_is_counted_once(run: Path) -> None:
    for pairing in ("plain", "ats", "leaky"):
        rows = metric(run, "status", pairing=pairing)
        assert sum(int(row["n"]) for row in rows) == len(CASES) * PER_CASE
    found = {(row["status"], row["reason"]): int(row["n"]) for row in metric(run, "status", pairing="plain")}
    assert {key: number for key, number in found.items() if number} == {
        ("graded", ""): 12,
        ("no_level", ""): 1,
        ("no_truth", ""): 1,
        ("skipped", "no ground-truth acuity"): 2,
        ("skipped", "the dialogue master expects no conversation"): 2,
        ("error", "nurse call"): 2,
    }
    assert {row["status"] for row in metric(run, "status", pairing="ats") if int(row["n"])} == {
        "other_scale",
        "skipped",
        "error",
    }
    assert metric(run, "status", pairing="leaky", status="leaked_label")[0]["n"] == "14"


def test_only_graded_episodes_enter_a_figure(run: Path) -> None:
    graded = [
        (episode["case"]["acuity"], episode["final_triage"])
        for path in sorted((run / "episodes/plain").glob("*.jsonl"))
        for _, episode in read_lines(path)
        if episode["status"] == "ok" and episode["case"]["acuity"] and episode["final_triage"]
    ]
    cells = Counter(graded)
    rows = metric(run, "confusion", pairing="plain")
    assert {(int(row["truth"]), int(row["final"])): int(row["n"]) for row in rows} == {
        (truth, final): cells[truth, final] for truth in range(1, 6) for final in range(1, 6)
    }
    everything = figures(run, pairing="plain", group="all")
    right = sum(truth == final for truth, final in graded) / len(graded)
    assert float(everything["accuracy"]["value"]) == pytest.approx(right, abs=1e-6)
    assert (everything["accuracy"]["n"], everything["accuracy"]["cases"]) == ("12", "7")
    for pairing in ("ats", "leaky"):
        for row in metric(run, "agreement", pairing=pairing):
            assert (row["value"], row["n"]) == ("", "0")
            assert row["note"] in (
                "no graded dialogue",
                "no reference prevalence is given (score.prevalence)",
            )
        assert {row["n"] for row in metric(run, "confusion", pairing=pairing)} == {"0"}


def test_the_groups_of_a_pairing_share_out_its_dialogues(run: Path) -> None:
    rows = metric(run, "agreement", pairing="plain", measure="accuracy")
    groups = {row["group"] for row in rows}
    traits = {f"{role}.{name}" for role in ("patient", "nurse") for name in personas(role)[0].model_dump()}
    known = {"all", "truth", "algorithm", "age_group", "gender", "arrival", *traits}
    assert groups == known - {
        "patient.gender",
        *(f"{role}.{name}" for role in ("patient", "nurse") for name in ("ethnicity", "instruction")),
    }
    for group in groups:
        assert sum(int(row["n"]) for row in rows if row["group"] == group) == 12, group
    assert [row["level"] for row in rows if row["group"] == "age_group"] == ["adult", "older", "unknown"]


def test_what_is_impossible_at_a_true_level_has_no_interval(run: Path) -> None:
    first, last = (figures(run, pairing="plain", group="truth", level=level) for level in "15")
    assert set(first) == {"accuracy", "within_one", "mae", "signed_error", "over", "under", "severe_under"}
    assert (first["over"]["value"], first["over"]["high"]) == ("0.0", "")
    assert first["over"]["note"] == last["under"]["note"] == "impossible at this level"
    assert last["severe_under"]["note"] == "impossible at this level"


def test_recomputing_from_the_episodes_alone_elsewhere_gives_the_same_files(run: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "another folder" / "results"
    for part in ("episodes", "pairings", "cases"):
        shutil.copytree(run / part, elsewhere / part)
    score_and_summarise(elsewhere)
    for part in ("scores", "metrics"):
        first, second = (
            {path.relative_to(folder / part): path.read_bytes() for path in (folder / part).rglob("*.*")}
            for folder in (run, elsewhere)
        )
        assert first == second


def test_the_tables_don_t_depend_on_how_the_run_was_cut_into_shards(run: Path, tmp_path: Path) -> None:
    whole = tmp_path / "results"
    for part in ("pairings", "cases"):
        shutil.copytree(run / part, whole / part)
    for folder in (run / "episodes").iterdir():
        shards = [episode for path in sorted(folder.iterdir(), reverse=True) for _, episode in read_lines(path)]
        write_jsonl(whole / "episodes" / folder.name / "1-of-1.jsonl", shards)
    score_and_summarise(whole)
    for name in TABLES:
        assert (run / f"metrics/{name}.csv").read_bytes() == (whole / f"metrics/{name}.csv").read_bytes()


def test_the_json_has_the_rows_of_every_table(run: Path) -> None:
    tidy = json.loads((run / "metrics/metrics.json").read_text(encoding="utf-8"))
    assert tidy["score"] == Score().model_dump()
    assert list(tidy["tables"]) == list(TABLES)
    for name, rows in tidy["tables"].items():
        words = [{key: "" if cell is None else str(cell) for key, cell in row.items()} for row in rows]
        assert words == table(run / f"metrics/{name}.csv")


def test_the_configuration_s_options_reach_the_tables(run: Path, tmp_path: Path) -> None:
    results = Path(shutil.copytree(run, tmp_path / "results"))
    options = {"bootstrap": 500, "cluster": "subject", "prevalence": [0, 0.5, 0.5, 0, 0]}
    score_and_summarise(results, "--score", json.dumps(options))
    found = figures(results, pairing="plain", group="all")
    cases, subjects = (
        {episode["case"].get(key) or episode["case"]["case_id"] for episode in graded_of(run)}
        for key in ("case_id", "subject_id")
    )
    assert len(subjects) < len(cases)
    assert found["accuracy"]["cases"] == str(len(subjects))
    by_level = [figures(results, pairing="plain", group="truth", level=level)["accuracy"]["value"] for level in "23"]
    expected = sum(map(float, by_level)) / 2
    assert float(found["accuracy_reweighted"]["value"]) == pytest.approx(expected, abs=2e-6)


def test_the_summary_counts_who_may_not_talk_and_says_who_judged_completion(run: Path, tmp_path: Path) -> None:
    results = Path(shutil.copytree(run, tmp_path / "results"))
    known = {"c1": ("1", "score"), "c2": ("2", "intubated"), "c3": ("3", "unable_to_assess"), "c4": ("4", "described")}
    rows = [[case.case_id, *known.get(case.case_id, ("2", "score"))] for case in CASES]
    write_table(results / "cases" / "cases.csv", ["case_id", "acuity", "pain_status"], rows)
    config = {
        "data": {"source": "x.jsonl", "provenance": "synthetic"},
        "models": {
            "agenda": {"backend": "agenda"},
            "small": {"backend": "llamacpp", "model": "smollm2-135m-instruct"},
            "again": {"backend": "llamacpp", "model": "smollm2-135m-instruct", "context": 2048},
        },
        "pairings": [
            {"name": "plain", "nurse": "agenda", "patient": "agenda"},
            {"name": "ats", "nurse": "small", "patient": "agenda"},
            {"name": "leaky", "nurse": "small", "patient": "again", "judge": "agenda"},
        ],
        "simulation": {"episodes_per_case": PER_CASE},
        "measures": {"judge": "again"},
    }
    checked = check_config(config)
    for pairing in checked.expanded():
        write_json(results / "pairings" / f"{pairing.slug}.json", as_json(resolve(checked, pairing)))
    judge = results / "completion" / "judge.json"
    write_json(judge, completion.as_json(completion.resolve_judge(checked)))
    score_and_summarise(results, "--judge", str(judge))
    found = {row["pairing"]: row for row in table(results / "metrics/summary.csv")}
    assert {name: row["unchecked_speech"] for name, row in found.items()} == {"plain": "3", "ats": "3", "leaky": "0"}
    assert {row["completion_judge"] for row in found.values()} == {"again"}
    assert {name: row["completion_labels"] for name, row in found.items()} == {
        "plain": "demo-quality model",
        "ats": "demo-quality model; also plays the nurse",
        "leaky": "demo-quality model; also plays the nurse and the patient",
    }


def graded_of(run: Path) -> list[dict[str, Any]]:
    ids = {row["episode_id"] for path in (run / "scores/plain").iterdir() for row in table(path)}
    rows = [row for path in (run / "scores/plain").iterdir() for row in table(path) if row["outcome"] == "graded"]
    episodes = {e["episode_id"]: e for path in (run / "episodes/plain").iterdir() for _, e in read_lines(path)}
    assert ids == set(episodes)
    return [episodes[row["episode_id"]] for row in rows]


def test_the_patient_s_id_is_in_no_table(run: Path) -> None:
    rows = [row for path in (run / "scores/plain").iterdir() for row in table(path)]
    keys = {row["case_id"]: row["subject"] for row in rows}
    assert keys["c1"] == keys["c2"] != keys["c3"] == keys["c5"]
    assert keys["mute"] == ""
    assert not {row["subject"] for row in rows} & {"10", "11"}


def scores_of(*rows: dict[str, Any], pairing: str = "p") -> Scores:
    """Score rows of graded dialogues with these cells."""
    usual = {"pairing": pairing, "outcome": "graded", "end_reason": "nurse_end", "confidence": "high"}
    made = [{"episode_id": f"{number}", "case_id": f"{number}", **usual, **row} for number, row in enumerate(rows)]
    return Scores({name: [str(row.get(name, "")) for row in made] for name in columns()})


def written(tmp_path: Path, options: Score | None = None, **pairings: Scores) -> Path:
    write_tables(pairings, options or Score(bootstrap=200), tmp_path / "metrics")
    return tmp_path


def test_the_course_of_the_level_by_hand(tmp_path: Path) -> None:
    rows = [
        {"ground_truth": 2, "final_triage": 2, "levels": "3>2>2", "num_turns": 2, "first_correct_turn": 1},
        {"ground_truth": 2, "final_triage": 3, "levels": "3>2>3>3", "num_turns": 3, "first_correct_turn": 1},
        {"ground_truth": 4, "final_triage": 5, "levels": "5", "num_turns": 0, "confidence": "low"},
        {"ground_truth": 1, "final_triage": 1, "levels": "2>3>4>1", "num_turns": 3, "first_correct_turn": 3}
        | {"end_reason": "max_turns", "confidence": "low"},
    ]
    results = written(tmp_path, p=scores_of(*rows))
    economy = [list(row.values()) for row in metric(results, "economy")]
    assert economy == [
        ["p", "0", "0.75", "0.0", "1.0", "4"],
        ["p", "1", "0.75", "0.5", "0.75", "4"],
        ["p", "2", "0.5", "0.25", "1.25", "4"],
        ["p", "3", "0.0", "0.5", "0.5", "4"],
    ]
    found = {row["measure"]: (row["value"], row["n"]) for row in metric(results, "behaviour")}
    assert found == {
        "flips_mean": ("1.5", "4"),
        "flip_to_right_rate": ("0.5", "6"),
        "flip_to_wrong_rate": ("0.166667", "6"),
        "unchanged_rate": ("0.25", "4"),
        "never_right_rate": ("0.25", "4"),
        "lost_right_rate": ("0.25", "4"),
        "premature_closure_rate": ("0.666667", "3"),
        "repeat_agreement": ("", "0"),
        "first_correct_turn_median": ("1.0", "3"),
    }
    stated = {row["confidence"]: (row["n"], row["accuracy"], row["note"]) for row in metric(results, "calibration")}
    few = "Wilson; fewer than 30 cases"
    assert stated == {"low": ("2", "0.5", few), "medium": ("0", "", "no graded dialogue"), "high": ("2", "0.5", few)}


def test_repeats_are_compared_pair_by_pair_within_a_case(tmp_path: Path) -> None:
    finals = {"a": [2, 2, 3], "b": [4, 4], "c": [1]}
    rows = [{"case_id": case, "ground_truth": 2, "final_triage": level} for case in finals for level in finals[case]]
    [found] = metric(written(tmp_path, p=scores_of(*rows)), "behaviour", measure="repeat_agreement")
    assert (found["value"], found["n"]) == ("0.5", "4")


def test_a_difference_is_over_the_cases_that_both_pairings_have(tmp_path: Path) -> None:
    right = [{"case_id": f"c{n}", "ground_truth": 3, "final_triage": 3} for n in range(40)]
    wrong = [{"case_id": f"c{n}", "ground_truth": 3, "final_triage": 3 + (n % 2)} for n in range(10, 60)]
    results = written(tmp_path, a=scores_of(*right, pairing="a"), b=scores_of(*wrong, pairing="b"))
    found = {row["measure"]: row for row in metric(results, "comparisons")}
    assert found["accuracy"]["cases"] == "30"
    assert float(found["accuracy"]["difference"]) == 0.5
    assert 0.2 < float(found["accuracy"]["low"]) < 0.4 < 0.6 < float(found["accuracy"]["high"]) < 0.8
    assert found["mae"]["difference"] == "-0.5"
    assert found["qwk"]["note"] == "one class on both sides: kappa is undefined"
    assert found["severe_under"]["note"] == "all draws alike: no interval"


def test_a_pairing_against_itself_differs_by_nothing_in_every_draw(tmp_path: Path) -> None:
    rows = [{"ground_truth": 1 + n % 5, "final_triage": 1 + n % 4} for n in range(60)]
    results = written(tmp_path, a=scores_of(*rows), b=scores_of(*rows))
    for row in metric(results, "comparisons"):
        assert (row["difference"], row["low"], row["note"]) == ("0.0", "", "all draws alike: no interval")


def test_the_documented_columns_are_the_written_ones(run: Path) -> None:
    page = (RESOURCES.parent / "docs/metrics.md").read_text(encoding="utf-8")
    sections = {part.split(":")[0].strip(): part for part in page.split("\n## ")}
    assert list(TABLES) == list(COLUMNS)
    for name in TABLES:
        stated = [cell for cells in documented(sections[f"results/metrics/{name}.csv"], "column") for cell in cells[:1]]
        header = (run / f"metrics/{name}.csv").read_text(encoding="utf-8").splitlines()[0]
        assert sorted(CODE.findall(" ".join(stated))) == sorted(header.split(",")), name
    stated = [name for cells in documented(sections["results/metrics/agreement.csv"], "measure") for name in cells[:1]]
    names = {name for name in CODE.findall(" ".join(stated)) if "always" not in name}
    assert names == {name for name in figures(run, pairing="plain", group="all") if "always" not in name}
    stated = [name for cells in documented(sections["results/metrics/behaviour.csv"], "measure") for name in cells[:1]]
    assert CODE.findall(" ".join(stated)) == [row["measure"] for row in metric(run, "behaviour", pairing="plain")]


def test_the_documented_columns_of_the_scores_are_the_written_ones(run: Path) -> None:
    page = (RESOURCES.parent / "docs/metrics.md").read_text(encoding="utf-8")
    section = page.partition("## results/metrics/summary.csv")[0]
    stated = CODE.findall(" ".join(cells[0] for cells in documented(section, "column")))
    header = (run / "scores/plain/1-of-2.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
    assert header == list(columns())
    plain = [name for name in header if not name.startswith(("patient_", "nurse_"))]
    assert sorted(stated) == sorted([*plain, "patient_<trait>", "nurse_<trait>"])


def test_reading_what_scores_need_gives_the_scores_of_the_whole_episodes(run: Path) -> None:
    for path in sorted((run / "episodes").rglob("*.jsonl")):
        whole = [episode for _, episode in read_lines(path)]
        assert list(map(row_of, read_scored(path))) == list(map(row_of, whole))
        assert summarize(read_scored(path)) == summarize(whole)


def test_a_line_of_another_form_is_read_whole_and_a_broken_one_is_named(tmp_path: Path) -> None:
    odd = {"status": "ok", "case": {"acuity": 2}, "final_triage": 2, "history": None, "trace": "gone", "red_flags": 3}
    path = tmp_path / "odd.jsonl"
    path.write_text("\ufeff" + json.dumps({**odd, "red_flags": []}) + "\n\n", encoding="utf-8")
    assert summarize(read_scored(path))["accuracy"] == 1
    path.write_text('{"status": "ok"}\n{"status": \n', encoding="utf-8")
    with pytest.raises(InputError, match=r"odd\.jsonl, line 2: not JSON"):
        list(read_scored(path))


def test_the_level_held_is_the_last_of_each_turn_and_lasts_till_the_next() -> None:
    def steps(*pairs: tuple[Any, Any]) -> list[dict[str, Any]]:
        return [{"turn": turn, "triage": level} for turn, level in pairs]

    assert levels_held(steps((0, 3), (0, 4), (1, 2), (3, 5))) == [4, 2, 2, 5]
    assert levels_held(steps((1, 3), (2, 2))) == []
    assert levels_held(steps((0, 3), (1, None), (2, 9), ("3", 1))) == [3]
    assert levels_held([]) == []


def test_scores_are_read_back_as_they_were_written(run: Path) -> None:
    scores = read_scores(sorted((run / "scores").rglob("*.csv")))
    assert len(scores) == 3 * len(CASES) * PER_CASE
    episodes = [e for path in sorted((run / "episodes").rglob("*.jsonl")) for _, e in read_lines(path)]
    head = columns()[: len(scores.rows()[0])]
    assert scores.rows() == [
        {name: "" if cell is None and name not in TYPED else cell for name, cell in zip(head, row_of(e), strict=False)}
        for e in episodes
    ]


TYPED = [name for name in columns() if name not in ("end_reason", "labels")]


def test_the_command_s_own_summary_needs_no_numpy(run: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from triagesim import summarize;"
        "from triagesim.score_rows import read_scored; from triagesim import cli, summary;"
        f"summarize(read_scored(Path({str(run / 'episodes/plain/1-of-2.jsonl')!r})));"
        "sys.exit('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("shares", "said"),
    [([0.2, 0.2, 0.2, 0.2, 0.1], "must add up to 1, these add up to 0.9"), ([0.5, 0.5], "at least 5 items")],
)
def test_a_wrong_prevalence_is_one_clear_error(shares: list[float], said: str) -> None:
    config = {
        "data": {"source": "x", "provenance": "synthetic"},
        "models": {"agenda": {"backend": "agenda"}},
        "pairings": [{"nurse": "agenda", "patient": "agenda"}],
        "score": {"prevalence": shares},
    }
    with pytest.raises(InputError, match=rf"score\.prevalence: .*{said}"):
        check_config(config)
