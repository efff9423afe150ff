"""Note: what an agent says of its own answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rem.errors import InvalidInputError
from rem.events import MetadataEvent
from rem.models.values import JsonObject

Confidence: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Keys: TypeAlias = Annotated[list[Annotated[str, Field(max_length=2000)]], Field(max_length=200)]
RiskLevel: TypeAlias = Literal["low", "moderate", "high", "critical", "green", "yellow", "orange", "red"]
RiskScore: TypeAlias = Annotated[int, Field(ge=0, le=100)]
SessionName: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]


class Note(BaseModel):
    """What is worth keeping of a turn: how sure the answer is, and what it rests on."""

    model_config = ConfigDict(extra="forbid")

    confidence: Confidence | None = None
    references: Keys | None = None
    sources: Keys | None = None
    flags: Keys | None = None
    risk_level: RiskLevel | None = None
    risk_score: RiskScore | None = None
    session_name: SessionName | None = None
    extra: JsonObject | None = None

    def given(self) -> dict[str, Any]:
        """What was said."""
        return self.model_dump(exclude_none=True)

    def event(self, session_id: str | None) -> MetadataEvent:
        """The note as the user's client gets it."""
        return MetadataEvent(session_id=session_id, **self.given())


def checked(model: type[Note], values: dict[str, Any], what: str) -> Note:
    """The note that these values are; an InvalidInputError names what is wrong with them."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InvalidInputError(f"{what} is not valid. {explained(error)}") from error


def explained(error: ValidationError) -> str:
    """What is wrong, field by field."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    return " ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'value'}: {problem['msg']}." for problem in problems[:5]
    )
