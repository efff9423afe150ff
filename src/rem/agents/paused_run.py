"""PausedRun: everything that a run of an agent needs to go on after a decision, in any process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict
from pydantic_ai import DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.messages import ModelMessage

from rem.agents.json_safe import to_json_safe
from rem.tools.binding import APPROVAL_ID
from rem.tools.consent import Decision

ONE_AT_A_TIME = "The user is asked about one action at a time. Call this again if it is still needed."


class PausedRun(BaseModel):
    """The state of a run that waits for a decision on one of its tool calls."""

    # Built when a run pauses: the validators of all kinds of messages take long, and each start would wait for them.
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", defer_build=True)

    agent: str
    model: str
    is_model_chosen: bool
    model_settings: dict[str, Any]
    message: str
    """The message of the user."""
    instructions: list[str]
    """The instructions beside those of the agent."""
    messages: list[ModelMessage]
    """The messages of the run, with those before it. The last response has the call that waits."""
    call_id: str
    other_call_ids: list[str]
    """Further calls of the same response that need consent."""
    client_call_ids: list[str] = []
    """Calls of the same response that the client would have carried out."""

    def to_json(self) -> str:
        """Return the state as JSON. Half characters, which a model may write, are replaced."""
        return orjson.dumps(to_json_safe(self.model_dump(mode="json"))).decode()

    def make_results(
        self, approval_id: str, decision: Decision, recorded: Mapping[str, Any] | None
    ) -> DeferredToolResults:
        """Return the decision for the library, which runs the approved call or tells the model of the rejection.

        The approved call gets the `recorded` arguments: those of this decision may differ after a crash.
        """
        answer: ToolApproved | ToolDenied
        if recorded is not None:
            answer = ToolApproved(override_args=dict(recorded))
        else:
            reason = f" The user says: {decision.reason}" if decision.reason else ""
            answer = ToolDenied(f"The user rejected this action. Nothing was done.{reason}")
        others = {call_id: ToolDenied(ONE_AT_A_TIME) for call_id in self.other_call_ids}
        return DeferredToolResults(
            calls=dict.fromkeys(self.client_call_ids, ONE_AT_A_TIME),
            approvals={self.call_id: answer, **others},
            metadata={self.call_id: {APPROVAL_ID: approval_id}},
        )
