"""REM: Resources, Entities, Moments. A memory for AI agents, on PostgreSQL.

Everything that users may import is exported here. Names are imported when they are first used, so that `import rem`
costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rem.agents.catalog import load_built_in_evaluators
    from rem.agents.chat import AgentAnswer, AgentRequest
    from rem.agents.response import AgentResponse
    from rem.agents.schema import AgentSchema
    from rem.agents.service import Agents
    from rem.agents.tool_gaps import ToolGapReport
    from rem.app import Rem
    from rem.context import AgentContext, Scope
    from rem.db.conditions import And, Between, Compare, In, IsNull, Not, Or
    from rem.db.store import Match, Store
    from rem.dreaming.dreamer import Dreamer, DreamReport
    from rem.embeddings import Embedder
    from rem.errors import (
        AgentNotFoundError,
        AudioError,
        ConflictError,
        CorruptRowError,
        DatabaseError,
        DatabaseUnavailableError,
        DatabaseUnsupportedError,
        DeletedError,
        EmbeddedServerError,
        EmbeddingDisabledError,
        EmbeddingError,
        EmbeddingMisconfiguredError,
        EmbeddingMismatchError,
        EmbeddingUnavailableError,
        EncryptionError,
        FetchError,
        FetchForbiddenError,
        FetchRefusedError,
        FileEmptyError,
        FileMissingError,
        FileTooLargeError,
        FileUnreadableError,
        ImmutableError,
        InvalidAgentError,
        InvalidInputError,
        MemoryDisabledError,
        MigrationError,
        MissingExtraError,
        ModelError,
        ModelNotFoundError,
        ModelRateLimitError,
        ModelRequiredError,
        ModelTimeoutError,
        NotFoundError,
        QueryLimitError,
        QuerySyntaxError,
        QueryTimeoutError,
        RemError,
        RerankerError,
        RunLimitError,
        ServerStoppingError,
        SettingsError,
        ToolFailedError,
    )
    from rem.evals.evaluators import Evaluator
    from rem.evals.experiment_report import summarize_run
    from rem.evals.experiments import Experiments
    from rem.evals.golden_sets import GoldenCase, GoldenSet
    from rem.evals.phoenix import PhoenixClient, create_evaluator_from_schema, run_evaluation_experiment
    from rem.evals.targets import FunctionTarget
    from rem.forgetting.erase_user import EraseReport
    from rem.forgetting.forget import ForgetReport
    from rem.forgetting.forget_plan import ForgetPlan
    from rem.ingest.models import FileOutcome, IngestOptions, IngestReport
    from rem.ingest.runs import IngestRun, UndoReport
    from rem.jobs.queue import JobQueue
    from rem.memory.history import SessionHistory
    from rem.memory.manager import MemoryManager
    from rem.memory.message import NewMessage
    from rem.models import (
        Approval,
        ApprovalStatus,
        Document,
        Edge,
        Entity,
        EntityType,
        Feedback,
        File,
        Message,
        Moment,
        Ontology,
        OntologyConfig,
        ProcessingStatus,
        Resource,
        RiskLevel,
        Role,
        Schema,
        SchemaKind,
        Session,
        SharedSession,
        ToolGap,
        User,
    )
    from rem.query.language.parser import parse_query
    from rem.query.language.printer import print_query
    from rem.query.plans.plan import Plan, PlanResult
    from rem.query.result import QueryResult
    from rem.query.syntax_tree import Fuzzy, Lookup, Query, Search, Sql, Traverse
    from rem.settings import Settings, get_settings
    from rem.tagging.tagger import get_tagger

_EXPORTS = {
    "rem.app": ("Rem",),
    "rem.agents.chat": (
        "AgentAnswer",
        "AgentRequest",
    ),
    "rem.agents.response": ("AgentResponse",),
    "rem.agents.schema": ("AgentSchema",),
    "rem.agents.service": ("Agents",),
    "rem.agents.tool_gaps": ("ToolGapReport",),
    "rem.context": (
        "AgentContext",
        "Scope",
    ),
    "rem.db.conditions": (
        "And",
        "Between",
        "Compare",
        "In",
        "IsNull",
        "Not",
        "Or",
    ),
    "rem.db.store": (
        "Match",
        "Store",
    ),
    "rem.dreaming.dreamer": (
        "DreamReport",
        "Dreamer",
    ),
    "rem.embeddings": ("Embedder",),
    "rem.errors": (
        "AgentNotFoundError",
        "AudioError",
        "ConflictError",
        "CorruptRowError",
        "DatabaseError",
        "DatabaseUnavailableError",
        "DatabaseUnsupportedError",
        "DeletedError",
        "EmbeddedServerError",
        "EmbeddingDisabledError",
        "EmbeddingError",
        "EmbeddingMisconfiguredError",
        "EmbeddingMismatchError",
        "EmbeddingUnavailableError",
        "EncryptionError",
        "FetchError",
        "FetchForbiddenError",
        "FetchRefusedError",
        "FileEmptyError",
        "FileMissingError",
        "FileTooLargeError",
        "FileUnreadableError",
        "ImmutableError",
        "InvalidAgentError",
        "InvalidInputError",
        "MemoryDisabledError",
        "MigrationError",
        "MissingExtraError",
        "ModelError",
        "ModelNotFoundError",
        "ModelRateLimitError",
        "ModelRequiredError",
        "ModelTimeoutError",
        "NotFoundError",
        "QueryLimitError",
        "QuerySyntaxError",
        "QueryTimeoutError",
        "RemError",
        "RerankerError",
        "RunLimitError",
        "ServerStoppingError",
        "SettingsError",
        "ToolFailedError",
    ),
    "rem.agents.catalog": ("load_built_in_evaluators",),
    "rem.evals.evaluators": ("Evaluator",),
    "rem.evals.experiment_report": ("summarize_run",),
    "rem.evals.experiments": ("Experiments",),
    "rem.evals.golden_sets": (
        "GoldenCase",
        "GoldenSet",
    ),
    "rem.evals.phoenix": (
        "PhoenixClient",
        "create_evaluator_from_schema",
        "run_evaluation_experiment",
    ),
    "rem.evals.targets": ("FunctionTarget",),
    "rem.tagging.tagger": ("get_tagger",),
    "rem.forgetting.erase_user": ("EraseReport",),
    "rem.forgetting.forget": ("ForgetReport",),
    "rem.forgetting.forget_plan": ("ForgetPlan",),
    "rem.ingest.runs": ("IngestRun", "UndoReport"),
    "rem.ingest.models": (
        "FileOutcome",
        "IngestOptions",
        "IngestReport",
    ),
    "rem.jobs.queue": ("JobQueue",),
    "rem.memory.history": ("SessionHistory",),
    "rem.memory.manager": ("MemoryManager",),
    "rem.memory.message": ("NewMessage",),
    "rem.models": (
        "Approval",
        "ApprovalStatus",
        "Document",
        "Edge",
        "Entity",
        "EntityType",
        "Feedback",
        "File",
        "Message",
        "Moment",
        "Ontology",
        "OntologyConfig",
        "ProcessingStatus",
        "Resource",
        "RiskLevel",
        "Role",
        "Schema",
        "SchemaKind",
        "Session",
        "SharedSession",
        "ToolGap",
        "User",
    ),
    "rem.query.language.parser": ("parse_query",),
    "rem.query.language.printer": ("print_query",),
    "rem.query.plans.plan": (
        "Plan",
        "PlanResult",
    ),
    "rem.query.result": ("QueryResult",),
    "rem.query.syntax_tree": (
        "Fuzzy",
        "Lookup",
        "Query",
        "Search",
        "Sql",
        "Traverse",
    ),
    "rem.settings": (
        "Settings",
        "get_settings",
    ),
}
"""The public names by module."""
_MODULES = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = [
    "AgentAnswer",
    "AgentContext",
    "AgentNotFoundError",
    "AgentRequest",
    "AgentResponse",
    "AgentSchema",
    "Agents",
    "And",
    "Approval",
    "ApprovalStatus",
    "AudioError",
    "Between",
    "Compare",
    "ConflictError",
    "CorruptRowError",
    "DatabaseError",
    "DatabaseUnavailableError",
    "DatabaseUnsupportedError",
    "DeletedError",
    "Document",
    "DreamReport",
    "Dreamer",
    "Edge",
    "EmbeddedServerError",
    "Embedder",
    "EmbeddingDisabledError",
    "EmbeddingError",
    "EmbeddingMisconfiguredError",
    "EmbeddingMismatchError",
    "EmbeddingUnavailableError",
    "EncryptionError",
    "Entity",
    "EntityType",
    "EraseReport",
    "Evaluator",
    "Experiments",
    "Feedback",
    "FetchError",
    "FetchForbiddenError",
    "FetchRefusedError",
    "File",
    "FileEmptyError",
    "FileMissingError",
    "FileOutcome",
    "FileTooLargeError",
    "FileUnreadableError",
    "ForgetPlan",
    "ForgetReport",
    "FunctionTarget",
    "Fuzzy",
    "GoldenCase",
    "GoldenSet",
    "ImmutableError",
    "In",
    "IngestOptions",
    "IngestReport",
    "IngestRun",
    "InvalidAgentError",
    "InvalidInputError",
    "IsNull",
    "JobQueue",
    "Lookup",
    "Match",
    "MemoryDisabledError",
    "MemoryManager",
    "Message",
    "MigrationError",
    "MissingExtraError",
    "ModelError",
    "ModelNotFoundError",
    "ModelRateLimitError",
    "ModelRequiredError",
    "ModelTimeoutError",
    "Moment",
    "NewMessage",
    "Not",
    "NotFoundError",
    "Ontology",
    "OntologyConfig",
    "Or",
    "PhoenixClient",
    "Plan",
    "PlanResult",
    "ProcessingStatus",
    "Query",
    "QueryLimitError",
    "QueryResult",
    "QuerySyntaxError",
    "QueryTimeoutError",
    "Rem",
    "RemError",
    "RerankerError",
    "Resource",
    "RiskLevel",
    "Role",
    "RunLimitError",
    "Schema",
    "SchemaKind",
    "Scope",
    "Search",
    "ServerStoppingError",
    "Session",
    "SessionHistory",
    "Settings",
    "SettingsError",
    "SharedSession",
    "Sql",
    "Store",
    "ToolFailedError",
    "ToolGap",
    "ToolGapReport",
    "Traverse",
    "UndoReport",
    "User",
    "create_evaluator_from_schema",
    "get_settings",
    "get_tagger",
    "load_built_in_evaluators",
    "parse_query",
    "print_query",
    "run_evaluation_experiment",
    "summarize_run",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'rem' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
