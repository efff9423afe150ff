"""`/models`: which language models answer, in OpenAI's shape."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from rem.agents.model_registry import list_models
from rem.api.dependencies import SettingsDep
from rem.api.openapi_errors import error_responses
from rem.errors import ModelNotFoundError
from rem.settings import Settings

router = APIRouter(prefix="/models", tags=["models"])


class ModelObject(BaseModel):
    """A model."""

    id: str = Field(examples=["rem"])
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = Field(examples=["rem"])
    description: str | None = None


class ModelList(BaseModel):
    """The models."""

    object: Literal["list"] = "list"
    data: list[ModelObject]


@router.get("", summary="List the models")
async def get_models(settings: SettingsDep) -> ModelList:
    """The models that answer here by name. Others that a provider has can be named as `provider:model`."""
    return ModelList(data=_models(settings))


@router.get("/{model:path}", summary="Get a model", responses=error_responses(404))
async def get_model(settings: SettingsDep, model: Annotated[str, Path(description="The model's id.")]) -> ModelObject:
    """One of the models that the list shows."""
    models = _models(settings)
    for known in models:
        if known.id == model:
            return known
    raise ModelNotFoundError(f"There is no model {model!r} here: there are {', '.join(each.id for each in models)}.")


def _models(settings: Settings) -> list[ModelObject]:
    return [
        ModelObject(id=card.id, owned_by=card.owned_by, description=card.description) for card in list_models(settings)
    ]
