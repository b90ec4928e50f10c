"""Parts of a JSON value, whatever it holds: a mapping or a list of them, and nothing in place of anything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping, or an empty one in place of anything else."""
    # Nearly all are dictionaries, and asking for these is several times as fast.
    return value if type(value) is dict or isinstance(value, Mapping) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """The mappings of a list; none of anything else."""
    if not isinstance(value, list | tuple):
        return []
    return [item for item in value if type(item) is dict or isinstance(item, Mapping)]
