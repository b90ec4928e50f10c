"""The dialogues as the page's browser reads them: an index of all, and chunks that are unpacked when one is opened."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from triagesim.jsonl import dumps, gzipped, write_text
from triagesim.lenient import mapping, mappings
from triagesim.scoring import leaked_label, other_scale, outcome, score
from triagesim.stored import read_episodes

#: Dialogues of one chunk: opening one unpacks so many.
CHUNK = 40

_SHOWN_OF_CASE = (
    "case_id",
    "chief_complaint",
    "vitals",
    "acuity",
    "acuity_scale",
    "pain",
    "age",
    "gender",
    "arrival_transport",
    "diagnoses",
    "medications",
    "expert_red_flags",
    "provenance",
)
_SHOWN = (
    "episode_id",
    "pairing",
    "status",
    "error",
    "skip_reason",
    "algorithm",
    "models",
    "labels",
    "patient_script",
    "in_situ",
    "in_situ_error",
    "script_error",
    "appearance",
    "appearance_error",
    "end_reason",
    "final_triage",
    "red_flags",
    "record",
)
#: Of a persona what is for the voice alone.
_NOT_TRAITS = ("ethnicity", "instruction")


class Dialogues:
    """Everything that the page says of single episodes, gathered in one pass.

    Attributes:
        rows: an episode each, as `[pairing, id, complaint, truth, final, outcome, turns, [mark …], [trait …]]`; names
            are numbers into `names`.
        chunks: packed details of `CHUNK` episodes each, in the order of `rows`; none where they lie in files.
        beside: in how many files of the folder `data`, one a chunk, because they are more than `held` characters.
        usage: sums by pairing and role over the episodes' own usage; `lines` of the dialogue master's checks by
            pairing and speaker.
    """

    def __init__(self, data: Path, held: int) -> None:
        self.names: dict[str, dict[str, int]] = {kind: {} for kind in ("pairing", "outcome", "mark", "trait")}
        self.rows: list[list[Any]] = []
        self.chunks: list[str] = []
        self.usage: dict[tuple[str, str], Counter[str]] = {}
        self.lines: dict[tuple[str, str], Counter[str]] = {}
        self.beside = 0
        self._data, self._left = data, held
        self._open: list[dict[str, Any]] = []

    @classmethod
    def gather(
        cls,
        files: Iterable[Path],
        data: Path,
        *,
        held: int,
        pooled: set[tuple[str, str]],
        spoken: Mapping[tuple[str, str], Mapping[str, Any]],
        case_flags: Mapping[str, str],
    ) -> Dialogues:
        """Read the episodes.

        Args:
            pooled: pairing and id of what is in the pool.
            spoken: the manifest's row of what was spoken, with `file` relative to the page.
            case_flags: what the quality rules found in a case, `; ` between.
        """
        found = cls(data, held)
        for path in files:
            for _, episode in read_episodes(path):
                found._add(
                    episode, pooled, spoken, case_flags.get(str(mapping(episode.get("case")).get("case_id")), "")
                )
        found._close_chunk()
        return found

    def index(self) -> str:
        """The packed index: the rows, and every name that they count to."""
        return _packed(
            {"chunk": CHUNK, "names": {kind: list(known) for kind, known in self.names.items()}, "rows": self.rows}
        )

    def _add(
        self,
        episode: dict[str, Any],
        pooled: set[tuple[str, str]],
        spoken: Mapping[tuple[str, str], Mapping[str, Any]],
        case_flags: str,
    ) -> None:
        key = (str(episode.get("pairing", "")), str(episode["episode_id"]))
        figures, case = score(episode), mapping(episode.get("case"))
        marks = [*_marks(episode, figures), *(f"case: {flag}" for flag in case_flags.split("; ") if flag)]
        marks += ["in the pool"] * (key in pooled) + ["spoken"] * (key in spoken)
        traits = [f"{role} {name}: {level}" for role, name, level in _traits(episode)]
        self.rows.append(
            [
                self._number("pairing", key[0]),
                key[1],
                str(case.get("chief_complaint") or ""),
                figures["ground_truth"],
                figures["final_triage"],
                self._number("outcome", _outcome(episode, figures)),
                figures["num_turns"],
                [self._number("mark", mark) for mark in marks],
                [self._number("trait", trait) for trait in traits],
            ]
        )
        self._count(key[0], episode)
        self._open.append(_detail(episode, spoken.get(key)))
        if len(self._open) == CHUNK:
            self._close_chunk()

    def _count(self, pairing: str, episode: Mapping[str, Any]) -> None:
        for role, taken in mapping(episode.get("usage")).items():
            self.usage.setdefault((pairing, role), Counter()).update({**taken, "episodes": 1})
        for line in mappings(episode.get("history")):
            check = line.get("verification")
            if isinstance(check, Mapping):
                counted = self.lines.setdefault((pairing, str(line.get("actor"))), Counter())
                counted["unread" if check.get("passed") is None else "checked"] += 1
                counted["redrafted"] += bool(check.get("rejected"))
                counted["edited"] += bool(check.get("edited"))
                counted["failed"] += check.get("passed") is False and not check.get("edited")

    def _number(self, kind: str, name: str) -> int:
        known = self.names[kind]
        return known.setdefault(name, len(known))

    def _close_chunk(self) -> None:
        if self._open:
            self.chunks.append(_packed(self._open))
            self._open = []
            self._left -= len(self.chunks[-1])
        if self._left < 0:
            for chunk in self.chunks:
                name = f"dialogues-{self.beside}.js"
                write_text(self._data / name, f'triagesimChunk({self.beside}, "{chunk}");\n')
                self.beside += 1
            self.chunks = []


def timeline(episode: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The history with each step of the nurse beside what it gave.

    An item of the history keeps its keys and has the step as `step`; a step that left nothing in the history (it logged
    flags) stands alone as `{"actor": "step", "step": …}`.
    """
    steps = mappings(episode.get("trace"))
    items: list[dict[str, Any]] = []
    done = 0

    def alone(until: int) -> Iterator[dict[str, Any]]:
        return ({"actor": "step", "turn": step.get("turn"), "step": step} for step in steps[done:until])

    for item in mappings(episode.get("history")):
        shown = {name: value for name, value in item.items() if value is not None or name in ("value", "passed")}
        made = next((at for at in range(max(0, done - 1), len(steps)) if _made(steps[at], item)), None)
        if item.get("event") == "triage_end":
            items += alone(len(steps))
            done = len(steps)
        elif made is not None:
            items += alone(made)
            if made >= done:
                shown["step"] = steps[made]
            done = max(done, made + 1)
        items.append(shown)
    items += alone(len(steps))
    return items


