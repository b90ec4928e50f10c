"""The dataset of a run: dialogues, utterances and vital signs as tables, with a card that says what they are."""

from __future__ import annotations

from triagesim.dataset.export import export

__all__ = ["export"]
