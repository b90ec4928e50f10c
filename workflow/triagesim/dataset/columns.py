"""The columns of the dataset's tables, from `resources/dataset.yaml` and the trait registry."""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple, get_args

from triagesim.personas import Role, registry
from triagesim.resources import load_yaml

Kind = Literal["string", "integer", "number", "boolean", "strings"]
TableName = Literal["dialogues", "utterances", "vitals"]
TABLES: tuple[TableName, ...] = get_args(TableName)

_PERSONA_ROLES: tuple[Role, ...] = ("nurse", "patient")


class Column(NamedTuple):
    """A column: its name, what its cells are, and what it says."""

    name: str
    kind: Kind
    about: str


@cache
def columns(table: TableName) -> tuple[Column, ...]:
    """The columns of a table in their order; a dialogue's end with the traits of its two personas."""
    listed = load_yaml("dataset.yaml")["tables"][table]["columns"]
    found = [Column(name, entry["type"], entry["about"]) for name, entry in listed.items()]
    if table == "dialogues":
        for role in _PERSONA_ROLES:
            found += [Column(name, "string", about) for name, about in trait_columns(role).items()]
    return tuple(found)


@cache
def trait_columns(role: Role) -> dict[str, str]:
    """The columns of a role's persona, `<role>_<trait>`, each with what it says."""
    traits = {f"{role}_{trait.name}": trait.definition for trait in registry(role).traits.values()}
    return {f"{role}_gender": f"the gender of the {role}", **traits}
