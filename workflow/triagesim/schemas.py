"""Writes the JSON Schemas that are generated from the models: `python -m triagesim.schemas`."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from triagesim.artifact import Episode
from triagesim.cases import Case
from triagesim.config import Config
from triagesim.personas import PERSONAS
from triagesim.resources import SCHEMAS

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, dict[str, Any]]:
    """Each schema file's content, by name."""
    models: dict[str, type[BaseModel]] = {
        "config": Config,
        "case": Case,
        "episode": Episode,
        **{f"{r}_persona": m for r, m in PERSONAS.items()},
    }
    return {f"{name}.schema.json": {"$schema": _DRAFT, **model.model_json_schema()} for name, model in models.items()}


def as_text(schema: dict[str, Any]) -> str:
    """A schema as it is checked in."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write them all."""
    for name, schema in schemas().items():
        (SCHEMAS / name).write_text(as_text(schema), encoding="utf-8")


if __name__ == "__main__":
    main()
