"""Speakers whose recordings an engine clones: who they are, and that they agreed to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from triagesim.cases import explain
from triagesim.errors import InputError
from triagesim.jsonl import sha256_of
from triagesim.resources import check_names, find_path
from triagesim.speech.voices import Person, Voice, check_ids
from triagesim.yaml_files import read_yaml

#: Seconds that a reference recording must last; XTTS's makers want more than this.
LEAST_SECONDS = 3.0


class Reference(Person):
    """An entry of a file of speakers; `resources/voices/xtts.yaml` says what each key means.

    Attributes:
        references: recordings, relative to the file of speakers.
    """

    references: Annotated[list[str], Field(min_length=1)]
    consent: bool
    licence: Annotated[str, Field(min_length=1)]


_SPEAKERS = TypeAdapter(list[Reference])


def read_speakers(path: str) -> dict[str, tuple[Reference, list[Path]]]:
    """The speakers of a file by id, with the paths of their recordings.

    Raises:
        InputError: the file isn't one of speakers, lists fewer than two, or somebody didn't consent or has no recording
            there; all of these are named at once.
    """
    file = find_path(path)
    if not file.is_file():
        raise InputError(f"audio.xtts.speakers: no file {file}; its form is explained in resources/voices/xtts.yaml")
    try:
        people = _SPEAKERS.validate_python(read_yaml(file) or [])
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error)}") from None
    if not people:
        raise InputError(
            f"{path}: lists no speaker; XTTS clones recordings, and none come with it: list at least two speakers who "
            "agreed to that, as the file explains, or set audio.xtts.speakers to a file of your own"
        )
    check_ids(people, path)
    found = {one.id: (one, [file.parent / name for name in one.references]) for one in people}
    problems = [problem for one, paths in found.values() for problem in _problems(one, paths)]
    _refuse(path, problems)
    return found


def recordings_of(path: str) -> list[Path]:
    """A file of speakers and all their recordings: what a change of which makes other voices.

    Raises:
        InputError: as `read_speakers` does, or Snakemake can't use the name of one.
    """
    found = [find_path(path), *(one for _, paths in read_speakers(path).values() for one in paths)]
    check_names(found, "audio.xtts.speakers")
    return found


def check_recordings(path: str, speakers: dict[str, tuple[Reference, list[Path]]]) -> None:
    """Make sure that every recording can be read and is long enough.

    Raises:
        InputError: all that aren't, at once.
    """
    import soundfile

    problems = []
    for one, recordings in speakers.values():
        for name, recording in zip(one.references, recordings, strict=True):
            try:
                seconds = soundfile.info(recording).duration
            except soundfile.LibsndfileError as error:
                problems.append(f"{one.id}: {name} can't be read ({error})")
                continue
            if seconds < LEAST_SECONDS:
                problems.append(
                    f"{one.id}: {name} lasts {seconds:.1f} s; a reference needs at least {LEAST_SECONDS:g} s"
                )
    _refuse(path, problems)


def as_voice(one: Reference, recordings: Sequence[Path]) -> Voice:
    """A speaker as a voice; what was recorded counts by its hash, wherever it lies."""
    hashes = [sha256_of(path) for path in recordings]
    shared: dict[str, Any] = one.model_dump(include=set(Person.model_fields))
    return Voice(**shared, parameters={"references": " ".join(hashes)}, licence=one.licence)


def _problems(one: Reference, paths: Sequence[Path]) -> list[str]:
    said = [] if one.consent else [f"{one.id}: consent isn't given (consent: true states that it is)"]
    return said + [f"{one.id}: no file {path}" for path in paths if not path.is_file()]


def _refuse(path: str, problems: Sequence[str]) -> None:
    if problems:
        raise InputError(f"{path}: {len(problems)} problem(s) with its speakers\n  " + "\n  ".join(problems))
