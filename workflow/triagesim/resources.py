"""Finds what ships beside the code: the `resources/` folder and the JSON Schemas."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from triagesim.errors import InputError
from triagesim.yaml_files import read_yaml

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent
_IN_CHECKOUT = (_CHECKOUT / "resources").is_dir() and (_CHECKOUT / "workflow" / "triagesim") == _PACKAGE

RESOURCES = _CHECKOUT / "resources" if _IN_CHECKOUT else _PACKAGE / "resources"
SCHEMAS = _CHECKOUT / "workflow" / "schemas" if _IN_CHECKOUT else _PACKAGE / "schemas"


@cache
def load_yaml(name: str) -> Any:
    """Parse `resources/<name>`; the value is shared, so treat it as read-only.

    Raises:
        InputError: as `read_yaml` does.
    """
    return read_yaml(RESOURCES / name)


def find_path(path: str | Path) -> Path:
    """A user's path: from the working folder if it is there, else beside the workflow.

    A shipped file (`resources/cases/vignettes.jsonl`) is thus found under `--directory` too.
    """
    # Path's own ways raise an error for a name that is too long, and for a home that nobody has.
    local = Path(os.path.expanduser(path))  # noqa: PTH111
    if local.is_absolute() or is_there(local):
        return local
    shipped = RESOURCES.parent / local
    return shipped if is_there(shipped) else local


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder; there is none by a name that can't be one."""
    return os.path.exists(path)  # noqa: PTH110


def check_names(paths: Iterable[str | Path | None], key: str = "") -> None:
    """Make sure that Snakemake can use such paths: braces are wildcards for it, and nothing can say that they aren't.

    Args:
        key: the one of the configuration that leads to them.

    Raises:
        InputError: names the first that it can't use.
    """
    for path in paths:
        if path is not None and set("{}") & set(str(path)):
            said = f"{key}: " if key else ""
            raise InputError(f"{said}{path}: Snakemake takes braces in a path for wildcards; give it another name")
