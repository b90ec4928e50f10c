"""Picks words: seeded, and never the same line twice in a dialogue."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")
_WORD = re.compile(r"[\w']+")
_DISFLUENT = re.compile(r"\b\w{1,4}- |\b(?:um|uh|er|uhm|you know|i mean|like)\b")


class Picker:
    """Chooses among wordings with a seed, leaving out what a dialogue holds already.

    Args:
        seed: the call's own.
        said: lines of the dialogue so far.
    """

    def __init__(self, seed: int, said: Sequence[str]) -> None:
        self._random = random.Random(seed)
        self._said = smooth("\n".join(said))

    def pick(self, options: Sequence[str]) -> str:
        """One of the options that wasn't said yet; any of them when all were."""
        return self._random.choice([option for option in options if self._is_fresh(option)] or list(options))

    def fresh(self, options: Sequence[str]) -> list[str]:
        """The options that weren't said yet, in random order."""
        left = [option for option in options if self._is_fresh(option)]
        self._random.shuffle(left)
        return left

    def _is_fresh(self, option: str) -> bool:
        """Whether it wasn't said yet; a single word (`No.`) may come again."""
        return len(_WORD.findall(option)) < 2 or smooth(option) not in self._said

    def chance(self, share: float) -> bool:
        """True in `share` of the cases."""
        return self._random.random() < share

    def shuffled(self, items: Sequence[_T]) -> list[_T]:
        """The items in random order."""
        return self._random.sample(list(items), len(items))

    def place(self, count: int) -> int:
        """A number from 0 to `count` - 1."""
        return self._random.randrange(count)


def smooth(text: str) -> str:
    """The words of a text without its disfluencies, so that a line is known again however it was said."""
    words = _WORD.findall(_DISFLUENT.sub(" ", text.lower()))
    return " ".join(word for word, before in zip(words, ["", *words], strict=False) if word != before)


def join(items: Sequence[str], word: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {word} {items[-1]}"


def start_large(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def start_small(text: str) -> str:
    """The text to go on after other words: a small first letter unless it is `I` or a name like `ECG`."""
    first = text.split(" ", 1)[0].rstrip(".,…")
    return text if first.startswith("I'") or first == "I" or first[1:2].isupper() else text[:1].lower() + text[1:]


def stop(text: str) -> str:
    """The text with an end mark."""
    text = text.strip().rstrip(",;")
    return text if text[-1:] in (".", "!", "?", "…") else f"{text}."
