"""A process dies at each moment of its work with files: nothing half stands under a final name, the next run finishes
with the same bytes, and what was answered or spoken is not asked for again.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from actors import Puppet, a_case, personas
from dying import Disk, dies
from fault_server import instance
from spoken import episode
from test_review import answer
from triagesim import completion
from triagesim.build import build_cases
from triagesim.calls import Seat
from triagesim.config import Pool as PoolOptions
from triagesim.config import check_config
from triagesim.dataset import export
from triagesim.drive import Plan, append_episodes, write_shards
from triagesim.engine import as_backend
from triagesim.episode import Setup
from triagesim.journal import read_records
from triagesim.jsonl import read_lines, write_jsonl
from triagesim.limits import Limits
from triagesim.personas import Pool
from triagesim.pool import select_pool, write_coverage
from triagesim.requests import Completion
from triagesim.resources import RESOURCES
from triagesim.review.kit import write_kit
from triagesim.review.results import write_results
from triagesim.speech.corpus import read_corpus
from triagesim.speech.engine import Engine, load_engine
from triagesim.speech.manifests import write_manifests
from triagesim.speech.render import render_pool

#: The moments of each work, at least. With the 300 of tests/test_journal.py, which are bytes of a journal alone, there
#: are over 800.
MOMENTS = {
    "shards": 160,
    "command": 70,
    "judge": 50,
    "speech": 75,
    "manifests": 50,
    "pool": 16,
    "dataset": 70,
    "review": 45,
    "cases": 45,
}


def of_puppets() -> Setup:
    seat = Seat(as_backend(Puppet()))
    return Setup(
        {"nurse": seat, "patient": seat}, Pool(personas("nurse"), "nurse"), Pool(personas("patient"), "patient"),
        max_turns=2,
    )  # fmt: skip


def plan(folder: Path, name: str, cases: int) -> Plan:
    jobs = [(a_case(f"{name}-{number}", provenance="synthetic"), 0) for number in range(cases)]
    return Plan(
        jobs, of_puppets(), folder / f"episodes/{name}.jsonl", folder / "journal/made", name,
        limits=Limits(folder / "journal"), usage=folder / f"usage/{name}.json",
    )  # fmt: skip


def shards(folder: Path) -> None:
    write_shards([plan(folder, f"{number}-of-3", 3) for number in (1, 2, 3)])


def command(folder: Path) -> None:
    append_episodes(plan(folder, "run", 5))


@cache
def played() -> list[dict[str, Any]]:
    """Finished episodes of one pairing, which are what everything else is made from."""
    from test_dataset import baseline

    return [dict(one) for one in baseline()]


def inputs(folder: Path) -> Path:
    """The file of those episodes, which no kill is about; it lies outside what is watched."""
    path = folder.parent / "episodes.jsonl"
    if not path.exists():
        write_jsonl(path, played())
    return path


def judge(folder: Path) -> None:
    raw = {
        "data": {"source": "x", "provenance": "synthetic"},
        "models": {"agenda": {"backend": "agenda"}, "served": {"backend": "openai", "model": "m", "base_url": "http://x"}},
        "pairings": [{"nurse": "agenda", "patient": "agenda"}],
        "measures": {"judge": "served"},
    }  # fmt: skip
    judging = completion.Judging(
        completion.resolve_judge(check_config(raw)), inputs(folder), folder / "verdicts/1-of-1.jsonl",
        folder / "usage.json", folder / "journal/_completion-base", limits=Limits(folder / "journal"),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(completion, "configured_backend", lambda *_: Judging())
        completion.judge_shard(judging)


class Judging(Puppet):
    """Gives verdicts by the request's seed alone."""

    reads, local, label, spare, identity = "messages", True, None, True, {"backend": "judging"}

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    async def complete(self, request: Any) -> Any:
        schema = request.output_type.model_json_schema()
        return Completion(json.dumps(instance(schema, random.Random(request.seed))), model="judging")


@cache
def espeak() -> Engine:
    return load_engine("espeak")


TALK = [("nurse", "Where?"), ("patient", "My left arm."), ("nurse", "Since when?"), ("patient", "Since noon.")]


