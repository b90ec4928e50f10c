"""YAML files that people edit, read with care: what YAML passes over in silence is an error with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from triagesim.errors import InputError


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Refuses a key that stands twice, of which YAML would take the last, and says where a value can't be one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        keys = (
            [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            if isinstance(node, yaml.MappingNode)
            else []
        )
        seen = set()
        for key in keys:
            if (key.tag, key.value) in seen:
                raise _problem(f"the key {key.value!r:.60} stands there twice", key)
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # a date that isn't in the calendar, a number of thousands of digits
            raise _problem(str(error), node) from None
        except (AttributeError, LookupError, TypeError):  # PyYAML trusts a tag that is written out
            raise _problem(f"a value that is no {node.tag.rpartition(':')[2]}", node) from None


def _problem(text: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(problem=text, problem_mark=node.start_mark)


def read_yaml(path: Path, hint: str = "") -> Any:
    """The value of a YAML file.

    Args:
        hint: where its form is explained, as the end of an error.

    Raises:
        InputError: it isn't UTF-8 or isn't YAML, with the line; or a key stands twice in one mapping.
        OSError: it can't be read.
    """
    after = hint and f"; {hint}"
    try:
        return yaml.load(path.read_bytes().decode("utf-8-sig"), Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark else ""
        raise InputError(f"{path}{where}: not YAML ({error.problem or error.context}){after}") from None
    except yaml.reader.ReaderError as error:
        raise InputError(f"{path}: not YAML ({error.reason} at character {error.position + 1}){after}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); save the file as UTF-8{after}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{path}: not YAML ({' '.join(str(error).split())}){after}") from None
