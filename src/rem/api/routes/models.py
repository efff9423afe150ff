"""`/models`: the language models that can answer, in OpenAI's format."""

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
    """One language model."""

    id: str = Field(examples=["rem"])
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = Field(examples=["rem"])
    description: str | None = None


class ModelList(BaseModel):
    """All language models."""

    object: Literal["list"] = "list"
    data: list[ModelObject]


@router.get("", summary="List the models", operation_id="list_models")
async def get_models(settings: SettingsDep) -> ModelList:
    """List the models by name. Other models of a provider can be used as `provider:model`."""
    return ModelList(data=_list_models(settings))


@router.get("/{model:path}", summary="Get a model", responses=error_responses(404))
async def get_model(settings: SettingsDep, model: Annotated[str, Path(description="The model's id.")]) -> ModelObject:
    """Return one model of the list."""
    models = {known.id: known for known in _list_models(settings)}
    if model not in models:
        raise ModelNotFoundError(f"There is no model {model!r}: choose one of {', '.join(models)}.")
    return models[model]


def _list_models(settings: Settings) -> list[ModelObject]:
    return [
        ModelObject(id=card.id, owned_by=card.owned_by, description=card.description) for card in list_models(settings)
    ]
