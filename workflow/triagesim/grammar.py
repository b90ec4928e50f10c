"""JSON Schemas made fit for a constrained decoder: every string and list ends."""

from __future__ import annotations

from typing import Any

#: Items of a list whose schema sets no limit: a small model can fail to end one.
MAX_ITEMS = 8

# Keywords that llguidance can't hold: it would let any text through, without a word.
_UNENFORCED = frozenset({"uniqueItems", "not"})
_MAPS_OF_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_VALUES = frozenset({"enum", "const", "default", "examples", "required"})


def bounded(schema: Any, max_string: int) -> Any:
    """A copy of a JSON Schema in which every string and list ends, without what a decoder can't hold.

    Strings get `maxLength` (at most `max_string`), lists without a limit `maxItems`; `uniqueItems` and `not` go.
    """
    if isinstance(schema, list):
        return [bounded(item, max_string) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _MAPS_OF_SCHEMAS:
            kept[key] = {name: bounded(part, max_string) for name, part in value.items()}
        elif key in _VALUES:
            kept[key] = value
        elif key not in _UNENFORCED:
            kept[key] = bounded(value, max_string)
    types = kept.get("type")
    types = types if isinstance(types, list) else [types]
    if "string" in types and not {"enum", "const"} & kept.keys():
        kept["maxLength"] = min(kept.get("maxLength", max_string), max_string)
    if "array" in types:
        kept.setdefault("maxItems", MAX_ITEMS)
    return kept
