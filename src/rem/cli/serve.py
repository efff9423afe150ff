"""`rem serve`: the HTTP API."""

from __future__ import annotations

from typing import Annotated

import typer


def serve(
    host: Annotated[
        str | None, typer.Option(help="The address to listen on; 127.0.0.1 unless API__HOST says otherwise.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port; 8000 unless API__PORT says otherwise.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=64, help="How many processes serve.")] = None,
    allow_unauthenticated: Annotated[
        bool,
        typer.Option("--allow-unauthenticated", help="Listen beyond this machine although nobody has to log in."),
    ] = False,
) -> None:
    """Serve the HTTP API until interrupted. The embedded database is started if no other is configured."""
    import uvicorn

    from rem.cli.runtime import run_with_rem, tell
    from rem.errors import InvalidInputError
    from rem.settings import get_settings

    api = get_settings().api
    host, port = host or api.host, api.port if port is None else port
    if not _is_loopback(host) and not allow_unauthenticated:
        raise InvalidInputError(
            f"Anyone who reaches {host} could use this API, because it has no authentication: listen on 127.0.0.1, "
            "or say --allow-unauthenticated."
        )
    port = _free_port(host, port)
    # Opening once here shows the progress of a first start, and stops before the workers do if something is wrong.
    run_with_rem(_nothing)
    address = f"[{host}]" if ":" in host else host
    tell(f"REM listens on http://{address}:{port} (documentation at /docs). Stop with Ctrl-C.")
    uvicorn.run("rem.api.main:app", host=host, port=port, workers=workers or api.workers, log_level=api.log_level)


async def _nothing(_rem: object) -> None:
    return None


def _free_port(host: str, port: int) -> int:
    """The port, or any that is free for 0; an error now if it cannot be had, rather than one from each worker."""
    import errno
    import os
    import socket

    from rem.errors import InvalidInputError

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.getaddrinfo(host, port, family)
        with socket.create_server((host, port), family=family) as probe:
            free: int = probe.getsockname()[1]
            return free
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidInputError(f"{host} is no address of this machine: choose another with --host.") from error
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
