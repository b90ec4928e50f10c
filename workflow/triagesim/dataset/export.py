"""Writes the dataset of a run: what may leave, split by patient, without identifiers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

from triagesim.dataset.card import Contents, write_card
from triagesim.dataset.columns import TABLES
from triagesim.dataset.croissant import write_croissant
from triagesim.dataset.files import TableFiles
from triagesim.dataset.rows import rows_of
from triagesim.errors import InputError
from triagesim.governance import OPEN, Provenance, load_salt, pseudonym
from triagesim.mimic import provenance_of_row
from triagesim.splits import patient_key, split_of
from triagesim.stored import read_episodes, read_recordings
from triagesim.temporaries import folder_beside

_OWN = re.compile(rf"({'|'.join(TABLES)})_[a-z][a-z0-9_]*\.(csv|jsonl|parquet)")


def export(
    episodes: Iterable[Path],
    out_dir: Path,
    *,
    splits: Mapping[str, float],
    seed: int,
    salt: Path,
    audio: Iterable[Path] = (),
    include_credentialed: bool = False,
    provenance: Provenance | None = None,
    pool: bool = True,
) -> Contents:
    """Write the finished episodes of the files into `out_dir`, all of it or nothing; return what it holds.

    Args:
        splits, seed: as in `split_of`.
        salt: where the secret of the pseudonyms lies or is made; not read where all cases are synthetic.
        audio: manifests of recordings.
        provenance: of cases that don't say it themselves.
        pool: whether the episodes were chosen for their right level; the card says so.

    Raises:
        InputError: a case may not leave without `include_credentialed`, or nothing says where it comes from.
    """
    spoken = {(row["pairing"], row["episode_id"]): row for path in audio for _, row in read_recordings(path)}
    contents = Contents(list(splits), pool=pool)
    with folder_beside(out_dir) as temporary:
        with ExitStack() as stack:
            files = {
                (table, split): stack.enter_context(TableFiles(temporary, table, split))
                for table in TABLES
                for split in splits
            }
            hide = _hider(salt)
            for episode, origin in _finished(episodes, provenance, include_credentialed):
                split = split_of(patient_key(episode["case"]), splits, seed)
                tables = rows_of(
                    episode,
                    split,
                    provenance=origin,
                    hide=None if origin == "synthetic" else hide,
                    spoken=spoken.get((episode.get("pairing") or "", episode["episode_id"])),
                )
                for table, rows in tables.items():
                    for row in rows:
                        files[table, split].write(row)
                contents.count(tables["dialogues"][0])
        contents.rows = {key: written.rows for key, written in files.items()}
        write_card(temporary / "README.md", contents)
        write_croissant(temporary / "croissant.json", contents)
        _move(temporary, out_dir, private=not contents.origins <= OPEN)
    return contents


def _finished(
    paths: Iterable[Path], declared: Provenance | None, include_credentialed: bool
) -> Iterator[tuple[dict[str, Any], Provenance]]:
    """The finished episodes of the files, each with what its case counts as; none that may not leave."""
    for path in paths:
        for number, episode in read_episodes(path):
            if episode.get("status") == "ok":
                origin = _origin(episode, declared, f"{path}, line {number}")
                _check(origin, include_credentialed, f"{path}, line {number}")
                yield episode, origin


def _origin(episode: Mapping[str, Any], declared: Provenance | None, where: str) -> Provenance:
    """What the case of an episode counts as, whatever it says itself."""
    own = episode["case"].get("provenance")
    origin = provenance_of_row(episode["case"], own if own in get_args(Provenance) else declared)
    if origin is None:
        raise InputError(f"{where}: nothing says where its case comes from; name it with --provenance")
    return origin


def _check(origin: Provenance, include_credentialed: bool, where: str) -> None:
    if origin not in OPEN and not include_credentialed:
        raise InputError(
            f"{where}: its case is {origin} data, whose text isn't exported unless you ask for it. If your agreement "
            "lets you hand it on, set dataset.include_credentialed: true (--include-credentialed); its notice comes too"
        )


def _hider(salt: Path) -> Callable[[str], str]:
    """The pseudonym of an identifier; the salt is read, and made, when the first one is asked for."""
    found: list[bytes] = []

    def hide(identifier: str) -> str:
        if not found:
            found.append(load_salt(salt))
        return pseudonym(identifier, found[0])

    return hide


def _move(temporary: Path, out_dir: Path, private: bool) -> None:
    """Put the finished files into their place, and take tables away that an earlier export left and this one hasn't."""
    made = [path for path in temporary.rglob("*") if path.is_file()]
    for path in sorted(made):
        place = out_dir / path.relative_to(temporary)
        place.parent.mkdir(parents=True, exist_ok=True)
        if private:
            path.chmod(0o600)
        path.replace(place)
    kept = {out_dir / path.relative_to(temporary) for path in made}
    for path in out_dir.rglob("*"):
        if path not in kept and _OWN.fullmatch(path.name):
            path.unlink()
