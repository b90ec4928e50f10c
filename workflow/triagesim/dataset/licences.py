"""What licence and what notice follow from where cases come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, get_args

from triagesim.governance import Provenance
from triagesim.resources import load_yaml


class Licence(NamedTuple):
    """A licence: as Hugging Face knows it, its name, where it can be read if that is known, and what must be said."""

    id: str
    name: str
    url: str | None
    notice: str


def licences(provenances: Iterable[str]) -> list[Licence]:
    """What follows from each provenance, the strictest first."""
    found = set(provenances)
    listed, notices = load_yaml("dataset.yaml")["licences"], load_yaml("notices.yaml")["provenances"]
    made = []
    for name in reversed(get_args(Provenance)):
        if name in found:
            entry, said = listed[name], notices.get(name, {})
            words = [text for text in (said.get("attribution"), said.get("notice"), entry.get("notice")) if text]
            made.append(Licence(entry["id"], entry["name"], entry.get("url"), " ".join(words)))
    return made