def spoken_pool(folder: Path) -> Path:
    path = folder.parent / "pool.jsonl"
    if not path.exists():
        lines = [{"turn": turn // 2, "actor": who, "utterance": said} for turn, (who, said) in enumerate(TALK)]
        write_jsonl(path, [episode(number, TALK, history=lines) for number in range(1)])
    return path


def speech(folder: Path) -> None:
    load: Any = lambda: (espeak(), None)  # noqa: E731
    render_pool(spoken_pool(folder), folder / "audio/manifest.jsonl", folder / "store", load, log=lambda _: None)


def manifests(folder: Path) -> None:
    speaking = folder.parent / "spoken"
    if not (speaking / "audio/manifest.jsonl").exists():
        speech(speaking)
    dialogues = read_corpus(spoken_pool(folder), [speaking / "audio/manifest.jsonl"])
    write_manifests(dialogues, folder / "manifests", folder / "metadata.jsonl", {"train": 0.5, "test": 0.5}, 0)


def pool(folder: Path) -> None:
    selection = select_pool([inputs(folder)], folder / "pool.jsonl", PoolOptions())
    write_coverage(selection, folder / "coverage.csv")


def dataset(folder: Path) -> None:
    export([inputs(folder)], folder / "dataset", splits={"train": 1.0}, seed=0, salt=folder / "journal/_salt")


def review(folder: Path) -> None:
    items = write_kit([inputs(folder)], folder / "kit", sample=4, repeats=1, seed=0)
    filled = folder.parent / "filled.csv"
    if not filled.exists():
        from test_review import fill

        fill(filled, [answer(rater, item, 3, 3) for rater in ("R1", "R2") for item in items])
    write_results([filled], folder / "kit/key.csv", [inputs(folder)], folder / "review")


def cases(folder: Path) -> None:
    build_cases(RESOURCES / "cases/examples.jsonl", folder / "cases", shards=4, provenance="synthetic")


WORKS: dict[str, Callable[[Path], None]] = {
    work.__name__: work for work in (shards, command, judge, speech, manifests, pool, dataset, review, cases)
}


def files(folder: Path) -> dict[str, bytes]:
    """What stands under final names: all files but the journal's."""
    found = (path for path in folder.rglob("*") if path.is_file())
    named = {path.relative_to(folder).as_posix(): path for path in found}
    return {
        name: path.read_bytes()
        for name, path in named.items()
        if not name.startswith("journal/") and ".part" not in name
    }


def ordered(contents: dict[str, bytes]) -> dict[str, bytes]:
    """With the lines of the growing file in one order: it is in the order in which episodes finished."""
    return {name: b"\n".join(sorted(data.split(b"\n"))) for name, data in contents.items()}


def test_there_are_enough_moments() -> None:
    assert MOMENTS.keys() == WORKS.keys()
    assert sum(MOMENTS.values()) >= 500


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_a_death_at_any_moment_leaves_nothing_half_and_the_next_run_the_same_bytes(name: str, tmp_path: Path) -> None:
    work = WORKS[name]
    folder = tmp_path / "whole"
    work(folder)  # what is made once beside the folder, and what is loaded, is there now
    shutil.rmtree(folder)
    with Disk(folder).watched() as disk:
        work(folder)
    assert disk.moments >= MOMENTS[name]
    whole, asked = files(folder), sorted(answers(folder))
    assert len(asked) == len(set(asked))
    for moment in range(1, disk.moments + 1):
        folder = tmp_path / "killed"
        dies(folder, lambda: work(folder), moment)  # noqa: B023
        left, kept, spoken = files(folder), answers(folder), lines(folder)
        growing = left.pop("episodes/run.jsonl", None) if name == "command" else None
        assert left.items() <= whole.items(), moment
        work(folder)
        assert ordered(files(folder)) == ordered(whole), moment
        if growing is not None:
            said = (folder / "episodes/run.jsonl").read_bytes()
            assert said.startswith(growing[: growing.rfind(b"\n") + 1]), moment
        assert not list(folder.rglob(".part*")), moment
        assert sorted(answers(folder)) == asked, moment
        assert set(kept) <= set(asked), moment
        assert spoken.items() <= lines(folder).items(), moment
        shutil.rmtree(folder)


def answers(folder: Path) -> list[str]:
    """The names of the calls whose answers are kept, each as often as it is."""
    return [record["name"] for record in read_records(folder / "journal") if "key" in record]


def lines(folder: Path) -> dict[str, int]:
    """The spoken lines that are kept, each with the file that holds it: one that is spoken again is another file."""
    return {path.name: path.stat().st_ino for path in (folder / "store").glob("*/[0-9a-f]*.flac")}


def test_a_file_that_is_written_at_this_moment_is_not_taken_for_what_a_kill_left(tmp_path: Path) -> None:
    from triagesim.temporaries import replacing

    target = tmp_path / "table.csv"
    with replacing(target) as first:
        first.write_text("one", encoding="utf-8")
        with replacing(target) as second:
            second.write_text("two", encoding="utf-8")
            assert first.read_text("utf-8") == "one"
        assert target.read_text("utf-8") == "two"
    assert target.read_text("utf-8") == "one"
    for number in (0, 1):
        (tmp_path / f".part{number}.table.csv").write_text("left", encoding="utf-8")
    write_jsonl(target, [{"a": 1}])
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]
    assert [row for _, row in read_lines(target)] == [{"a": 1}]
