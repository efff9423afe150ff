"""`/entities`: list, read, create, change, delete and restore the rows of all tables."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from rem.api.dependencies import JsonBody, RemDep, ScopeDep
from rem.api.entity_patch import apply_patch, build_entity, check_if_match, entity_etag
from rem.api.openapi_errors import error_responses
from rem.api.pagination import Page, WindowDep, make_rows_response
from rem.api.row_lookup import EraseOption, delete_row, find_deleted_row, find_own_row, find_row
from rem.db.conditions import And, Condition
from rem.db.store import Store
from rem.errors import ConflictError, DeletedError, InvalidInputError, NotFoundError
from rem.forget.expiry import adopt_expiring_row
from rem.models import Approval, Entity
from rem.query.parser import check_query_length
from rem.query.syntax_errors import ParseError, to_syntax_error
from rem.query.where import parse_condition

router = APIRouter(tags=["entities"])

EXAMPLE_FIELDS: dict[str, Any] = {
    "name": "Sarah Chen",
    "email": "sarah@example.com",
    "summary": "Leads the API team.",
    "graph_edges": [{"dst": "api-team", "rel_type": "leads"}],
}
EXAMPLE_ENTITY: dict[str, Any] = {
    "table": "users",
    "id": "0198f6c2-7b7a-7cc0-8d1e-3c2f5b1e9a10",
    "key": "sarah-chen",
    "tenant_id": "default",
    "user_id": None,
    "created_at": "2026-11-15T09:30:00Z",
    "updated_at": "2026-11-15T09:30:00Z",
    **EXAMPLE_FIELDS,
}


class EntityView(BaseModel):
    """A stored entity: the common fields, and those of its table."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"example": EXAMPLE_ENTITY})

    table: str
    id: str
    key: str | None
    tenant_id: str
    user_id: str | None = Field(description="The owner; null if the workspace shares the row.")
    created_at: str
    updated_at: str
    deleted_at: str | None = None


class EntityTable(BaseModel):
    """One table of entities."""

    name: str
    description: str
    fields: dict[str, Any] = Field(description="The JSON schema of each field.")
    required: list[str]
    key_fields: list[str] = Field(description="The fields that identify a row, the natural key first.")


async def _get_table(
    table: Annotated[str, Path(description="The table, such as `users`; `GET /entities` lists them.")],
    rem: RemDep,
    scope: ScopeDep,
) -> tuple[Store, type[Entity]]:
    store = rem.for_user(scope).store
    if table not in store.types.models:
        async with rem.database.connection() as connection:
            # Another process may have registered the table in the meantime.
            await store.types.refresh(connection)
    try:
        return store, store.types.get_model(table)
    except InvalidInputError as error:
        raise NotFoundError(str(error)) from error


TableDep = Annotated[tuple[Store, type[Entity]], Depends(_get_table)]


async def _get_changeable_table(entities: TableDep) -> tuple[Store, type[Entity]]:
    """Return the table. Refuse requests for approval: what was asked and decided must not be rewritten."""
    if entities[1] is Approval:
        raise InvalidInputError(
            "Requests for approval are made by agents: decide on one with POST /api/v1/approvals/{approval}/decision."
        )
    return entities


ChangeableTableDep = Annotated[tuple[Store, type[Entity]], Depends(_get_changeable_table)]
EntityName = Annotated[str, Path(description="The row's key, such as `sarah-chen`, or its id.")]
IfMatch = Annotated[
    str | None, Header(description="The ETag that was read; the server answers 412 if the entity has changed since.")
]


@router.get("/entities", summary="List the tables")
async def list_tables(rem: RemDep, scope: ScopeDep) -> Page[EntityTable]:
    """List the tables of this memory with their fields."""
    models = rem.for_user(scope).store.types.models
    return Page(data=[_describe_table(name, models[name]) for name in sorted(models)])


@router.get(
    "/entities/{table}", response_model=Page[EntityView], summary="List entities", responses=error_responses(404)
)
async def list_entities(
    entities: TableDep,
    window: WindowDep,
    where: Annotated[
        str | None,
        Query(
            description="A condition of the query language.",
            examples=["tags CONTAINS 'vip' AND created_at > '2026'"],
        ),
    ] = None,
    order_by: Annotated[
        str,
        Query(
            description="The fields to sort by; `-` before a field sorts in descending order.",
            examples=["name, -created_at"],
        ),
    ] = "-created_at",
    with_deleted: Annotated[bool, Query(description="Include deleted rows that can be restored.")] = False,
) -> Response:
    """List the caller's own rows of a table and the shared ones."""
    store, model = entities
    rows = await store.find(
        model,
        _parse_where(where),
        order_by=order_by,
        limit=window.fetch_limit,
        offset=window.offset,
        with_deleted=with_deleted,
    )
    page = window.slice_page(rows)
    return await make_rows_response({"object": "list", **page}, "data", _as_json)


