"""The evaluation pool: filters, quotas, weights, coverage, and the audit of the mix of personas."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dialogues import CASE, baseline, episode, many, stored
from tables import table
from triagesim.audit import CAP, COLUMNS, Member, audit, rake, standardised, weigh
from triagesim.config import Pool
from triagesim.language import TRAITS, traits_of
from triagesim.pool import COVERAGE, Selection, choose, coverage, select_pool, write_coverage
from triagesim.resources import RESOURCES

OPEN = Pool(no_flags=False, nurse_ended=False)
SCRIPT = RESOURCES.parent / "workflow/scripts/select_episodes.py"


def pooled(folder: Path, episodes: list[dict[str, Any]], options: Pool = OPEN) -> list[dict[str, Any]]:
    select_pool([stored(folder / "run.jsonl", episodes)], folder / "pool.jsonl", options)
    return [json.loads(line) for line in (folder / "pool.jsonl").read_text(encoding="utf-8").splitlines()]


def chosen(folder: Path, episodes: list[dict[str, Any]], **options: Any) -> list[str]:
    return [one["episode_id"] for one in pooled(folder, episodes, OPEN.model_copy(update=options))]


def rows(selection: Selection) -> dict[tuple[str, str], dict[str, Any]]:
    found = [dict(zip(COVERAGE, row, strict=True)) for row in coverage(selection)]
    return {(row["by"], row["value"]): row for row in found}


def failed_line(edited: bool = False) -> dict[str, Any]:
    one = episode([("nurse", "What's wrong?"), ("patient", "It hurts.")], episode_id="flagged")
    one["history"][0]["verification"] = {"passed": False, "rejected": [], **({"edited": True} if edited else {})}
    return one


def test_an_episode_is_kept_only_if_its_nurse_reached_the_truth_on_the_label_s_scale(tmp_path: Path) -> None:
    others = {
        "wrong": {"final_triage": 2},
        "skipped": {"status": "skipped", "final_triage": None},
        "failed": {"status": "error"},
        "scale": {"algorithm": "ats"},
        "feedback": {"features": {"feedback": True}},
        "unlabelled": {"case": {**CASE, "acuity": None}, "final_triage": None},
        "right": {},
    }
    episodes = [episode(episode_id=name, **changes) for name, changes in others.items()]
    assert chosen(tmp_path, episodes) == ["right"]
    reasons = choose([tmp_path / "run.jsonl"], OPEN).left_out
    assert reasons == [
        "wrong level",
        "was skipped",
        "ended in an error",
        "other scale",
        "label was leaked",
        "no ground truth",
        None,
    ]


def test_the_filters_drop_flagged_lines_and_dialogues_that_ran_out(tmp_path: Path) -> None:
    episodes = [failed_line(), episode(episode_id="ran-out", end_reason="max_turns"), episode(episode_id="fine")]
    assert chosen(tmp_path, episodes) == ["flagged", "ran-out", "fine"]
    assert chosen(tmp_path, episodes, no_flags=True) == ["ran-out", "fine"]
    assert chosen(tmp_path, episodes, nurse_ended=True) == ["flagged", "fine"]
    assert chosen(tmp_path, [failed_line(edited=True)], no_flags=True) == ["flagged"]


def test_a_pooled_episode_is_as_it_was_stored(tmp_path: Path) -> None:
    made = many(3, 2)
    assert pooled(tmp_path, made) == made


def test_one_of_each_case_over_all_pairings(tmp_path: Path) -> None:
    made = [*many(6, 3), *many(6, 2, pairing="second")]
    kept = pooled(tmp_path, made, OPEN.model_copy(update={"per_case": 1}))
    assert sorted(one["case"]["case_id"] for one in kept) == [f"c{case}" for case in range(6)]
    assert {one["pairing"] for one in kept} == {"made", "second"}


def test_a_level_s_places_go_to_different_cases_first(tmp_path: Path) -> None:
    made = [one for one in many(15, 5) if one["case"]["acuity"] == 1]
    assert len({one["case"]["case_id"] for one in made}) == 3
    kept = pooled(tmp_path, made, OPEN.model_copy(update={"per_level": 4}))
    counts = Counter(one["case"]["case_id"] for one in kept)
    assert sorted(counts.values()) == [1, 1, 2]


def test_the_same_are_chosen_however_the_run_is_cut_and_others_with_another_seed(tmp_path: Path) -> None:
    made = many(20, 4)
    quota = {"per_level": 5, "per_case": 3}
    first = chosen(tmp_path / "a", made, **quota)
    mixed = random.Random(0).sample(made, len(made))
    assert sorted(chosen(tmp_path / "b", mixed, **quota)) == sorted(first)
    paths = [stored(tmp_path / f"{number}.jsonl", mixed[number::3]) for number in range(3)]
    select_pool(paths, tmp_path / "pool.jsonl", OPEN.model_copy(update=quota))
    lines = (tmp_path / "pool.jsonl").read_text(encoding="utf-8").splitlines()
    assert sorted(json.loads(line)["episode_id"] for line in lines) == sorted(first)
    assert sorted(chosen(tmp_path / "c", made, **quota, seed=1)) != sorted(first)
    # A larger quota holds the smaller one.
    assert set(first) < set(chosen(tmp_path / "d", made, per_level=9, per_case=3))


def test_balanced_levels_are_as_many_as_the_rarest_and_a_level_without_any_is_named(tmp_path: Path) -> None:
    made = many(10, 3)
    for one in made:
        if one["case"]["acuity"] == 5:
            one["final_triage"] = 1
        if one["case"]["acuity"] == 2 and one["episode_id"].endswith(("0", "1")):
            one["final_triage"] = 1
    selection = select_pool(
        [stored(tmp_path / "run.jsonl", made)],
        tmp_path / "pool.jsonl",
        OPEN.model_copy(update={"balanced": "quota"}),
    )
    found = rows(selection)
    assert [found["acuity", str(level)]["episodes_kept"] for level in range(1, 6)] == [2, 2, 2, 2, 0]
    assert found["acuity", "1"]["note"] == "2 of 6 that passed the filters"
    assert "without this level" in found["acuity", "5"]["note"]


def test_a_quota_that_isn_t_reached_is_said(tmp_path: Path) -> None:
    path = stored(tmp_path / "run.jsonl", many(5, 3))
    found = rows(choose([path], OPEN.model_copy(update={"per_level": 4})))
    assert found["acuity", "1"]["note"] == "short of its quota of 4: 3 passed the filters"
    found = rows(choose([path], OPEN.model_copy(update={"per_level": 2})))
    assert found["acuity", "1"]["note"] == "2 of 3 that passed the filters"


def test_every_episode_is_in_the_pool_or_left_out_for_one_reason(tmp_path: Path) -> None:
    made = [
        *many(10, 4),
        failed_line(),
        episode(episode_id="x", status="skipped"),
        episode(episode_id="y", final_triage=1),
    ]
    options = Pool(per_level=3, per_case=2)
    selection = select_pool([stored(tmp_path / "run.jsonl", made)], tmp_path / "pool.jsonl", options)
    write_coverage(selection, tmp_path / "coverage.csv")
    found = table(tmp_path / "coverage.csv")
    counts = {by: sum(int(row["episodes"]) for row in found if row["by"] == by) for by in ("left out", "acuity", "all")}
    kept = int(found[-1]["episodes_kept"])
    assert counts["all"] == counts["acuity"] == len(made) == kept + counts["left out"]
    assert kept == len((tmp_path / "pool.jsonl").read_text(encoding="utf-8").splitlines()) == 15
    assert {row["value"] for row in found if row["by"] == "left out"} == {
        *("quota of the case", "quota of the level", "was skipped", "wrong level", "flagged line")
    }


def member(pairing: str, number: int, **traits: str) -> Member:
    return Member(pairing, f"e{number}", f"c{number}", 3, True, {**dict.fromkeys(TRAITS, "x"), **traits})


def test_weights_give_back_the_run_s_mix_by_hand() -> None:
    # Six quiet and four busy nurses; two and three of them are kept: weights 3 and 4/3, mean 2.
    run = [member("a", number, nurse_workload="quiet" if number < 6 else "busy") for number in range(10)]
    kept = [number in (0, 1, 6, 7, 8) for number in range(10)]
    weights, notes = weigh(run, kept)
    assert weights == pytest.approx({0: 1.5, 1: 1.5, 6: 2 / 3, 7: 2 / 3, 8: 2 / 3}, abs=1e-6)
    # Kish: 5² / (2 · 1.5² + 3 · (2/3)²) = 25 / 5.8333
    assert notes == {"a": "weighted: worth 4 of 5 episodes"}
    found = [dict(zip(COLUMNS, row, strict=True)) for row in audit(run, kept, weights)]
    quiet = next(row for row in found if row["level"] == "quiet")
    assert (quiet["run"], quiet["pool"], quiet["keep_rate"]) == (6, 2, pytest.approx(1 / 3, abs=1e-6))
    # Wilson, 2 of 6.
    assert (quiet["low"], quiet["high"]) == (pytest.approx(0.096771, abs=1e-5), pytest.approx(0.700007, abs=1e-5))
    # 0.4 against 0.6: −0.2 / √(0.24).
    assert quiet["standardised_difference"] == pytest.approx(-0.2 / 0.24**0.5, abs=1e-6)
    assert quiet["weighted_difference"] == pytest.approx(0, abs=1e-5)


def test_with_weights_every_trait_has_the_run_s_mix(tmp_path: Path) -> None:
    made = list(baseline(4))
    draw = random.Random(1)
    kept = [
        draw.random()
        < {"minimising": 0.35, "faithful": 0.9, "amplifying": 0.5}[one["patient_persona"]["symptom_reporting"]]
        for one in made
    ]
    members = [Member("a", one["episode_id"], one["case"]["case_id"], 3, True, traits_of(one)) for one in made]
    weights, _ = weigh(members, kept)
    found = [dict(zip(COLUMNS, row, strict=True)) for row in audit(members, kept, weights)]
    before = max(abs(row["standardised_difference"]) for row in found)
    assert before > 0.3
    assert max(abs(row["weighted_difference"]) for row in found) < 0.01
    notes = {row["level"]: row["note"] for row in found if row["trait"] == "patient_symptom_reporting"}
    assert "less often" in notes["minimising"]
    assert "more often" in notes["faithful"]


def test_weights_are_capped_and_what_they_can_t_do_is_said() -> None:
    run = [member("a", number, nurse_workload="quiet" if number < 50 else "busy") for number in range(100)]
    kept = [number == 0 or number >= 50 for number in range(100)]
    weights, notes = weigh(run, kept)
    # The only quiet one would have to stand for fifty of a hundred.
    assert weights[0] == CAP
    assert weights[50] == pytest.approx((51 - CAP) / 50, abs=1e-5)
    assert notes["a"].endswith("1 weights capped, the mix isn't reached, a share is off by 0.40")


def test_a_level_that_the_pool_lacks_is_left_out_of_the_mix() -> None:
    run = [member("a", number, nurse_workload="quiet" if number < 5 else "busy") for number in range(10)]
    kept = [number >= 5 for number in range(10)]
    assert rake(run, run[5:]) == ([1.0] * 5, 0)
    found = [dict(zip(COLUMNS, row, strict=True)) for row in audit(run, kept, {})]
    assert next(row["note"] for row in found if row["level"] == "quiet") == "fewer than 30 dialogues; none kept"


def test_several_pairings_are_weighed_and_audited_apart_and_together() -> None:
    run = [member("b" if number < 4 else "a", number) for number in range(10)]
    weights, notes = weigh(run, [True] * 10)
    assert set(weights.values()) == {1.0}
    assert set(notes) == {"a", "b"}
    assert list(dict.fromkeys(row[0] for row in audit(run, [True] * 10, {}))) == ["b", "a", "all"]


def test_a_share_that_doesn_t_vary_has_no_standardised_difference() -> None:
    assert standardised(1.0, 1.0) is None
    assert standardised(None, 0.5) is None


def test_a_weight_is_the_last_key_of_a_pooled_episode(tmp_path: Path) -> None:
    kept = pooled(tmp_path, many(5, 2), OPEN.model_copy(update={"balanced": "weights"}))
    assert [list(one)[-1] for one in kept] == ["weight"] * 10
    assert {one.pop("weight") for one in kept} == {1.0}
    assert kept == many(5, 2)


def test_the_script_keeps_its_flags_and_prints_levels_and_pairings(tmp_path: Path) -> None:
    runs = [stored(tmp_path / "1.jsonl", many(5, 2)), stored(tmp_path / "2.jsonl", many(5, 1, pairing="second"))]
    command = [sys.executable, str(SCRIPT), *map(str, runs), "--out", str(tmp_path / "pool.jsonl")]
    more = ["--no-flags", "--nurse-ended", "--per-case", "1", "--audit", str(tmp_path / "audit.csv")]
    printed = subprocess.run([*command, *more], check=True, capture_output=True, text=True).stdout
    assert [line.split()[:2] for line in printed.splitlines()[:7]] == [
        *(["acuity", str(level)] for level in range(1, 6)),
        *(["pairing", "made"], ["pairing", "second"]),
    ]
    assert len((tmp_path / "pool.jsonl").read_text(encoding="utf-8").splitlines()) == 5
    assert {row["pairing"] for row in table(tmp_path / "audit.csv")} == {"made", "second", "all"}
    wrong = subprocess.run([*command, "--per-level", "0"], capture_output=True, text=True)
    assert (wrong.returncode, "expected a whole number from 1" in wrong.stderr) == (2, True)
