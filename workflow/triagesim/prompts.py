"""Renders what a role sees into chat messages, from the templates in `resources/prompts/`.

Order: fixed instructions, and what stays the same through an episode, in the system message; then, in the user message,
the dialogue and after it what changes at each step. So a later call of a role extends an earlier one up to the first
new line of dialogue, which an engine's prefix cache makes cheap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import jinja2
from pydantic import BaseModel

from triagesim.errors import InputError
from triagesim.jsonl import digest
from triagesim.personas import Role, anchors, registry
from triagesim.requests import Role as Asked
from triagesim.resources import RESOURCES, load_yaml
from triagesim.views import (
    AppearanceView,
    ArrivalView,
    EditView,
    NurseLineView,
    NurseView,
    PatientLineView,
    PatientView,
    ReadingView,
    ScriptView,
    Spoken,
    TranscriptView,
    View,
)

PromptSet = Literal["full", "compact"]

#: What a view is for; its templates are `<purpose>_system.j2` and `<purpose>_step.j2`. A set that lacks a template
#: takes the full set's.
_PURPOSES: dict[type[BaseModel], str] = {
    NurseView: "nurse",
    PatientView: "patient",
    ArrivalView: "in_situ",
    ScriptView: "script",
    AppearanceView: "appearance",
    PatientLineView: "patient_check",
    NurseLineView: "nurse_check",
    ReadingView: "reading",
    TranscriptView: "completion",
}
# Who is asked for these purposes; for all others it is the judge of the dialogue.
_ASKED: dict[str, Asked | Literal["completion"]] = {
    "nurse": "nurse",
    "patient": "patient",
    "script": "script",
    "completion": "completion",
}
_EDITS: dict[type[BaseModel], str] = {PatientLineView: "patient_edit", NurseLineView: "nurse_edit"}
# What a view holds from an episode's beginning to its end: all that the system message may show.
_STAYS = ("algorithm", "persona", "appearance")
_STATIC = {*_STAYS, "facts"}
# Where a template begins a new message: a line of its own. An example of an answer is shown that way.
_NEW_MESSAGE = re.compile(r"^\[\[(user|assistant)\]\]$", re.MULTILINE)
# What each of the last episodes' system messages were made of, and they themselves.
_openings: dict[tuple[str, str, int], tuple[Any, list[Any], list[tuple[str, str]]]] = {}
_MOST_OPENINGS = 4096
_NO_MARKS = str.maketrans({"<": "‹", ">": "›", "[": "(", "]": ")"})


def render(view: View, prompts: PromptSet) -> list[dict[str, str]]:
    """The chat messages that ask for the answer to a view: the system's, examples if any, the step's.

    A step's template sees the view's fields; an edit's those of the line, and `critique`.
    """
    if isinstance(view, EditView):
        seen: View = view.line
        purpose, known = _EDITS[type(seen)], {**seen.__dict__, "critique": view.critique}
    else:
        seen, purpose, known = view, _PURPOSES[type(view)], view.__dict__
    template = _template(prompts, f"{purpose}_step")
    # As `template.render` does, without its copies of what is known, which take a fifth of a call's time.
    environment = template.environment
    everything = {**environment.globals, **known}
    context = environment.context_class(environment, everything, template.name, template.blocks)
    try:
        step = "".join(template.root_render_func(context))
    except (jinja2.TemplateError, TypeError) as error:
        raise InputError(f"resources/prompts/{template.name}: {error}") from None
    parts = [*_opening(seen, prompts, purpose), *_messages("user", step)]
    return [{"role": role, "content": content} for role, content in parts]


def prompts_digest(prompts: PromptSet, role: Asked | Literal["completion"]) -> str:
    """A hash of all templates that a role's prompts are made of, and of how the scales word a level for the patient.

    `completion` is what the judge of finished episodes is asked: it bears on no episode.
    """
    folders = [RESOURCES / "prompts" / name for name in ("full", prompts)]
    files: dict[str, Path] = {path.name: path for folder in folders for path in folder.glob("*.j2")}
    parts = {
        name: sha256(path.read_bytes()).hexdigest()
        for name, path in files.items()
        if "_" not in name or _ASKED.get(name.rpartition("_")[0], "judge") == role
    }
    return digest([parts, [load_yaml(f"scales/{scale}.yaml")["levels"] for scale in ("esi", "ats")]])


def unwell(algorithm: Literal["esi", "ats"], acuity: int) -> str:
    """How unwell a patient of this level feels, in plain words without a number."""
    text: str = load_yaml(f"scales/{algorithm}.yaml")["levels"][acuity]["unwell"]
    return text


@lru_cache(maxsize=2**14)
def as_data(text: str) -> str:
    """Text from a case or a model made safe for a prompt: one line, without the marks that structure prompts."""
    return " ".join(text.split()).translate(_NO_MARKS)


def lines(dialogue: Iterable[Spoken], nurse: str, patient: str) -> str:
    """A dialogue as data, one line an utterance, each after its speaker's name."""
    return "".join([_line(nurse if line.speaker == "nurse" else patient, line.text) for line in dialogue])