def _made(step: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
    """Whether a step of the nurse gave this line or this measurement."""
    if step.get("turn") != item.get("turn"):
        return False
    if item.get("event") == "vital":
        return bool(step.get("action") == "check_vital" and step.get("vital") == item.get("name"))
    return item.get("actor") == "nurse" and step.get("utterance") == item.get("utterance")


def _detail(episode: Mapping[str, Any], spoken: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the browser shows of one episode; what the page has no place for stays in the artifact."""
    case = mapping(episode.get("case"))
    detail = {name: episode[name] for name in _SHOWN if episode.get(name) not in (None, {}, [])}
    detail["case"] = {name: case[name] for name in _SHOWN_OF_CASE if case.get(name) not in (None, [], {})}
    detail["nurse_persona"], detail["patient_persona"] = (
        {
            name: level
            for name, level in mapping(episode.get(f"{role}_persona")).items()
            if level and name not in _NOT_TRAITS
        }
        for role in ("nurse", "patient")
    )
    detail["timeline"] = timeline(episode)
    if spoken is not None:
        times = [[line["start"], line["end"]] for line in spoken["lines"]]
        detail["audio"] = {"file": spoken["file"], "engine": mapping(spoken.get("engine")).get("name"), "times": times}
    return detail


def _outcome(episode: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    counted = outcome(episode, figures)
    if counted != "graded":
        return {"error": "failed", "skipped": "skipped"}.get(counted, "not graded")
    return "right" if figures["correct"] else "over-triage" if figures["over_triage"] else "under-triage"


def _marks(episode: Mapping[str, Any], figures: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        name
        for name, holds in (
            ("ended by the nurse", episode.get("end_reason") == "nurse_end"),
            ("questions ran out", episode.get("end_reason") == "max_turns"),
            ("red flags logged", figures["num_red_flags"]),
            ("drafts rejected", figures["regenerated_utterances"]),
            ("a failed line stands", figures["flagged_utterances"]),
            ("a line by the dialogue master", figures["edited_utterances"]),
            ("label on another scale", other_scale(episode)),
            ("nurse told how near its level is", leaked_label(episode)),
        )
        if holds
    )


def _traits(episode: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for role in ("patient", "nurse"):
        for name, level in mapping(episode.get(f"{role}_persona")).items():
            if level and name not in _NOT_TRAITS:
                yield role, name.replace("_", " "), str(level).replace("_", " ")


def _packed(value: Any) -> str:
    """A JSON value as base64 of its gzip, the same bytes for the same value."""
    return base64.b64encode(gzipped(dumps(value).encode("utf-8", "surrogatepass"))).decode()