@router.post(
    "/entities/{table}",
    status_code=201,
    summary="Create an entity",
    responses=error_responses(404, 409),
    dependencies=[JsonBody],
)
async def create_entity(
    entities: ChangeableTableDep, fields: Annotated[dict[str, Any], Body(examples=[EXAMPLE_FIELDS])], response: Response
) -> EntityView:
    """Create an entity of the caller. If its key or id exists, the answer is 409: change that entity instead."""
    store, model = entities
    entity = build_entity(model, fields)
    async with store.transaction() as transaction:
        written = (await transaction.upsert_many([entity])).rows[0]
        if written.outcome == "deleted":
            raise DeletedError(f"{written.key!r} was deleted: restore it (id {written.id}), or choose another name.")
        if written.outcome != "inserted":
            raise ConflictError(f"{written.key!r} exists already (id {written.id}): change it with PATCH.")
        stored = await transaction.get(model, written.id)
    return _to_response(stored, response)


@router.get("/entities/{table}/{key:path}", summary="Get an entity", responses=error_responses(404))
async def get_entity(entities: TableDep, key: EntityName, response: Response) -> EntityView:
    """Return one entity by key or id, the caller's own before a shared one. Its ETag can be sent as If-Match."""
    return _to_response(await find_row(*entities, key), response)


@router.patch(
    "/entities/{table}/{key:path}",
    summary="Change an entity",
    responses=error_responses(404, 409, 412),
    dependencies=[JsonBody],
)
async def change_entity(
    entities: ChangeableTableDep,
    key: EntityName,
    fields: Annotated[dict[str, Any], Body(examples=[{"summary": "Leads the API team since May."}])],
    response: Response,
    if_match: IfMatch = None,
) -> EntityView:
    """Change some fields of one of the caller's own entities; the other fields stay unchanged.

    An `updated_at` among the fields works like If-Match. Therefore a client can send back the entity that it read.
    """
    store, model = entities
    row = await find_own_row(store, model, key)

    def change(stored: Entity) -> Entity:
        check_if_match(stored, if_match)
        return apply_patch(stored, fields)

    async with store.transaction() as transaction:
        written = await transaction.modify(model, row.id, change)
        if "expires_at" in fields:
            await adopt_expiring_row(transaction, written)
    return _to_response(written, response)


@router.delete(
    "/entities/{table}/{key:path}",
    status_code=204,
    summary="Delete an entity",
    responses=error_responses(404, 409, 412),
)
async def delete_entity(
    entities: TableDep,
    key: EntityName,
    erase: EraseOption = False,
    if_match: IfMatch = None,
) -> None:
    """Delete one of the caller's own entities. It can be restored, unless it is erased."""
    await delete_row(*entities, key, erase=erase, check=lambda row: check_if_match(row, if_match))


@router.post("/restore/{table}/{key:path}", summary="Restore an entity", responses=error_responses(404, 409))
async def restore_entity(entities: ChangeableTableDep, key: EntityName, response: Response) -> EntityView:
    """Restore one of the caller's own deleted entities under its old id."""
    store, model = entities
    deleted = await find_deleted_row(store, model, key)
    return _to_response(await store.restore(model, deleted.id), response)


def _to_response(entity: Entity, response: Response) -> EntityView:
    response.headers["ETag"] = entity_etag(entity)
    return to_view(entity)


def to_view(entity: Entity) -> EntityView:
    """Return an entity as the API shows it."""
    return EntityView.model_validate(_as_json(entity))


def _as_json(entity: Entity) -> dict[str, Any]:
    return {"table": entity.entity_type.table, **entity.model_dump(mode="json")}


def _parse_where(where: str | None) -> Condition:
    if where is None:
        return And([])
    check_query_length(where)
    try:
        return parse_condition(where)
    except ParseError as problem:
        raise to_syntax_error(where, problem, None) from None


def _describe_table(name: str, model: type[Entity]) -> EntityTable:
    schema = model.model_json_schema()
    return EntityTable(
        name=name,
        description=" ".join((model.__doc__ or "").split()),
        fields=schema["properties"],
        required=schema.get("required", []),
        key_fields=list(model.entity_type.key_fields),
    )
