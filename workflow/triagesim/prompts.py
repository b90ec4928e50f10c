"""Renders what a role sees into chat messages, from the templates in `resources/prompts/`.

Order: fixed instructions, the scale, the persona and the arrival facts in the system message; then, in the user
message, the dialogue and after it what changes at each step. So a later call of a role extends an earlier one up to the
first new line of dialogue, which an engine's prefix cache makes cheap.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any, Literal

import jinja2

from triagesim.jsonl import digest
from triagesim.personas import anchors
from triagesim.resources import RESOURCES, load_yaml
from triagesim.views import Facts, NurseView, PatientView

PromptSet = Literal["full", "compact"]
_Speaker = Literal["nurse", "patient"]
_Traits = tuple[tuple[str, str], ...]
#: Where a template begins a new message: a line of its own. An example of an answer is shown that way.
_NEW_MESSAGE = re.compile(r"^\[\[(user|assistant)\]\]$", re.MULTILINE)
_NO_MARKS = str.maketrans({"<": "‹", ">": "›", "[": "(", "]": ")"})


def render(view: NurseView | PatientView, prompts: PromptSet) -> list[dict[str, str]]:
    """The chat messages that ask for the next answer of the view's role: the system's, examples if any, the step's."""
    role: _Speaker = "nurse" if isinstance(view, NurseView) else "patient"
    algorithm = view.algorithm if isinstance(view, NurseView) else None
    system = _system(prompts, role, algorithm, tuple(view.persona.items()), view.facts)
    user = _environment().get_template(f"{prompts}/{role}_step.j2").render(view=view)
    return [*_messages("system", system), *_messages("user", user)]


def prompts_digest(prompts: PromptSet) -> str:
    """A hash of all templates of a set, and of how the scales word a level for the patient."""
    parts = [path.read_bytes() for path in sorted((RESOURCES / "prompts" / prompts).glob("*.j2"))]
    wording = [load_yaml(f"scales/{scale}.yaml")["levels"] for scale in ("esi", "ats")]
    return digest([[sha256(part).hexdigest() for part in parts], wording])


def unwell(algorithm: Literal["esi", "ats"], acuity: int) -> str:
    """How unwell a patient of this level feels, in plain words without a number."""
    text: str = load_yaml(f"scales/{algorithm}.yaml")["levels"][acuity]["unwell"]
    return text


def as_data(text: Any) -> str:
    """Text from a case or a model made safe for a prompt: one line, without the marks that structure prompts."""
    return " ".join(str(text).split()).translate(_NO_MARKS)


@lru_cache(maxsize=4096)
def _system(prompts: str, role: _Speaker, algorithm: str | None, traits: _Traits, facts: Facts) -> str:
    """The part that stays the same through an episode."""
    persona = [
        (name.replace("_", " "), level.replace("_", " "), anchor)
        for name, (level, anchor) in anchors(role, dict(traits)).items()
    ]
    template = _environment().get_template(f"{prompts}/{role}_system.j2")
    return template.render(facts=facts, algorithm=algorithm, persona=persona).strip()


def _messages(role: str, text: str) -> list[dict[str, str]]:
    """A rendered template as one or more messages, the first with `role`."""
    parts = [role, *_NEW_MESSAGE.split(text)]
    contents = zip(parts[::2], map(str.strip, parts[1::2]), strict=True)
    return [{"role": name, "content": content} for name, content in contents if content]


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(RESOURCES / "prompts"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["data"] = as_data
    return environment
