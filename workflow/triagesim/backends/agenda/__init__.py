"""No language model: a nurse that follows the scale's decision points, a patient that answers from its script, a
dialogue master that judges by rules.

The baseline that every model is compared with. It reads views in place of prompts, and is never presented as a
language model.
"""

from __future__ import annotations

from typing import Any, Literal

from triagesim.backends.agenda.master import judge
from triagesim.backends.agenda.nurse import step
from triagesim.backends.agenda.patient import reply
from triagesim.requests import Answer, Completion, Request
from triagesim.views import MasterView, NurseView, PatientView

#: Bumped by hand whenever the same view and seed would give another answer; `tests/test_agenda.py` says when.
RULES = 2


class Agenda:
    """The backend `agenda`."""

    model = "agenda"
    local = True
    reads: Literal["view"] = "view"
    label = "baseline without a language model"
    spare = True

    def __init__(self) -> None:
        self.identity: dict[str, Any] = {"backend": "agenda", "rules": RULES}

    async def start(self) -> None:
        """Nothing to load."""

    async def complete(self, request: Request) -> Completion:
        """Answer from the request's view; the same view and seed give the same answer.

        Raises:
            TypeError: the view is no nurse's, patient's or master's.
        """
        return Completion(text=self._answer(request).model_dump_json(), model=self.model)

    async def close(self) -> None:
        """Nothing to free."""

    def _answer(self, request: Request) -> Answer:
        match request.view:
            case NurseView() as view:
                return step(view, request.seed)
            case PatientView() as view:
                return reply(view, request.seed)
            case view if isinstance(view, MasterView):
                return judge(view, request.seed)
        raise TypeError(
            f"the agenda answers nurse or patient views and the master's, not {type(request.view).__name__}"
        )
