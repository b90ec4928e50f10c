"""Keys of hosted models: where one is read, and whether a run has those that it will need."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from triagesim.config import Model, OpenRouterModel
from triagesim.environment import KEY_FILE
from triagesim.errors import InputError

#: The variable of each kind of hosted model.
OPENROUTER_KEY, OPENAI_KEY = "OPENROUTER_API_KEY", "OPENAI_API_KEY"

_ASSIGNMENT = re.compile(
    r"""\s*(?:export\s+)?(?P<name>\w+)\s*=\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"\s*(?:\#.*)?"""
    r"""|'(?P<single>[^']*)'\s*(?:\#.*)?|(?P<bare>.*?)(?:\s\#.*)?)\s*"""
)
# What a backslash takes its meaning from within double quotes.
_ESCAPED = re.compile(r'\\(["\\$`])')


def find_key(name: str) -> str:
    """The key in a variable of the environment, else in a file of keys; empty if there is none.

    Raises:
        InputError: the configured file of keys isn't there, others may read it, or a quotation mark isn't closed.
    """
    return (os.environ.get(name) or _from_dotenv(name) or "").strip()


def no_key(model: str) -> str:
    """What is said of a model that can't be asked without a key."""
    return (
        f"{model}: there is no key; set OPENROUTER_API_KEY in the environment, or in a file .env in the folder that "
        "you start from"
    )


def check_keys(jobs: Iterable[tuple[Path, Iterable[Model]]], *, here: bool = True) -> str | None:
    """Say before any job that a key is missing without which a model can't be asked.

    A run whose answers are all in the journal needs none. Whether they are can't be said before the cases are known, so
    a journal that holds something makes it a warning, which is returned.

    Args:
        jobs: of each job that will run, the folder of its journal and the models that may be asked.
        here: the jobs run on this machine, so that they find what it finds.

    Raises:
        InputError: a journal without any answer, so that the run would stop at its first call; or as `find_key`.
    """
    hosted = {
        (folder, f"openrouter:{model.model}")
        for folder, models in jobs
        for model in models
        if isinstance(model, OpenRouterModel)
    }
    if not hosted or find_key(OPENROUTER_KEY):
        return None
    asked = [name for folder, name in sorted(hosted) if not any(folder.glob("[0-9][0-9]/*.jsonl"))]
    if asked and here:
        raise InputError(no_key(asked[0]))
    models = ", ".join(sorted({name for _, name in hosted}))
    return f"{no_key(models)}, or nothing can be asked that isn't in the journal"


def _from_dotenv(name: str) -> str | None:
    """The value of a variable in the configured file of keys, else in `.env` of the working folder; the last counts.

    Raises:
        InputError: the configured file isn't there, or others may read it.
    """
    named = os.environ.get(KEY_FILE)
    path = Path(named or ".env").expanduser()
    if named and not path.is_file():
        raise InputError(f"runtime.key_file: there is no file {path}")
    if named and path.stat().st_mode & 0o077:
        raise InputError(f"runtime.key_file: others may read {path}; chmod 600 {path}")
    try:
        lines = path.read_text(encoding="utf-8-sig", errors="replace").split("\n")
    except OSError:
        return None
    found = None
    for line in lines:
        match = _ASSIGNMENT.fullmatch(line)
        if match and match["name"] == name:
            found = _value(path, name, match)
    return found


def _value(path: Path, name: str, match: re.Match[str]) -> str:
    """What stands behind `NAME=`, as a shell would have it."""
    if match["double"] is not None:
        return _ESCAPED.sub(r"\1", match["double"])
    if match["single"] is not None:
        return match["single"]
    if match["bare"].startswith(('"', "'")):
        raise InputError(f"{path}: a quotation mark around {name} isn't closed, or more stands behind it")
    return match["bare"]
