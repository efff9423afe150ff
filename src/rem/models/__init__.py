"""The entity types of REM as Pydantic classes. One file for each type, or for two that belong together."""

from rem.models.approval import Approval, ApprovalStatus, Execution, RiskLevel
from rem.models.document import Document
from rem.models.edge import Edge
from rem.models.entity import Entity, EntityType
from rem.models.feedback import Feedback
from rem.models.file import File, ProcessingStatus
from rem.models.message import Message, MessageKind, Role
from rem.models.moment import Moment
from rem.models.ontology import Ontology, OntologyConfig
from rem.models.record import Record, RecordKind
from rem.models.resource import Resource
from rem.models.schema import Schema, SchemaKind
from rem.models.session import Session, SharedSession
from rem.models.tool_gap import ToolGap
from rem.models.user import User

BUILTIN_ENTITIES: tuple[type[Entity], ...] = (
    User,
    Session,
    Message,
    SharedSession,
    File,
    Resource,
    Record,
    Document,
    Moment,
    Ontology,
    OntologyConfig,
    Schema,
    Feedback,
    Approval,
    ToolGap,
)
"""In load order: a type comes after the types that it refers to."""

__all__ = [
    "BUILTIN_ENTITIES",
    "Approval",
    "ApprovalStatus",
    "Document",
    "Edge",
    "Entity",
    "EntityType",
    "Execution",
    "Feedback",
    "File",
    "Message",
    "MessageKind",
    "Moment",
    "Ontology",
    "OntologyConfig",
    "ProcessingStatus",
    "Record",
    "RecordKind",
    "Resource",
    "RiskLevel",
    "Role",
    "Schema",
    "SchemaKind",
    "Session",
    "SharedSession",
    "ToolGap",
    "User",
]
