"""The groups POSTGRES and SQL: the database, and the limits of the SQL verb."""

from __future__ import annotations

from pydantic import Field, SecretStr, field_validator

from rem.settings.group import SettingsGroup


class PostgresSettings(SettingsGroup):
    """The database. Without a connection string, REM starts the embedded server under `REM_HOME`."""

    enabled: bool = Field(
        default=True,
        description=(
            "Use the database. With `false`, chat works without memory and all other functions raise an error."
        ),
    )
    connection_string: SecretStr | None = Field(
        default=None,
        description=(
            "Address of your own PostgreSQL server (15 or later, with pgvector 0.8 and pg_trgm). Without it, "
            "REM uses the embedded server."
        ),
    )
    direct_connection_string: SecretStr | None = Field(
        default=None,
        description=(
            "Address of the server itself, if `connection_string` names a connection pooler in transaction mode, such "
            "as PgBouncer. REM uses it for migrations, session locks, LISTEN and the SQL verb "
            "([guide](deployment.md#use-pgbouncer))."
        ),
    )
    prepared_statements: bool = Field(
        default=True,
        description=(
            "Prepare statements once for each connection of a connection pooler. `false` is slower, and works with "
            "PgBouncer before version 1.21, too."
        ),
    )
    replica_connection_string: SecretStr | None = Field(
        default=None,
        description=(
            "Address of a streaming replica that answers reads as long as it is up to date "
            "([guide](deployment.md#read-from-a-replica))."
        ),
    )
    pool_min_size: int = Field(
        default=1, ge=0, le=100, description="Minimum number of database connections of one process."
    )
    pool_max_size: int = Field(
        default=10, ge=1, le=100, description="Maximum number of database connections of one process."
    )
    connect_timeout_seconds: float = Field(default=10.0, gt=0, description="Maximum time to open a connection.")
    read_timeout_seconds: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description=(
            "Maximum time that the database may work on one LOOKUP, FUZZY, SEARCH or TRAVERSE, or on one GET of the "
            "API. `SQL__TIMEOUT_SECONDS` limits the SQL verb."
        ),
    )
    idle_timeout_seconds: float = Field(
        default=1800.0,
        ge=0,
        description="Time without a connection after which the embedded server stops. 0 means never.",
    )
    run_as: str = Field(default="nobody", description="System user of the embedded server when REM runs as root.")
    kv_logged: bool = Field(
        default=False,
        description=(
            "Write the key cache (`kv_store`) to the WAL, so that it survives a crash or failover without a rebuild. "
            "With a connection pooler or a replica, REM always does."
        ),
    )
    sql_connection_string: SecretStr | None = Field(
        default=None, description="Login for the SQL verb, on servers where REM may not create a role for it."
    )

    @field_validator(
        "connection_string", "direct_connection_string", "replica_connection_string", "sql_connection_string"
    )
    @classmethod
    def _treat_empty_as_unset(cls, value: SecretStr | None) -> SecretStr | None:
        return value if value and value.get_secret_value().strip() else None

    @property
    def uses_pooler(self) -> bool:
        """Return True if the pool of REM goes through a connection pooler in transaction mode."""
        return self.connection_string is not None and self.direct_connection_string is not None

    @property
    def uses_replica(self) -> bool:
        """Return True if reads may go to a replica."""
        return self.connection_string is not None and self.replica_connection_string is not None

    @property
    def needs_logged_kv_store(self) -> bool:
        """Return True if kv_store must be in the WAL.

        A replica has only what is in the WAL. Behind a pooler REM would not notice a crash that empties the table.
        """
        return self.kv_logged or self.uses_pooler or self.uses_replica


class SqlSettings(SettingsGroup):
    """Limits of one query with the SQL verb ([guide](sql.md))."""

    timeout_seconds: float = Field(default=5.0, gt=0, le=300, description="Maximum run time.")
    max_rows: int = Field(default=1000, ge=1, le=100_000, description="Maximum number of rows.")
    max_bytes: int = Field(
        default=10_000_000, ge=1000, le=1_000_000_000, description="Maximum size of all rows as JSON."
    )
    pool_max_size: int = Field(
        default=4,
        ge=1,
        le=100,
        description="Maximum number of SQL queries at the same time. One user has at most half of them. Others wait.",
    )
    max_memory_bytes: int = Field(
        default=256_000_000,
        ge=64_000_000,
        description="Maximum memory of one query. It works with the embedded server on Linux.",
    )
