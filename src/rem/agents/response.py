"""AgentResponse: the answer of an agent as JSON, with its confidence and its tool calls."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from rem.agents.chat import AgentAnswer
from rem.agents.tool_gaps import ToolGapReport
from rem.errors import ModelError
from rem.models.field_types import utc_now

UNSTATED_CONFIDENCE = 0.5
"""Confidence of an answer whose agent stated none: neither sure nor unsure."""


class ToolCall(BaseModel):
    """One tool call of the agent."""

    model_config = ConfigDict(extra="allow")

    name: str
    args: Any = None
    result: Any = None


class TokenUsage(BaseModel):
    """The number of tokens of the answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class AgentResponse(BaseModel):
    """The answer of an agent. The answer is not empty, and it has a confidence."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "answer": "Sarah Chen leads the API team.",
                "reasoning": None,
                "tool_calls": [{"name": "lookup", "args": {"key": "sarah-chen"}, "result": {"count": 1}}],
                "confidence": 0.95,
                "timestamp": "2026-11-15T10:00:00Z",
                "agent": "rem",
                "model": "openai:gpt-4o",
                "session_id": "0b0c9c53-0a0e-4d51-8b2e-0b3b4a1c9f10",
                "usage": {"prompt_tokens": 150, "completion_tokens": 12, "total_tokens": 162},
            }
        }
    )

    answer: str = Field(min_length=1)
    reasoning: str | None = Field(default=None, description="The reasoning of the model before its answer.")
    tool_calls: list[ToolCall] = Field(default_factory=list)
    confidence: float = Field(
        ge=0, le=1, description=f"The confidence that the agent stated; {UNSTATED_CONFIDENCE} if it stated none."
    )
    timestamp: datetime = Field(default_factory=utc_now)
    output: dict[str, Any] | None = Field(default=None, description="The fields of an agent with structured output.")
    agent: str
    model: str
    session_id: str | None = Field(default=None, description="The session that stores the answer.")
    message_id: str | None = None
    usage: TokenUsage
    tool_gaps: list[ToolGapReport] = Field(
        default_factory=list, description="Tools that the agents called but do not have."
    )

    @field_validator("answer")
    @classmethod
    def _refuse_empty(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty")
        return value

    @classmethod
    def from_answer(cls, answer: AgentAnswer) -> AgentResponse:
        """Return the response for an answer. Raise ModelError if the agent said nothing."""
        if not answer.text.strip():
            raise ModelError(f"The agent {answer.agent} gave no answer: ask again, or choose another model.")
        usage = answer.usage
        return cls(
            answer=answer.text,
            reasoning=answer.reasoning,
            tool_calls=[ToolCall.model_validate(call) for call in answer.tool_calls],
            confidence=_find_confidence(answer),
            output=answer.output,
            agent=answer.agent,
            model=answer.model,
            session_id=answer.session_id,
            message_id=answer.message_id,
            usage=TokenUsage(
                prompt_tokens=usage.input_tokens, completion_tokens=usage.output_tokens, total_tokens=usage.total_tokens
            ),
            tool_gaps=answer.tool_gaps,
        )


def _find_confidence(answer: AgentAnswer) -> float:
    """Return the confidence of the agent's note, or else that in its structured output."""
    if answer.confidence is not None:
        return answer.confidence
    stated = (answer.output or {}).get("confidence")
    is_share = isinstance(stated, int | float) and not isinstance(stated, bool) and 0 <= stated <= 1
    return float(stated) if is_share and stated is not None else UNSTATED_CONFIDENCE
