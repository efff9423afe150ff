"""HTTP: limits for size, time and redirects, and no access to private networks."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from ipaddress import ip_address

import pytest

from rem.errors import (
    FetchError,
    FetchForbiddenError,
    FetchRefusedError,
    FileMissingError,
    FileTooLargeError,
    InvalidInputError,
    RemError,
)
from rem.ingest.sources.fetch import fetch_file, list_sources
from rem.ingest.sources.policy import UNRESTRICTED, FetchPolicy, is_ambiguous_ip, is_public
from rem.settings import IngestSettings
from tests.ingest.web_server import WebServer, endless, page, redirect

_SETTINGS = IngestSettings(timeout_seconds=10)
_PUBLIC_ONLY = FetchPolicy()


@pytest.fixture
async def site() -> AsyncIterator[WebServer]:
    async with WebServer() as site:
        yield site


async def test_page_is_fetched_with_name_and_type(site: WebServer) -> None:
    site.answers["/docs/start.md?v=1"] = page(200, b"# Hi", Content_Type="text/markdown; charset=utf-8")
    file = await fetch_file(f"{site.url}/docs/start.md?v=1#part", UNRESTRICTED, _SETTINGS)
    assert (file.data, file.mime_type) == (b"# Hi", "text/markdown; charset=utf-8")
    assert file.name == "127.0.0.1/docs/start.md?v=1"
    assert file.uri == f"{site.url}/docs/start.md?v=1"
    assert (await list_sources(file.uri, UNRESTRICTED, _SETTINGS)).sources == [(file.uri, file.name)]


async def test_endless_response_is_cut_off_at_the_size_limit(site: WebServer) -> None:
    settings = IngestSettings(max_bytes=1_000_000, timeout_seconds=30)
    for length in (None, "10000000000", "500"):
        site.answers["/endless"] = endless(bytes(10_000), length=length)
        if length == "500":
            assert len((await fetch_file(f"{site.url}/endless", UNRESTRICTED, settings)).data) == 500
        else:
            with pytest.raises(FileTooLargeError, match="1,000,000 bytes"):
                await fetch_file(f"{site.url}/endless", UNRESTRICTED, settings)
    await site.wait_until_unused()


async def test_slow_response_is_cut_off_at_the_timeout(site: WebServer) -> None:
    site.answers["/drip"] = endless(b"x", pause=0.05)
    started = time.monotonic()
    with pytest.raises(FetchError, match=r"within 0.5 s.*INGEST__TIMEOUT_SECONDS"):
        await fetch_file(f"{site.url}/drip", UNRESTRICTED, IngestSettings(timeout_seconds=0.5))
    assert time.monotonic() - started < 3
    await site.wait_until_unused()


async def test_compressed_response_is_decompressed_up_to_the_limit(site: WebServer) -> None:
    site.answers["/text"] = page(200, gzip.compress(b"hello " * 1000), Content_Encoding="gzip")
    members = gzip.compress(b"one ") + gzip.compress(b"two ") + bytes(100)
    site.answers["/members"] = page(
        200, members, Content_Encoding="gzip", Last_Modified="Mon, 06 May 2024 07:08:09 GMT"
    )
    site.answers["/junk"] = page(200, gzip.compress(b"one ") + b"junk", Content_Encoding="gzip")
    site.answers["/bomb"] = page(200, gzip.compress(bytes(50_000_000)), Content_Encoding="gzip")
    site.answers["/torn"] = page(200, gzip.compress(b"hello " * 1000)[:30], Content_Encoding="gzip")
    site.answers["/odd"] = page(200, b"x", Content_Encoding="br")
    settings = IngestSettings(max_bytes=1_000_000)
    assert (await fetch_file(f"{site.url}/text", UNRESTRICTED, settings)).data == b"hello " * 1000
    file = await fetch_file(f"{site.url}/members", UNRESTRICTED, settings)
    assert (file.data, file.modified_at) == (b"one two ", datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC))
    with pytest.raises(FetchError, match="not compressed as declared"):
        await fetch_file(f"{site.url}/junk", UNRESTRICTED, settings)
    with pytest.raises(FileTooLargeError):
        await fetch_file(f"{site.url}/bomb", UNRESTRICTED, settings)
    with pytest.raises(FetchError, match="was cut off"):
        await fetch_file(f"{site.url}/torn", UNRESTRICTED, settings)
    with pytest.raises(FetchRefusedError, match="compressed as br"):
        await fetch_file(f"{site.url}/odd", UNRESTRICTED, settings)


async def test_truncated_response_is_an_error(site: WebServer) -> None:
    site.answers["/torn"] = page(200, b"only half", Content_Length="100")
    with pytest.raises(FetchError, match="was cut off"):
        await fetch_file(f"{site.url}/torn", UNRESTRICTED, _SETTINGS)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, FileMissingError),
        (410, FileMissingError),
        (401, FetchRefusedError),
        (403, FetchRefusedError),
        (418, FetchRefusedError),
        (429, FetchError),
        (503, FetchError),
    ],
)
async def test_status_decides_whether_a_retry_helps(site: WebServer, status: int, kind: type[RemError]) -> None:
    site.answers["/x"] = page(status, b"")
    with pytest.raises(RemError) as error:
        await fetch_file(f"{site.url}/x", UNRESTRICTED, _SETTINGS)
    assert type(error.value) is kind


async def test_up_to_five_redirects_are_followed(site: WebServer) -> None:
    for number in range(10):
        site.answers[f"/{number}"] = redirect(f"/{number + 1}", status=(301, 302, 303, 307, 308)[number % 5])
    site.answers["/10"] = page(200, b"there")
    file = await fetch_file(f"{site.url}/5", UNRESTRICTED, _SETTINGS)
    assert (file.data, file.uri) == (b"there", f"{site.url}/5")
    with pytest.raises(FetchRefusedError, match="more than 5 times"):
        await fetch_file(f"{site.url}/4", UNRESTRICTED, _SETTINGS)


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "ftp://host/x", "gopher://x", "s3://bucket/key", "http://a:b@host/", "http://[", ""],
)
async def test_redirect_to_another_scheme_is_rejected(site: WebServer, location: str) -> None:
    site.answers["/x"] = redirect(location)
    with pytest.raises((FetchForbiddenError, FetchRefusedError, InvalidInputError), match="redirected"):
        await fetch_file(f"{site.url}/x", UNRESTRICTED, _SETTINGS)


async def test_every_redirect_target_is_checked(site: WebServer) -> None:
    """A host that is allowed sends the caller to one that is not: nothing of that one is asked."""
    async with WebServer() as private:
        private.answers["/secret"] = page(200, b"secret")
        site.answers["/x"] = redirect(f"{private.url}/secret")
        reach = FetchPolicy(private_hosts=frozenset({f"127.0.0.1:{site.port}"}))
        with pytest.raises(FetchForbiddenError, match="not in the public network"):
            await fetch_file(f"{site.url}/x", reach, _SETTINGS)
        assert not private.requests


_PRIVATE = [
    "127.0.0.1",
    "127.1.2.3",
    "localhost",
    "LOCALHOST",
    "0.0.0.0",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "127.1",
    "127.0.1",
    "127。0。0。1",
    "１２７.0.0.1",
    "①②⑦.⓪.⓪.①",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::a00:1]",
    "[64:ff9b:1::1]",
    "[2002:7f00:1::]",
    "[2002:a00:1::1]",
    "[2001:0:7f00:1::]",
    "[fe80::1]",
    "[fe80::1%25lo]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fec0::1]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[100::1]",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.127.255.255",
    "192.0.0.192",
    "198.18.0.1",
    "192.0.2.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "0.1.2.3",
    "2852039166",
    "169.254.43518",
    "0xA9FEA9FE",
    "evil.localhost",
    "[::ffff:224.0.0.1]",
    "[::ffff:255.255.255.255]",
    "[ff05::2]",
]


@pytest.mark.parametrize("host", _PRIVATE)
async def test_private_addresses_are_rejected_in_every_spelling(site: WebServer, host: str) -> None:
    site.answers["/"] = page(200, b"secret")
    with pytest.raises((FetchForbiddenError, InvalidInputError)):
        await fetch_file(f"http://{host}:{site.port}/", _PUBLIC_ONLY, IngestSettings(timeout_seconds=3))
    assert not site.requests


@pytest.mark.parametrize("host", _PRIVATE)
async def test_private_addresses_are_rejected_before_anything_is_fetched(host: str) -> None:
    with pytest.raises((FetchForbiddenError, InvalidInputError)):
        await list_sources(f"http://{host}/", _PUBLIC_ONLY, _SETTINGS)


async def test_names_and_allowed_addresses_are_checked_by_the_fetch() -> None:
    allowed = FetchPolicy(private_hosts=frozenset({"10.0.0.1"}))
    for address, policy in (
        ("http://10.0.0.1/", allowed),
        ("http://10.0.0.1/", UNRESTRICTED),
        ("http://no-such-host.invalid/", _PUBLIC_ONLY),
        ("http://8.8.8.8/", _PUBLIC_ONLY),
    ):
        assert [source.uri for source in (await list_sources(address, policy, _SETTINGS)).sources] == [address]


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8"],
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize("host", ["example.com", "1.1.1.1", "::1", "a1", "1a.com", "0x.com", "x.7a"])
def test_names_and_dotted_addresses_are_not_ambiguous(host: str) -> None:
    assert not is_ambiguous_ip(host)


async def test_private_host_is_allowed_by_name_or_with_port(site: WebServer) -> None:
    site.answers["/"] = page(200, b"here")
    for allowed in ("127.0.0.1", f"127.0.0.1:{site.port}"):
        reach = FetchPolicy(private_hosts=frozenset({allowed}))
        assert (await fetch_file(f"{site.url}/", reach, _SETTINGS)).data == b"here"
    for other in (f"127.0.0.1:{site.port + 1}", "localhost", "127.0.0.2"):
        with pytest.raises(FetchForbiddenError):
            await fetch_file(f"{site.url}/", FetchPolicy(private_hosts=frozenset({other})), _SETTINGS)


async def test_name_is_resolved_once_and_that_address_is_used(site: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is public when it is checked and private when it is used gets nothing: it is asked for once."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: str | bytes | None, *args: object, **kwargs: object) -> object:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if name != "rebind.example":
            return real(host, *args, **kwargs)  # type: ignore[arg-type]
        asked.append(name)
        address = "192.0.3.1" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    site.answers["/"] = page(200, b"secret")
    with pytest.raises(FetchError):
        await fetch_file(f"http://rebind.example:{site.port}/", _PUBLIC_ONLY, IngestSettings(timeout_seconds=1))
    assert asked == ["rebind.example"]
    assert not site.requests


async def test_request_has_the_host_name(site: WebServer) -> None:
    site.answers["/"] = page(200, b"here")
    await fetch_file(f"http://localhost:{site.port}/", UNRESTRICTED, _SETTINGS)
    ((_path, headers),) = site.requests
    assert headers["host"] == f"localhost:{site.port}"


async def test_proxies_of_the_environment_are_ignored(site: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with WebServer() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        site.answers["/"] = page(200, b"here")
        assert (await fetch_file(f"{site.url}/", UNRESTRICTED, _SETTINGS)).data == b"here"
        assert not proxy.requests


async def test_login_in_a_url_is_rejected_and_not_repeated(site: WebServer) -> None:
    for address in (f"http://tom:hunter2@127.0.0.1:{site.port}/", "https://tom:hunter2@[bad/"):
        with pytest.raises(InvalidInputError) as error:
            await fetch_file(address, UNRESTRICTED, _SETTINGS)
        assert "hunter2" not in str(error.value)
    assert not site.requests


@pytest.mark.parametrize(
    "address", ["http://", "http:///x", "http://ex ample.com/", "https://h:99999/", "http://a%41b/"]
)
async def test_invalid_url_is_rejected(address: str) -> None:
    with pytest.raises(InvalidInputError):
        await fetch_file(address, UNRESTRICTED, _SETTINGS)


async def test_unreachable_server_is_reported() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(FetchError, match="cannot be reached"):
        await fetch_file(f"http://127.0.0.1:{port}/", UNRESTRICTED, _SETTINGS)
    with pytest.raises(FetchError, match="is unknown"):
        await fetch_file("http://no-such-host.invalid/", UNRESTRICTED, _SETTINGS)


async def test_server_without_tls_is_reported(site: WebServer) -> None:
    with pytest.raises(FetchError, match="cannot be reached"):
        await fetch_file(f"https://127.0.0.1:{site.port}/", UNRESTRICTED, IngestSettings(timeout_seconds=1))


async def test_certificate_is_checked_against_the_host_name(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rem.ingest.sources import http
    from tests.ingest.sources.certificates import create_certificate

    files = create_certificate(tmp_path_factory.mktemp("tls"), "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await page(200, b"safe")(writer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("SSL_CERT_FILE", str(files.certificate))
    http._ssl_context.cache_clear()
    try:
        assert (await fetch_file(f"https://localhost:{port}/", UNRESTRICTED, _SETTINGS)).data == b"safe"
        assert names == ["localhost"]
        with pytest.raises(FetchError, match="certificate"):
            await fetch_file(f"https://127.0.0.1:{port}/", UNRESTRICTED, _SETTINGS)
    finally:
        http._ssl_context.cache_clear()
        server.close()
        await server.wait_closed()
