"""Task completion of stored episodes, judged by a model through the same engine and journal as the dialogues."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from triagesim.backends import configured_backend
from triagesim.calls import Caller, GivenUp, Question, Seat
from triagesim.cases import Case
from triagesim.config import Config, HostedAttestation, Model, identity_options
from triagesim.drive import TooManyErrors, too_many
from triagesim.journal import Journal, shard_lock
from triagesim.jsonl import digest, write_json, write_jsonl
from triagesim.judging import Completion
from triagesim.limits import Limits
from triagesim.measures import TaskCompletion, Verdict, episode_transcript
from triagesim.prompts import prompts_digest
from triagesim.simulation import side_by_side
from triagesim.stored import read_episodes
from triagesim.usage import spent_on
from triagesim.views import Spoken, TranscriptView

NAME = "judge_completion"
#: Bumped by hand when the same answers would give other verdicts.
VERSION = 1
_SPEAKER: dict[str, Literal["nurse", "patient"]] = {"person": "patient", "agent": "nurse"}


class Judge(BaseModel):
    """The judge with everything that its verdicts depend on: what `results/completion/judge.json` holds.

    Attributes:
        sampling: over the model's own.
        content: the identity of its backend and a hash of its prompts.
        label: what a reader must know of it wherever a verdict counts; no verdict depends on it.
    """

    name: str
    options: Model
    sampling: dict[str, Any]
    seed: int
    content: list[Any]
    label: str | None = None

    @property
    def version(self) -> str:
        """Of the evaluator: equal versions say the same of the same transcript, as far as a model does."""
        return f"{VERSION}:{digest([self.content, self.sampling, self.seed])[:12]}"


@dataclass
class Judging:
    """What to judge and where to keep it.

    Attributes:
        usage: where to write what the verdicts took.
        options: of the judge's backend that change no verdict.
        attestations: of the configuration's hosted models.
        max_error_rate: share of the judged episodes that may go without a verdict.
    """

    judge: Judge
    episodes: Path
    out: Path
    usage: Path
    journal: Path
    options: dict[str, Any] = field(default_factory=dict)
    attestations: tuple[HostedAttestation, ...] = ()
    concurrency: int = 64
    max_error_rate: float = 0.0
    limits: Limits = field(default_factory=Limits)


def resolve_judge(config: Config) -> Judge:
    """The judge that the configuration names in `measures.judge`."""
    assert config.measures.judge is not None
    model = config.models[config.measures.judge]
    backend = configured_backend(model, {})
    content = [backend.identity, prompts_digest(getattr(model, "prompts", "full"), "completion")]
    return Judge(
        name=config.measures.judge,
        options=model,
        sampling={**getattr(model, "sampling", {}), **config.measures.sampling},
        seed=config.simulation.seed,
        content=content,
        label=backend.label,
    )


def as_json(judge: Judge) -> dict[str, Any]:
    """What is written of a judge: nothing in it is an option that can't change a verdict."""
    return {**judge.model_dump(mode="json"), "options": identity_options(judge.options)}


def judge_shard(task: Judging) -> None:
    """Judge every episode of status `ok` and write a row each, in their order, whole or not at all.

    A row: `pairing`, `episode_id`, `verdict` (a `Verdict` of `TaskCompletion`; None where the model gave no usable
    answer) and `error`.

    Raises:
        TooManyErrors: more went without a verdict than `max_error_rate` allows; nothing is written.
        StopRun: from a call, or another driver holds this shard.
    """
    episodes = [episode for _, episode in read_episodes(task.episodes) if episode["status"] == "ok"]
    judge = task.judge
    backend = configured_backend(judge.options, task.options)
    seat = Seat(backend, getattr(judge.options, "prompts", "full"), judge.sampling, task.attestations)

    cases = [episode["case"]["case_id"] for episode in episodes]

    def open_journal() -> Journal:
        return Journal(task.journal, cases, task.limits.tally)

    async def one(episode: dict[str, Any], book: Journal) -> dict[str, Any]:
        return await _judged(episode, judge, seat, book, task.limits)

    title = f"judge {task.journal.name} {task.out.stem}"
    with shard_lock(task.journal / "locks" / f"{task.out.stem}.lock"):
        verdicts = side_by_side(episodes, one, open_journal, task.concurrency, task.limits)
        with task.limits.marking(title), contextlib.closing(verdicts):
            rows = {row["episode_id"]: row for row in verdicts}
        write_json(task.usage, spent_on(task.journal, cases, list(rows)))
        failed = [row for row in rows.values() if row["verdict"] is None]
        if problem := too_many(failed, len(episodes), task.max_error_rate, str(task.out), "have no verdict"):
            raise TooManyErrors(problem)
        write_jsonl(task.out, [rows[episode["episode_id"]] for episode in episodes])
    print(
        f"{task.out}: {len(episodes)} episodes judged by {judge.name}, {len(failed)} without a verdict", file=sys.stderr
    )


async def _judged(
    episode: dict[str, Any], judge: Judge, seat: Seat, journal: Journal, limits: Limits
) -> dict[str, Any]:
    """The row of one episode."""
    case, name = Case.model_validate(episode["case"]), str(episode["episode_id"])
    row: dict[str, Any] = {"pairing": episode["pairing"], "episode_id": name, "verdict": None, "error": None}
    caller = Caller(case, name, {"judge": seat}, journal, judge.seed, limits)
    question = Question("judge", transcript_view(episode), Completion, "completion")
    try:
        answered = await caller.ask(question)
    except GivenUp as failure:
        journal.give_up(case.case_id, name, str(failure), anew=failure.bad_answers)
        return {**row, "error": str(failure)}
    verdict = Verdict[TaskCompletion](
        value=TaskCompletion.model_validate(answered.value.model_dump()),
        evaluator=NAME,
        version=judge.version,
        cost=answered.usage.cost,
    )
    return {**row, "verdict": verdict.model_dump(mode="json")}


def transcript_view(episode: dict[str, Any]) -> TranscriptView:
    """What the judge reads of an episode."""
    transcript = episode_transcript(episode)
    spoken = [Spoken(speaker=_SPEAKER[turn.role], text=turn.text) for turn in transcript.turns]
    return TranscriptView(request=transcript.request, dialogue=tuple(spoken), result=transcript.result)
