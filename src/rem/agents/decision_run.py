"""DecisionRun: carry out or drop a request without a model, and say so."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from rem.agents.chat import ClientToolCall, FinishReason, Usage
from rem.agents.local.model import LOCAL_MODEL
from rem.agents.tool_gaps import ToolGapReport
from rem.errors import RemError
from rem.events import AnyEvent, TextEvent
from rem.models import Approval
from rem.tools.approved_calls import carry_out
from rem.tools.consent import Decision
from rem.tools.env import ToolEnv

REJECTED = "All right: nothing was changed."


class DecisionRun:
    """The answer to a decision on a request that no run of an agent waits for, or whose tool carries it out itself.

    No model takes part: none can confirm, and none repeats what is forgotten.
    """

    usage = Usage()
    tool_gaps: list[ToolGapReport] = []  # noqa: RUF012  # never changed
    approval: Approval | None = None
    client_calls: Sequence[ClientToolCall] = ()

    def __init__(
        self, env: ToolEnv, request: Approval | RemError, decision: Decision, agent: str, *, raises: bool = False
    ) -> None:
        """Prepare the answer. `request` may be the error of a search for it. With `raises`, errors are raised."""
        self.agent = agent
        self.model = LOCAL_MODEL
        self.finish_reason: FinishReason = "stop"
        self.output: dict[str, Any] | None = None
        self._env = env
        self._request = request
        self._decision = decision
        self._raises = raises

    async def events(self) -> AsyncGenerator[AnyEvent]:
        """Carry out the decision, and yield the answer. An error becomes the answer: nothing was changed then."""
        try:
            text = await self._decide()
        except RemError as error:
            if self._raises:
                raise
            text = f"Nothing was changed. {error}"
        yield TextEvent(content=text, agent=self.agent)

    async def _decide(self) -> str:
        if isinstance(self._request, RemError):
            raise self._request
        if not self._decision.is_approved:
            approvals = self._env.rem.approvals(self._env.scope)
            await approvals.reject(self._request, by=self._decision.by, reason=self._decision.reason)
            return REJECTED
        result = await carry_out(self._env, self._request, self._decision)
        return str(result.get("summary") or f"Done: {self._request.tool_name}.")
