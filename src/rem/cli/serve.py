"""`rem serve`: serve the HTTP API."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeAlias

import typer

if TYPE_CHECKING:
    import socket

    from rem.cli.supervisor import Heartbeat
    from rem.settings import Settings

LISTEN_POLL_SECONDS = 0.05
MAX_OPEN_FILES = 65_536
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
    from rem.cli.supervisor import CAN_SUPERVISE, Heartbeat
    from rem.settings import get_settings

    heartbeat = Heartbeat.from_environment()
    settings = get_settings()
    api = settings.api
    host, port = host or api.host, api.port if port is None else port
    workers, reload = workers or api.workers, api.reload if reload is None else reload
    if allow_unauthenticated:
        # The application checks the settings, too.
        os.environ["API__ALLOW_UNAUTHENTICATED"] = "true"
        get_settings.cache_clear()
        settings = get_settings()
    check_auth_settings(settings)
    options = _uvicorn_options(settings, log_level)
    if heartbeat is None:
        _check_options(settings, host, workers, is_reloading=reload)
        sockets = _open_sockets(host, port)
        port = sockets[0].getsockname()[1]
        if CAN_SUPERVISE and not reload:
            _supervise(settings, sockets, workers, _describe_address(host, port))
        for each in sockets:
            each.close()
    if settings.postgres.enabled:
        # Opening REM before the application does shows the progress of a first start, and errors without a traceback.
        run_with_rem(_do_nothing)
    _exit_with_0_on_sigterm()
    _allow_many_connections()
    if heartbeat is None:
        _run_alone(host, port, options, is_reloading=reload)
    else:
        _run_supervised(heartbeat, options)


def _supervise(settings: Settings, sockets: list[socket.socket], workers: int, announcement: str) -> NoReturn:
    """Let this process supervise others, which run the same command to serve."""
    import os
    import tempfile

    from rem.cli.supervisor import Options, supervise

    folder = None
    if settings.metrics.enabled and workers > 1:
        # Prometheus asks any one of the processes for its metrics, and wants those of all.
        folder = os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="rem-metrics-")
    supervise(
        Options(
            freeze_seconds=settings.api.freeze_seconds,
            processes=workers,
            sockets=[each.fileno() for each in sockets],
            announcement=announcement,
            folder=folder,
            logs_json=settings.log.format == "json",
        )
    )


def _run_supervised(heartbeat: Heartbeat, options: dict[str, Any]) -> None:
    """Serve on the sockets of the supervisor until a signal."""
    import asyncio
    import sys

    import uvicorn
    from uvicorn.config import STARTUP_FAILURE

    config = uvicorn.Config("rem.api.main:app", **options)
    config.load_app()
    server = uvicorn.Server(config)

    async def run() -> None:
        async with heartbeat.beating(lambda: server.started):
            await server.serve(heartbeat.sockets)

    with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run())
    if not server.started:
        sys.exit(STARTUP_FAILURE)


def _run_alone(host: str, port: int, options: dict[str, Any], *, is_reloading: bool) -> None:
    """Serve without a supervisor. With `is_reloading`, uvicorn has one of its own, which looks for changes."""
    from pathlib import Path

    import uvicorn

    import rem

    _announce_when_listening(host, port)
    # Watch only the code, because the data of REM may be below the current folder.
    folders = [str(Path(rem.__file__).parent)] if is_reloading else None
    uvicorn.run("rem.api.main:app", host=host, port=port, reload=is_reloading, reload_dirs=folders, **options)


def _uvicorn_options(settings: Settings, log_level: LogLevel | None) -> dict[str, Any]:
    import math

    return {
        "http": "rem.api.http_protocol:ProtectedHttpProtocol",
        # REM has no WebSocket. uvicorn would answer them past the middleware, and write their paths to the log.
        "ws": "none",
        "log_config": _log_config(log_level or settings.api.log_level, settings.log.format),
        # The request log has the same lines, without the content of paths and query strings.
        "access_log": False,
        # The application reads them itself, from the proxies of API__TRUSTED_PROXIES alone.
        "proxy_headers": False,
        "timeout_graceful_shutdown": math.ceil(settings.api.shutdown_seconds),
    }


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


def _describe_address(host: str, port: int) -> str:
    address = f"[{host}]" if ":" in host else host
    return f"REM listens on http://{address}:{port} (documentation at /docs). Stop with Ctrl-C."


def _announce_when_listening(host: str, port: int) -> None:
    """Print the address as soon as the process that uvicorn starts accepts connections."""
    import socket
    import threading
    import time

    from rem.cli.runtime import print_to_stderr

    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104

    def wait() -> None:
        while True:
            try:
                socket.create_connection((target, port), timeout=1).close()
            except OSError:
                time.sleep(LISTEN_POLL_SECONDS)
            else:
                print_to_stderr(_describe_address(host, port))
                return

    threading.Thread(target=wait, name="announce", daemon=True).start()


async def _do_nothing(_rem: object) -> None:
    return None


def _open_sockets(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of the host, all on the same port. They do not listen yet."""
    import errno
    import os
    import socket

    from rem.errors import InvalidInputError

    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidInputError(f"{host} is not an address of this machine: choose another with --host.") from error
    sockets: list[socket.socket] = []
    for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
        try:
            sockets.append(_bind(family, (address[0], port, *address[2:])))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL and len(found) > 1:
                # localhost may have an address of IPv6 on a machine without it.
                continue
            reason = os.strerror(error.errno or 0)
            option = "--host" if error.errno == errno.EADDRNOTAVAIL else "--port"
            raise InvalidInputError(
                f"REM cannot listen on port {port} of {host} ({reason}): choose another with {option}."
            ) from error
        port = sockets[0].getsockname()[1]
    return sockets


def _bind(family: int, address: tuple[Any, ...]) -> socket.socket:
    import os
    import socket

    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            # A port whose last connections have just ended is free.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _is_loopback(host: str) -> bool:
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
