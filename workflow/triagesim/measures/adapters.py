"""An episode as the measures read it: a session, a transcript, and the history of each line.

Episodes of this project, of the published simulator 0.2 and its older run files can be read; one without `t` gets it
from the words spoken so far, at the same rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from triagesim.artifact import SPEAKING_RATE, is_said
from triagesim.cases import explain
from triagesim.environment_view import environment_view
from triagesim.errors import InputError
from triagesim.jsonl import read_lines
from triagesim.lenient import mapping, mappings
from triagesim.measures.completion import Transcript, Turn
from triagesim.measures.rewrites import History, Revision
from triagesim.measures.sessions import Activity, Session
from triagesim.measures.verdicts import Role

#: When every simulated dialogue begins: no clock stands in an episode.
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
#: Seconds; a time from here on is taken for none.
_LONGEST = 1e9


class Review(BaseModel):
    """A row of a review file: what a clinician made of one line.

    Attributes:
        pairing: may be left out where the episode has none.
        line: which one, as its place in the episode's `history`, from 0.
        text: the line as it should be.
    """

    model_config = ConfigDict(extra="forbid")

    pairing: str = ""
    episode_id: str
    line: Annotated[int, Field(ge=0)]
    text: str


def episode_session(episode: Mapping[str, Any]) -> Session:
    """The activity of an episode: the patient is the person, the nurse the agent.

    A nurse's line is the agent's where it waits for an answer. What is said while a vital sign is taken, the closing
    line and all after it is the system's, as are the dialogue master's checks (`check`, beside the line) and the events
    (by their name). So a finished episode continued, and one that ended at an unanswered question dropped off, once
    `window` has passed. For `now` take any time that late: the simulation is over.
    """
    activities = []
    history = list(_timed(episode))
    places = [place for place, (line, _) in enumerate(history) if line.get("actor") == "patient"]
    ended = any(line.get("event") == "triage_end" for line, _ in history)
    last_reply = places[-1] if places else -1
    for place, (line, at) in enumerate(history):
        actor = line.get("actor")
        if not isinstance(line.get("utterance"), str):
            activities.append(Activity(at=at, role="system", kind=str(line.get("event"))))
            continue
        if line.get("verification"):
            activities.append(Activity(at=at, role="system", kind="check"))
        waits = line.get("action") not in ("check_vital", "end") and not (ended and place > last_reply)
        role: Role = "person" if actor == "patient" else "agent" if waits else "system"
        activities.append(Activity(at=at, role=role))
    return Session(activities=activities)


def episode_transcript(episode: Mapping[str, Any]) -> Transcript:
    """An episode as a judge of task completion reads it.

    The request is the complaint that the case came with (else the patient's first words), the turns are what was heard,
    the result is the final level with the nurse's last explanation and the logged flags; None without a decision.
    """
    heard = [(line, str(line["utterance"])) for line, _ in _timed(episode) if is_said(line)]
    turns = [Turn(role="person" if line.get("actor") == "patient" else "agent", text=text) for line, text in heard]
    view = environment_view(episode)
    complaint = mapping(view["ground_truth"]).get("chief_complaint")
    first = next((turn.text for turn in turns if turn.role == "person"), "")
    request = complaint if isinstance(complaint, str) and complaint.strip() else first
    return Transcript(request=request, turns=turns, result=_result(view))


def line_history(episode: Mapping[str, Any], line: int, edit: str | None = None) -> History:
    """How one line of an episode came about.

    Rejected drafts and the line that stands are the agent's (also the patient's: a model wrote it), the dialogue
    master's own line is the system's, a clinician's edit is a person's. All have the line's time, and their order.

    Args:
        line: its place in `history`, from 0.
        edit: the line as a clinician would have it; None where nobody reviewed it.

    Raises:
        InputError: there is no line at that place.
    """
    history = list(_timed(episode))
    entry, at = history[line] if 0 <= line < len(history) else ({}, EPOCH)
    text = entry.get("utterance")
    if not isinstance(text, str):
        name = mapping(episode).get("episode_id")
        raise InputError(f"episode {name}: history has no line at {line}; count from 0, events among them")
    verification = mapping(entry.get("verification"))
    drafts = [draft.get("utterance") for draft in mappings(verification.get("rejected"))]
    written: list[tuple[Role, str]] = [("agent", draft) for draft in drafts if isinstance(draft, str)]
    written.append(("system" if verification.get("edited") else "agent", text))
    if edit is not None:
        written.append(("person", edit))
    return History(revisions=[Revision(at=at, role=role, text=words) for role, words in written])


def line_histories(episode: Mapping[str, Any], edits: Mapping[int, str] | None = None) -> list[History]:
    """The history of every line of an episode, with a clinician's edits by place.

    Raises:
        InputError: an edit is of a place where no line is.
    """
    spoken = {place for place, (line, _) in enumerate(_timed(episode)) if isinstance(line.get("utterance"), str)}
    return [line_history(episode, place, (edits or {}).get(place)) for place in sorted(spoken | set(edits or {}))]


def read_reviews(path: str | Path) -> dict[tuple[str, str], dict[int, str]]:
    """A review file (JSON Lines of `Review`): text by place, by (pairing, episode id). The last row of a line counts.

    Raises:
        InputError: a row can't be read as a review.
    """
    reviews: dict[tuple[str, str], dict[int, str]] = {}
    for number, row in read_lines(Path(path)):
        try:
            review = Review.model_validate(row)
        except ValidationError as error:
            raise InputError(f"{path}, line {number}: {explain(error)}") from None
        reviews.setdefault((review.pairing, review.episode_id), {})[review.line] = review.text
    return reviews


def _timed(episode: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], datetime]]:
    """The entries of an episode's history, each with its time."""
    words = 0
    for entry in mappings(mapping(episode).get("history")):
        t: Any = entry.get("t")
        known = isinstance(t, int | float) and not isinstance(t, bool) and 0 <= t < _LONGEST
        yield entry, EPOCH + timedelta(seconds=t if known else round(words * 60 / SPEAKING_RATE, 1))
        if is_said(entry):
            words += len(entry["utterance"].split())


def _result(view: Mapping[str, Any]) -> str | None:
    """The decision at the end of a trace, in words."""
    steps = mappings(view["trace"])
    last = steps[-1] if steps else {}
    level = mapping(last.get("action")).get("triage")
    if mapping(last.get("action")).get("type") != "end" or level is None:
        return None
    why, logged = last.get("explanation"), mapping(view["belief"]).get("red_flags_logged")
    parts = [f"Triage level {level} of 5 (1 is the most urgent)."]
    parts += [f"Reason: {why}"] if isinstance(why, str) and why.strip() else []
    parts += [f"Red flags: {', '.join(map(str, logged))}."] if isinstance(logged, list) and logged else []
    return "\n".join(parts)
