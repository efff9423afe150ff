"""`rem serve`: serve the HTTP API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeAlias

import typer

if TYPE_CHECKING:
    from rem.settings import Settings

LISTEN_POLL_SECONDS = 0.05
MAX_OPEN_FILES = 65_536
MAX_WORKER_SILENCE_SECONDS = 60
"""Time after which uvicorn replaces a worker that does not answer. One that has died is replaced at once.

Its default of 5 s ends workers that are only starting on a busy machine, again and again.
"""
LogLevel: TypeAlias = Literal["critical", "error", "warning", "info", "debug"]


def serve(
    host: Annotated[
        str | None, typer.Option(help="The address to listen on. Default: API__HOST, which is 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port; 0 chooses a free one. Default: API__PORT, which is 8000."),
    ] = None,
    reload: Annotated[
        bool | None,
        typer.Option("--reload/--no-reload", help="Restart when the code changes, for development."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=64, help="The number of server processes.")] = None,
    log_level: Annotated[
        LogLevel | None, typer.Option(help="The minimum level of log messages. Default: info.")
    ] = None,
    allow_unauthenticated: Annotated[
        bool,
        typer.Option(
            "--allow-unauthenticated",
            help="Listen on an address that others can reach although callers need not prove who they are. "
            "API__ALLOW_UNAUTHENTICATED does the same.",
        ),
    ] = False,
) -> None:
    """Serve the HTTP API until interrupted. The embedded database starts if no other is configured."""
    import os

    from rem.auth.production import check_auth_settings
    from rem.cli.runtime import run_with_rem
    from rem.settings import get_settings

    settings = get_settings()
    api = settings.api
    host, port = host or api.host, api.port if port is None else port
    workers, reload = workers or api.workers, api.reload if reload is None else reload
    if allow_unauthenticated:
        # The server processes check the settings, too.
        os.environ["API__ALLOW_UNAUTHENTICATED"] = "true"
        get_settings.cache_clear()
        settings = get_settings()
    check_auth_settings(settings)
    _check_options(settings, host, workers, is_reloading=reload)
    port = _require_port(host, port)
    if settings.postgres.enabled:
        # Opening REM once shows the progress of a first start, and reports errors once instead of in each worker.
        run_with_rem(_do_nothing)
    _announce_when_listening(host, port)
    _exit_with_0_on_sigterm()
    _allow_many_connections()
    with _share_counters(settings, workers):
        _run_server(settings, host, port, workers, log_level, is_reloading=reload)


def _run_server(
    settings: Settings, host: str, port: int, workers: int, log_level: LogLevel | None, *, is_reloading: bool
) -> None:
    import math
    from pathlib import Path

    import uvicorn

    import rem

    uvicorn.run(
        "rem.api.main:app",
        host=host,
        port=port,
        workers=workers,
        reload=is_reloading,
        # Watch only the code, because the data of REM may be below the current folder.
        reload_dirs=[str(Path(rem.__file__).parent)] if is_reloading else None,
        http="rem.api.http_protocol:ProtectedHttpProtocol",
        # REM has no WebSocket. uvicorn would answer them past the middleware, and write their paths to the log.
        ws="none",
        log_config=_log_config(log_level or settings.api.log_level, settings.log.format),
        # The request log has the same lines, without the content of paths and query strings.
        access_log=False,
        # The application reads them itself, from the proxies of API__TRUSTED_PROXIES alone.
        proxy_headers=False,
        timeout_graceful_shutdown=math.ceil(settings.api.shutdown_seconds),
        timeout_worker_healthcheck=MAX_WORKER_SILENCE_SECONDS,
    )


@contextmanager
def _share_counters(settings: Settings, workers: int) -> Iterator[None]:
    """Give several server processes a folder for their metrics: Prometheus asks any one of them, and wants all."""
    import os
    import tempfile

    if not settings.metrics.enabled or workers == 1:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="rem-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        yield


def _log_config(level: str, log_format: str) -> dict[str, Any]:
    """Return the logging configuration that uvicorn applies in each server process."""
    handler = {"()": "rem.api.middleware.LogHandler", "min_level": level.upper(), "log_format": log_format}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"rem": handler},
        "loggers": {"uvicorn": {"handlers": ["rem"], "level": level.upper(), "propagate": False}},
    }


def _check_options(settings: Settings, host: str, workers: int, *, is_reloading: bool) -> None:
    from rem.errors import InvalidInputError

    is_proven = settings.auth.enabled and settings.is_production
    if not _is_loopback(host) and not is_proven and not settings.api.allow_unauthenticated:
        reason = (
            "outside of production everyone gets an administrator's token at /api/dev/token: set ENVIRONMENT=production"
            if settings.auth.enabled
            else "it has no authentication: set AUTH__ENABLED=true and ENVIRONMENT=production"
        )
        raise InvalidInputError(
            f"Anyone who reaches {host} could use this API, because {reason}, listen on 127.0.0.1, or set "
            "API__ALLOW_UNAUTHENTICATED=true (--allow-unauthenticated)."
        )
    if is_reloading and workers > 1:
        raise InvalidInputError("--reload is for one process: leave --workers out, or --reload.")


def _exit_with_0_on_sigterm() -> None:
    """Exit with code 0 after SIGTERM, which supervisors send for a normal stop."""
    import signal

    def exit_normally(_number: int, _frame: object) -> NoReturn:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, exit_normally)


def _allow_many_connections() -> None:
    """Raise the number of files and connections that the server processes may open to what the system allows."""
    try:
        import resource
    except ImportError:
        # Windows has no such limit.
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _announce_when_listening(host: str, port: int) -> None:
    """Print the address as soon as the server accepts connections, which its own processes may do much later."""
    import socket
    import threading
    import time

    from rem.cli.runtime import print_to_stderr

    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    address = f"[{host}]" if ":" in host else host

    def wait() -> None:
        while True:
            try:
                socket.create_connection((target, port), timeout=1).close()
            except OSError:
                time.sleep(LISTEN_POLL_SECONDS)
            else:
                print_to_stderr(f"REM listens on http://{address}:{port} (documentation at /docs). Stop with Ctrl-C.")
                return

    threading.Thread(target=wait, name="announce", daemon=True).start()


async def _do_nothing(_rem: object) -> None:
    return None


def _require_port(host: str, port: int) -> int:
    """Return the port, or a free one for 0. Raise an error here if it is in use, instead of in each worker."""
    import errno
    import os
    import socket

    from rem.errors import InvalidInputError

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.getaddrinfo(host, port, family)
        with socket.create_server((host, port), family=family) as probe:
            free_port: int = probe.getsockname()[1]
            return free_port
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidInputError(f"{host} is not an address of this machine: choose another with --host.") from error
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        option = "--host" if error.errno == errno.EADDRNOTAVAIL else "--port"
        raise InvalidInputError(
            f"REM cannot listen on port {port} of {host} ({reason}): choose another with {option}."
        ) from error


def _is_loopback(host: str) -> bool:
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
