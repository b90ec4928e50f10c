"""SmolLM2's tokenizer, read from its GGUF file: byte-level BPE, with digits one by one."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from triagesim.fetch import fetch

MODEL = "smollm2-135m-instruct"
START, END = "<|im_start|>", "<|im_end|>"

# A word with the space before it, or a run of other marks; of white space all but the last one, which goes to the word.
_PIECE = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
_DIGIT = re.compile(r"\d|\D+")
_FIXED = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _LIST = 8, 9


class Tokenizer:
    """Text to token numbers.

    Args:
        path: the GGUF file.
    """

    def __init__(self, path: Path) -> None:
        found = _metadata(path, {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"})
        self._numbers = {token: number for number, token in enumerate(found["tokenizer.ggml.tokens"])}
        self._ranks = {tuple(pair.split(" ")): rank for rank, pair in enumerate(found["tokenizer.ggml.merges"])}
        self._letters = _byte_letters()
        self._known: dict[str, list[int]] = {}

    def chat(self, messages: Iterable[Mapping[str, str]]) -> list[int]:
        """A prompt as the model's chat template writes it, up to where its answer begins."""
        numbers: list[int] = []
        start, end = self._numbers[START], self._numbers[END]
        for message in messages:
            numbers += [start, *self.encode(f"{message['role']}\n{message['content']}"), end, *self.encode("\n")]
        return [*numbers, start, *self.encode("assistant\n")]

    def encode(self, text: str) -> list[int]:
        """Tokens of plain text."""
        numbers: list[int] = []
        for piece in _PIECE.findall(text):
            if piece not in self._known:
                parts = [self._merged(part) for part in _DIGIT.findall(piece)]
                self._known[piece] = [number for part in parts for number in part]
            numbers += self._known[piece]
        return numbers

    def _merged(self, piece: str) -> list[int]:
        """Merge the piece's bytes, the pair that was learnt first before all others."""
        parts = [self._letters[byte] for byte in piece.encode()]
        while len(parts) > 1:
            pairs = list(pairwise(parts))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            merged: list[str] = []
            for part in parts:
                if merged and (merged[-1], part) == best:
                    merged[-1] += part
                else:
                    merged.append(part)
            parts = merged
        return [self._numbers[part] for part in parts]


@cache
def smollm2() -> Tokenizer:
    """The tokenizer of the catalogue's small language model; the model is fetched if it isn't there."""
    return Tokenizer(fetch(MODEL))


def _byte_letters() -> dict[int, str]:
    """The printable letter that stands for each byte in the vocabulary."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + place) for place, byte in enumerate(others)}


def _metadata(path: Path, wanted: set[str]) -> dict[str, Any]:
    """Values of a GGUF file's header."""
    with path.open("rb") as file:
        magic, _, _, count = struct.unpack("<4sIQQ", file.read(24))
        if magic != b"GGUF":
            raise ValueError(f"{path}: is no GGUF file")
        found = {}
        for _ in range(count):
            key = _text(file)
            value = _value(file, *struct.unpack("<I", file.read(4)))
            if key in wanted:
                found[key] = value
        return found


def _text(file: BinaryIO) -> str:
    return file.read(*struct.unpack("<Q", file.read(8))).decode()


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _TEXT:
        return _text(file)
    if kind == _LIST:
        inner, count = struct.unpack("<IQ", file.read(12))
        return [_value(file, inner) for _ in range(count)]
    form = _FIXED[kind]
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]
