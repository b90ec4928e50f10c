"""The typed answers of the nurse and the patient, narrowed to what a step allows."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, create_model, model_validator

from triagesim.cases import Vital
from triagesim.requests import Answer

Action = Literal["check_vital", "log_red_flag", "utterance", "end"]
Level = Literal[1, 2, 3, 4, 5]
Confidence = Literal["low", "medium", "high"]

#: Red flags that one step may log.
MAX_FLAGS = 5
_Spoken = Annotated[str, Field(min_length=1)]


def not_blank(text: str) -> str:
    """The text, if it says anything.

    Raises:
        ValueError: it holds spaces alone.
    """
    if not text.strip():
        raise ValueError("holds no words")
    return text


class NurseStep(Answer):
    """One nurse action with its reasoning, which comes before the level so that it can bear on it.

    Attributes:
        understood: what the last reply told the nurse, in the first step after it; else null.
        vital: which one, with `check_vital` only.
        utterance: said aloud: the question, the closing line, or words while taking a vital.
        red_flags: newly noticed ones, with `log_red_flag` only.
    """

    understood: str | None
    action: Action
    vital: Vital | None
    utterance: str | None
    red_flags: Annotated[list[_Spoken], Field(max_length=MAX_FLAGS)]
    explanation: _Spoken
    triage: Level
    confidence: Confidence

    @model_validator(mode="after")
    def _whole_action(self) -> Self:
        if self.action == "check_vital" and self.vital is None:
            raise ValueError("check_vital needs the name of a vital")
        if self.action in ("utterance", "end") and not (self.utterance or "").strip():
            raise ValueError(f"{self.action} needs words in utterance")
        return self

    @classmethod
    def grammar(cls) -> dict[str, Any]:
        """One branch an action, so that a constrained decoder can't leave out what the action needs."""
        schema = cls.model_json_schema()
        fields = schema["properties"]
        branches = []
        for action in fields["action"]["enum"] if "enum" in fields["action"] else [fields["action"]["const"]]:
            branch = {**fields, "action": {"const": action}, "vital": {"type": "null"}}
            branch["red_flags"] = {"type": "array", "items": {"type": "string"}, "maxItems": 0}
            branch["utterance"] = {"type": "string", "minLength": 1}
            if action == "check_vital":
                branch["vital"] = {"enum": [name for name in _names(fields["vital"]) if name]}
                branch["utterance"] = {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}]}
            elif action == "log_red_flag":
                branch["red_flags"] = {**fields["red_flags"], "minItems": 1}
                branch["utterance"] = {"type": "null"}
            branches.append({**schema, "properties": branch})
        return {"anyOf": branches}


class PatientReply(Answer):
    """What the patient says, and its own account in one sentence of what that revealed."""

    utterance: Annotated[_Spoken, AfterValidator(not_blank)]
    disclosed: str


@lru_cache(maxsize=512)
def nurse_step(actions: tuple[Action, ...], vitals: tuple[Vital, ...], heard_reply: bool) -> type[NurseStep]:
    """The nurse's answer type for one step: only these actions and vitals, `understood` only after a reply."""
    action: Any = Literal[actions]
    vital: Any = Literal[(*vitals, None)] if "check_vital" in actions else None
    return create_model(
        "NurseStep",
        __base__=NurseStep,
        __module__=__name__,
        understood=(str if heard_reply else None, ...),
        action=(action, ...),
        vital=(vital, ...),
    )


def _names(schema: dict[str, Any]) -> list[str | None]:
    return list(schema.get("enum") or [schema.get("const")])
