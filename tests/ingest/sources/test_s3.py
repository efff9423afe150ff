"""S3: boto3 reads from a fake server, within the limits of the policy."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import pytest

from rem.errors import (
    FetchError,
    FetchForbiddenError,
    FetchRefusedError,
    FileMissingError,
    FileTooLargeError,
    InvalidInputError,
    MissingExtraError,
)
from rem.ingest.sources.fetch import fetch_file, list_sources
from rem.ingest.sources.policy import UNRESTRICTED, FetchPolicy
from rem.settings import IngestSettings
from tests.ingest.web_server import Answer, WebServer, endless, page

_REACH = FetchPolicy(buckets=frozenset({"papers"}))


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WebServer]:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    async with WebServer() as site:
        yield site


def settings_of(site: WebServer, **more: object) -> IngestSettings:
    return IngestSettings.model_validate({"s3_endpoint": site.url, "timeout_seconds": 60, **more})


def failure(status: int, code: str) -> Answer:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>"
    return page(status, body.encode(), Content_Type="application/xml")


def listed(keys: list[str], more: str | None = None) -> bytes:
    contents = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    rest = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    return f"<?xml version='1.0'?><ListBucketResult><Name>papers</Name>{contents}{rest}</ListBucketResult>".encode()


async def test_object_is_fetched_with_name_and_type(site: WebServer) -> None:
    site.answers["/papers/deep/a.md"] = page(200, b"# Hi", Content_Type="text/markdown")
    file = await fetch_file("s3://papers/deep/a.md", _REACH, settings_of(site))
    assert (file.name, file.uri, file.data, file.mime_type) == (
        *("a.md", "s3://papers/deep/a.md"),
        *(b"# Hi", "text/markdown"),
    )


async def test_policy_limits_the_buckets(site: WebServer) -> None:
    for place in ("s3://private/a.md", "s3://papers2/a.md", "s3://PAPERS/a.md"):
        with pytest.raises(FetchForbiddenError, match="INGEST__S3_BUCKETS"):
            await fetch_file(place, _REACH, settings_of(site))
    with pytest.raises(FetchForbiddenError):
        await list_sources("s3://private/", _REACH, settings_of(site))
    assert not site.requests
    site.answers["/private/a.md"] = page(200, b"x")
    assert (await fetch_file("s3://private/a.md", UNRESTRICTED, settings_of(site))).data == b"x"


async def test_prefix_is_listed_over_all_pages(site: WebServer) -> None:
    query = "/papers?list-type=2&prefix=docs%2F"
    site.answers[f"{query}&encoding-type=url"] = page(
        200, listed(["docs/", "docs/b.md", "docs/.hidden", "docs/x/c.txt"], more="T")
    )
    site.answers[f"{query}&continuation-token=T&encoding-type=url"] = page(
        200, listed(["docs/a.md", "docs/node_modules/x.js"])
    )
    listing = await list_sources("s3://papers/docs/", _REACH, settings_of(site))
    assert listing.sources == [
        ("s3://papers/docs/a.md", "docs/a.md"),
        ("s3://papers/docs/b.md", "docs/b.md"),
        ("s3://papers/docs/x/c.txt", "docs/x/c.txt"),
    ]


async def test_whole_bucket_is_listed_under_its_name(site: WebServer) -> None:
    site.answers["/papers?list-type=2&prefix=&encoding-type=url"] = page(200, listed(["a.md"]))
    for place in ("s3://papers", "s3://papers/"):
        listing = await list_sources(place, _REACH, settings_of(site))
        assert listing.sources == [("s3://papers/a.md", "papers/a.md")]


async def test_endless_object_is_cut_off_at_the_size_limit(site: WebServer) -> None:
    site.answers["/papers/big"] = endless(bytes(10_000), length="100000000000")
    with pytest.raises(FileTooLargeError, match="1,000,000 bytes"):
        await fetch_file("s3://papers/big", _REACH, settings_of(site, max_bytes=1_000_000))


async def test_slow_object_is_cut_off_at_the_timeout(site: WebServer) -> None:
    site.answers["/papers/slow"] = endless(b"x", pause=0.05, length="1000000")
    with pytest.raises(FetchError, match=r"within 0.5 s"):
        await fetch_file("s3://papers/slow", _REACH, settings_of(site, timeout_seconds=0.5))
    # The thread that reads has ended, too: it has closed its connection.
    await site.wait_until_unused()


async def test_object_that_ends_too_early_is_an_error(site: WebServer) -> None:
    site.answers["/papers/cut"] = page(200, b"x", Content_Length="2")
    with pytest.raises(FetchError, match=r"s3://papers/cut cannot be read.* Try again later"):
        await fetch_file("s3://papers/cut", _REACH, settings_of(site))


async def test_s3_errors_are_translated(site: WebServer) -> None:
    settings = settings_of(site)
    site.answers["/papers/gone"] = failure(404, "NoSuchKey")
    site.answers["/papers/denied"] = failure(403, "AccessDenied")
    site.answers["/papers/busy"] = failure(503, "SlowDown")
    with pytest.raises(FileMissingError, match="There is no s3://papers/gone"):
        await fetch_file("s3://papers/gone", _REACH, settings)
    with pytest.raises(FetchRefusedError, match="with these credentials"):
        await fetch_file("s3://papers/denied", _REACH, settings)
    with pytest.raises(FetchError, match="try again later"):
        await fetch_file("s3://papers/busy", _REACH, settings)
    for place in ("s3://", "s3:///key", "s3://papers/"):
        with pytest.raises(InvalidInputError):
            await fetch_file(place, UNRESTRICTED, settings)


async def test_missing_credentials_are_named(site: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(FetchRefusedError, match="AWS_ACCESS_KEY_ID"):
        await fetch_file("s3://papers/a.md", _REACH, settings_of(site))


async def test_missing_extra_is_named_in_the_error(site: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'remstack\[s3\]'"):
        await fetch_file("s3://papers/a.md", _REACH, settings_of(site))
