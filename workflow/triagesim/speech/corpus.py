"""The spoken corpus: the audio manifests of a run joined with the dialogues that they are of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from triagesim.errors import InputError
from triagesim.resources import load_yaml
from triagesim.stored import read_episodes, read_recordings

#: Between pairing and episode in a dialogue's id: a character that neither can hold, so that no two have one id.
BETWEEN = "+"


class Dialogue(NamedTuple):
    """A spoken dialogue.

    Attributes:
        audio: its row of the audio manifest; `file` is relative to `folder`, times are in seconds.
        episode: its row of the pool.
    """

    id: str
    audio: Mapping[str, Any]
    episode: Mapping[str, Any]
    folder: Path

    @property
    def file(self) -> Path:
        """The two-channel file."""
        return self.folder / str(self.audio["file"])

    @property
    def lines(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Number from 0 and line, for the lines in which there is something to hear."""
        for number, line in enumerate(self.audio["lines"]):
            if any(map(str.isalnum, line["spoken"])) and line["end"] > line["start"]:
                yield number, line

    def speaker(self, role: str) -> str:
        """The speaker's name in the whole corpus: engine and voice, which is what a listener could tell apart."""
        return "_".join(f"{self.audio['engine']['name']}-{self.audio['voices'][role]['id']}".split())

    def traits(self, role: str) -> dict[str, str]:
        """The audible traits of a role's persona; the gender is the voice's."""
        persona = self.episode.get(f"{role}_persona") or {}
        wanted = load_yaml("speech/corpus.yaml")["traits"][role]
        return {"gender": self.audio["voices"][role]["gender"]} | {
            trait: persona[trait] for trait in wanted if trait != "gender" and persona.get(trait)
        }

    @property
    def quality(self) -> str:
        """How recordings by this engine are marked."""
        engine = self.audio["engine"]["name"]
        return str(load_yaml("speech/corpus.yaml")["quality"].get(engine, "unknown engine"))


def read_corpus(pool: Path, manifests: Sequence[Path]) -> list[Dialogue]:
    """The spoken dialogues of a run by pairing and episode.

    Raises:
        InputError: a manifest names an episode that isn't in the pool, or two have one name.
    """
    rows = [(path, number, row) for path in manifests for number, row in read_recordings(path)]
    wanted = {(row["pairing"], row["episode_id"]) for _, _, row in rows}
    episodes = {
        key: row for _, row in read_episodes(pool) if (key := (row.get("pairing"), row.get("episode_id"))) in wanted
    }
    found: dict[str, Dialogue] = {}
    for path, number, row in rows:
        key = row["pairing"], row["episode_id"]
        name = BETWEEN.join(key)
        if key not in episodes:
            raise InputError(
                f"{path}, line {number}: {'/'.join(key)} isn't in {pool}; render the audio of this pool anew"
            )
        if name.lower() in found:
            raise InputError(f"{path}, line {number}: {name} is there twice; delete stale manifests in {path.parent}")
        found[name.lower()] = Dialogue(name, row, episodes[key], path.parent)
    return sorted(found.values(), key=lambda dialogue: (dialogue.audio["pairing"], dialogue.audio["episode_id"]))
