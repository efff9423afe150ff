"""One tree of errors. A message says what is wrong and what to do next; a class's docstring is its default."""

from __future__ import annotations

EXIT_CODES = {
    0: "Success.",
    1: "Failure. Also: you answered no to a question, `rem doctor` found an issue, or the output could not be written.",
    2: "The input or the settings are not valid.",
    3: "The object does not exist, or it belongs to another user.",
    4: "The change conflicts with stored data.",
    5: "The database cannot be used, or is disabled.",
    6: "A model, a service or an optional package cannot be used.",
    130: "Interrupted by Ctrl-C.",
}
"""Meaning of the exit codes of the `rem` command."""


class RemError(Exception):
    """Something in REM failed."""

    exit_code = 1
    code = "internal_error"
    """One word for the kind of error, for programs."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__ or "")


class SettingsError(RemError):
    """The settings are not valid."""

    exit_code = 2


class InvalidInputError(RemError):
    """The input is not valid."""

    exit_code = 2
    code = "invalid_input"


class QuerySyntaxError(InvalidInputError):
    """The query is not written in REM's query language."""

    code = "query_syntax"

    def __init__(
        self,
        message: str | None = None,
        *,
        reason: str | None = None,
        line: int = 1,
        column: int = 1,
        suggestion: str | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason or str(self)
        self.line = line
        self.column = column
        self.suggestion = suggestion


class QueryLimitError(InvalidInputError):
    """The query takes more time or room than one query may."""

    code = "query_limit"


class NotFoundError(RemError):
    """There is no such object, or it belongs to someone else."""

    exit_code = 3
    code = "not_found"


class ConflictError(RemError):
    """The change contradicts what is stored."""

    exit_code = 4
    code = "conflict"


class DeletedError(ConflictError):
    """The object was deleted, and a deleted memory stays deleted."""

    code = "deleted"


class ImmutableError(ConflictError):
    """The content of messages and documents is never changed in place."""

    code = "immutable"


class DatabaseError(RemError):
    """The database cannot be used."""

    exit_code = 5
    code = "database_error"


class DatabaseUnavailableError(DatabaseError):
    """The database does not answer."""

    code = "database_unavailable"


class DatabaseUnsupportedError(DatabaseError):
    """The PostgreSQL server lacks something that REM needs."""


class EmbeddedServerError(DatabaseError):
    """The embedded PostgreSQL server cannot be started."""


class CorruptRowError(DatabaseError):
    """A stored row does not fit its class."""

    code = "corrupt_row"


class MigrationError(DatabaseError):
    """The schema cannot be brought to the version that this REM needs."""


class EmbeddingError(RemError):
    """The texts cannot be embedded."""

    exit_code = 6
    code = "embedding_unavailable"


class EmbeddingDisabledError(EmbeddingError):
    """No embedder is configured."""


class EmbeddingUnavailableError(EmbeddingError):
    """The embedder does not answer: the same call may work later."""


class EmbeddingMisconfiguredError(EmbeddingError):
    """The embedder cannot work as it is set up: calling it again does not help."""


class EmbeddingMismatchError(EmbeddingError):
    """The data was embedded by another model than the settings name."""


class RerankerError(RemError):
    """The candidates of a search cannot be reranked."""

    exit_code = 6
    code = "reranker_unavailable"


class MemoryDisabledError(RemError):
    """This needs the database, which is switched off: set POSTGRES__ENABLED=true."""

    exit_code = 5
    code = "memory_off"


class AgentNotFoundError(NotFoundError):
    """There is no such agent."""

    code = "agent_not_found"


class InvalidAgentError(InvalidInputError):
    """The agent's definition is not valid."""

    code = "agent_invalid"


class ModelNotFoundError(InvalidInputError):
    """There is no such model, or it is not set up."""

    code = "model_not_found"


class ModelError(RemError):
    """The language model failed."""

    exit_code = 6
    code = "model_error"


class ModelRequiredError(ModelError):
    """This needs a language model, and none is configured: set LLM__DEFAULT_MODEL."""

    code = "model_needed"


class ModelTimeoutError(ModelError):
    """The language model takes too long."""

    code = "model_timeout"


class ModelRateLimitError(ModelError):
    """The language model is asked too often."""

    code = "rate_limit_exceeded"


class RunLimitError(ModelError):
    """The answer took more requests or tokens than the agent may use."""

    code = "run_limit"


class ToolFailedError(RemError):
    """A tool could not do its work."""

    code = "tool_failed"


class AudioError(RemError):
    """What was spoken cannot be written down."""

    exit_code = 6
    code = "transcription_unavailable"


class FetchError(RemError):
    """The place does not give the file: the same call may work later."""

    exit_code = 6
    code = "fetch_failed"


class FetchRefusedError(FetchError):
    """The place does not give the file, and will not later."""

    code = "fetch_refused"


class FetchForbiddenError(InvalidInputError):
    """Nothing may be fetched from there."""

    code = "place_forbidden"


class FileMissingError(NotFoundError):
    """There is no such file."""

    code = "file_not_found"


class FileTooLargeError(InvalidInputError):
    """The file is larger than one may be."""

    code = "file_too_large"


class FileUnreadableError(InvalidInputError):
    """No text can be read from the file."""

    code = "file_unreadable"


class FileEmptyError(FileUnreadableError):
    """There is nothing in the file."""


class MissingExtraError(RemError):
    """This needs a part of REM that is not installed."""

    exit_code = 6
    code = "extra_needed"