@lru_cache(maxsize=2**14)
def _line(speaker: str, text: str) -> str:
    return f"{speaker}: {as_data(text)}\n"


def fields(record: Mapping[str, str]) -> str:
    """A triage record as data, one line a field."""
    return "".join([f"- {name}: {as_data(text)}\n" for name, text in record.items()])


def taken(vitals: Mapping[str, str | None], unmeasured: str) -> str:
    """Vital signs as a sentence each, `unmeasured` where one has no value."""
    return " ".join([f"{name} {value or unmeasured}." for name, value in vitals.items()])


def manner(persona: Mapping[str, str], role: Role, shown_by_one_line: bool = False) -> str:
    """A persona with its behavioural anchors, one line a trait; only the traits that a single line shows, if wanted."""
    return _manner(tuple(persona.items()), role, shown_by_one_line)


@lru_cache(maxsize=2**14)
def _manner(persona: tuple[tuple[str, str], ...], role: Role, shown_by_one_line: bool) -> str:
    traits = registry(role).traits
    return "".join(
        f"- {name.replace('_', ' ')}: {level.replace('_', ' ')}. {anchor}\n"
        for name, (level, anchor) in anchors(role, dict(persona)).items()
        if traits[name].per_line or not shown_by_one_line
    )


def _opening(view: View, prompts: str, purpose: str) -> list[tuple[str, str]]:
    """The messages that stay the same through an episode.

    An episode's views share one `facts`, by which what was made before is found; that nothing else of what stays the
    same has changed is checked.
    """
    known = view.__dict__
    facts, stays = known.get("facts"), [known.get(name) for name in _STAYS]
    place = (prompts, purpose, id(facts))
    made = _openings.get(place)
    if made is None or made[0] is not facts or made[1] != stays:
        made = facts, stays, _system(prompts, purpose, view.model_dump_json(include=_STATIC))
        if len(_openings) >= _MOST_OPENINGS:
            _openings.pop(next(iter(_openings)), None)
        _openings[place] = made
    return made[2]


@lru_cache(maxsize=4096)
def _system(prompts: str, purpose: str, episode: str) -> list[tuple[str, str]]:
    """The messages that stay the same through an episode; `episode`: what they may show, as JSON."""
    template = _template(prompts, f"{purpose}_system")
    try:
        return _messages("system", template.render(json.loads(episode)))
    except (jinja2.TemplateError, TypeError) as error:
        raise InputError(f"resources/prompts/{template.name}: {error}") from None


def _messages(role: str, text: str) -> list[tuple[str, str]]:
    """A rendered template as one or more messages (role, content), the first with `role`."""
    if "[" not in text:
        return [(role, text.strip())]
    parts = [role, *_NEW_MESSAGE.split(text)]
    return [(name, content) for name, part in zip(parts[::2], parts[1::2], strict=True) if (content := part.strip())]


@cache
def _template(prompts: str, name: str) -> jinja2.Template:
    try:
        return _environment().select_template([f"{prompts}/{name}.j2", f"full/{name}.j2"])
    except jinja2.TemplateSyntaxError as error:
        raise InputError(f"resources/prompts/{error.name}, line {error.lineno}: {error.message}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"resources/prompts, {name}.j2: not UTF-8 ({error.reason}); save the file as UTF-8") from None


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(RESOURCES / "prompts"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        auto_reload=False,
    )
    environment.filters |= {"data": as_data, "lines": lines, "fields": fields, "taken": taken, "manner": manner}
    return environment
