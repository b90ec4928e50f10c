"""Finds what ships beside the code: the `resources/` folder and the JSON Schemas."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

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
    local = Path(path).expanduser()
    if local.is_absolute() or local.exists():
        return local
    shipped = RESOURCES.parent / local
    return shipped if shipped.exists() else local
