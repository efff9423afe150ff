"""All errors of REM. The docstring of a class is its default message. A message names the error and the next step."""

from __future__ import annotations

EXIT_CODES = {
    0: "Success.",
    1: "Failure. Also: you answered no to a question, `rem doctor` found an issue, or the output could not be written.",
    2: "The input or the settings are not valid.",
    3: "The object does not exist, or it belongs to another user. Also: `rem ask --min-confidence` got no sure answer.",
    4: "The change conflicts with stored data.",
    5: "The database cannot be used, or is disabled.",
    6: "A model, a service or an optional package cannot be used.",
    7: "An experiment is worse than its baseline.",
    8: "Cases of an experiment failed, or too few passed.",
    130: "Interrupted by Ctrl-C.",
}
"""Meaning of the exit codes of the `rem` command."""


class RemError(Exception):
    """Something in REM failed."""

    exit_code = 1
    code = "internal_error"
    """Identifies the error class in JSON responses."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__ or "")


class SettingsError(RemError):
    """The settings are not valid."""

    exit_code = 2


class InvalidInputError(RemError):
    """The input is not valid."""

    exit_code = 2
    code = "invalid_input"


class PrivacyError(InvalidInputError):
    """The text contains a secret or personal data that this installation does not store."""

    code = "privacy_refused"


class SessionNameError(InvalidInputError):
    """A session cannot be named with a UUID, which is read as its id: choose a name, or give the UUID as the id."""

    code = "session_name"


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
    """The query exceeds a limit of time, rows or size."""

    code = "query_limit"


class QueryTimeoutError(QueryLimitError):
    """The database did not answer a read in time: ask for less, or try again later."""

    code = "query_timeout"


class NotFoundError(RemError):
    """There is no such object, or it belongs to another user."""

    exit_code = 3
    code = "not_found"


class UnauthorizedError(RemError):
    """This needs a login: send a valid token or API key, or log in."""

    exit_code = 2
    code = "unauthorized"


class ForbiddenError(RemError):
    """The caller is known, but may not do this."""

    exit_code = 2
    code = "forbidden"


class LoginProviderError(RemError):
    """The login provider cannot be reached or gave no valid answer: try again later."""

    exit_code = 6
    code = "login_provider_error"


class ConflictError(RemError):
    """The change conflicts with the stored data."""

    exit_code = 4
    code = "conflict"


class DeletedError(ConflictError):
    """The object was deleted. Restore or erase it first."""

    code = "deleted"


class ImmutableError(ConflictError):
    """The content of messages and documents cannot change."""

    code = "immutable"


class DatabaseError(RemError):
    """The database cannot be used."""

    exit_code = 5
    code = "database_error"


class DatabaseUnavailableError(DatabaseError):
    """The database does not respond."""

    code = "database_unavailable"


class DatabaseUnsupportedError(DatabaseError):
    """The PostgreSQL server lacks something that REM needs."""


class EmbeddedServerError(DatabaseError):
    """The embedded PostgreSQL server cannot be started."""


class CorruptRowError(DatabaseError):
    """A stored row does not match its entity class."""

    code = "corrupt_row"


class EncryptionError(DatabaseError):
    """An encrypted text cannot be read: its key is missing or wrong, or it stands in another row."""

    code = "encryption_error"


class MigrationError(DatabaseError):
    """The schema cannot be migrated to the version that this version of REM needs."""


class EmbeddingError(RemError):
    """The texts cannot be embedded."""

    exit_code = 6
    code = "embedding_unavailable"


class EmbeddingDisabledError(EmbeddingError):
    """No embedder is configured."""


class EmbeddingUnavailableError(EmbeddingError):
    """The embedder does not respond: try again later."""


class EmbeddingMisconfiguredError(EmbeddingError):
    """The embedder is configured wrongly: a retry will not help."""


class EmbeddingMismatchError(EmbeddingError):
    """The stored vectors come from another model than the one in the settings."""


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
    """There is no such model, or it is not configured."""

    code = "model_not_found"


class ModelError(RemError):
    """The language model failed."""

    exit_code = 6
    code = "model_error"


class ModelRequiredError(ModelError):
    """This needs a language model, and none is configured: set LLM__DEFAULT_MODEL."""

    code = "model_needed"


class ModelTimeoutError(ModelError):
    """The language model did not respond in time."""

    code = "model_timeout"


class ModelRateLimitError(ModelError):
    """The rate limit of the language model is exceeded."""

    code = "rate_limit_exceeded"


class RunLimitError(ModelError):
    """The run exceeds its limit of requests or tokens."""

    code = "run_limit"


class RegressionError(RemError):
    """The experiment is worse than its baseline."""

    exit_code = 7
    code = "regression"


class FailedCasesError(RemError):
    """Cases of the experiment failed."""

    exit_code = 8
    code = "cases_failed"


class PhoenixError(RemError):
    """The Phoenix server cannot be reached, or gave no valid answer."""

    exit_code = 6
    code = "phoenix_unavailable"


class QueueFullError(RemError):
    """Too many of your jobs wait: try again soon."""

    exit_code = 4
    code = "queue_full"
    retry_after = 2
    """Seconds after which another try may succeed."""


class ToolFailedError(RemError):
    """A tool failed."""

    code = "tool_failed"


class ServerStoppingError(RemError):
    """The server is stopping and cannot finish the answer: ask again in a moment."""

    code = "server_stopping"


class TooManyChatsError(RemError):
    """The caller has too many running chats: wait for one of their answers."""

    code = "too_many_chats"


class TooManyQueriesError(RemError):
    """The caller has too many queries that run or wait: wait for one of their results."""

    code = "too_many_queries"


class AudioError(RemError):
    """The recording cannot be transcribed."""

    exit_code = 6
    code = "transcription_unavailable"


class FetchError(RemError):
    """The file cannot be fetched: try again later."""

    exit_code = 6
    code = "fetch_failed"


class FetchRefusedError(FetchError):
    """The file cannot be fetched, and a retry will not help."""

    code = "fetch_refused"


class FetchForbiddenError(InvalidInputError):
    """REM may not fetch files from there."""

    code = "place_forbidden"


class FileMissingError(NotFoundError):
    """There is no such file."""

    code = "file_not_found"


class FileTooLargeError(InvalidInputError):
    """The file is too large."""

    code = "file_too_large"


class FileUnreadableError(InvalidInputError):
    """No text can be read from the file."""

    code = "file_unreadable"


class FileEmptyError(FileUnreadableError):
    """The file is empty."""


class MissingExtraError(RemError):
    """This needs an optional dependency that is not installed."""

    exit_code = 6
    code = "extra_needed"
