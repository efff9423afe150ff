"""Fetch and list files in S3 or a compatible server (extra `s3`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from rem.errors import (
    FetchError,
    FetchForbiddenError,
    FetchRefusedError,
    FileMissingError,
    FileTooLargeError,
    InvalidInputError,
    MissingExtraError,
    SettingsError,
)
from rem.ingest.dates import parse_time
from rem.ingest.models import FetchedFile, FileSource, Listing
from rem.ingest.sources.ignore_rules import IgnoreRules, ListingOptions
from rem.ingest.sources.policy import FetchPolicy
from rem.settings import IngestSettings

READ_BYTES = 1 << 20
_SCHEME = "s3://"
_MISSING_CODES = frozenset({"NoSuchKey", "NoSuchBucket", "NotFound", "404"})
_DENIED_CODES = frozenset({"AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"})
_T = TypeVar("_T")


class S3Location(NamedTuple):
    """An object, or all objects below a prefix that ends with a slash."""

    bucket: str
    key: str

    @property
    def uri(self) -> str:
        return f"{_SCHEME}{self.bucket}/{self.key}"

    @property
    def is_folder(self) -> bool:
        return not self.key or self.key.endswith("/")


def parse_s3_uri(address: str, policy: FetchPolicy) -> S3Location:
    """Parse an `s3://` URI and check its bucket against the policy. Percent signs in the key are not decoded."""
    bucket, _, key = address[len(_SCHEME) :].partition("/")
    if not bucket or "@" in bucket:
        raise InvalidInputError(f"{address} is not a valid S3 URI: write it as s3://bucket/key.")
    if not policy.is_unrestricted and bucket not in policy.buckets:
        raise FetchForbiddenError(
            f"The bucket {bucket} may not be read. The operator of REM can allow it with INGEST__S3_BUCKETS."
        )
    return S3Location(bucket, key)


async def fetch_s3(address: str, policy: FetchPolicy, settings: IngestSettings) -> FetchedFile:
    """Fetch one object."""
    location = parse_s3_uri(address, policy)
    if location.is_folder:
        raise InvalidInputError(f"{address} is a folder: ingest its files.")
    return await _run_in_thread(address, settings, lambda deadline: _fetch(location, address, settings, deadline))


async def list_s3(address: str, policy: FetchPolicy, settings: IngestSettings, options: ListingOptions) -> Listing:
    """List the objects below a prefix that ends with a slash, without those that the rules ignore by their paths."""
    location = parse_s3_uri(address, policy)
    return await _run_in_thread(
        address, settings, lambda deadline: _list(location, address, settings, options, deadline)
    )


async def _run_in_thread(address: str, settings: IngestSettings, call: Callable[[float], _T]) -> _T:
    """Run a call in a thread and pass it its deadline: a thread cannot be stopped from outside."""
    deadline = time.monotonic() + settings.timeout_seconds
    try:
        async with asyncio.timeout(settings.timeout_seconds):
            return await asyncio.to_thread(call, deadline)
    except TimeoutError as error:
        raise _timeout_error(address, settings) from error


def _timeout_error(address: str, settings: IngestSettings) -> FetchError:
    return FetchError(
        f"{address} did not arrive within {settings.timeout_seconds:g} s: try again later, "
        "or set INGEST__TIMEOUT_SECONDS higher."
    )


def _fetch(location: S3Location, address: str, settings: IngestSettings, deadline: float) -> FetchedFile:
    with _open_client(address, settings) as client:
        response = client.get_object(Bucket=location.bucket, Key=location.key)
        data = _read_body(response, address, settings, deadline)
    name, modified_at = location.key.rpartition("/")[2], parse_time(response.get("LastModified"))
    return FetchedFile(name, location.uri, data, response.get("ContentType"), modified_at)


def _read_body(response: dict[str, Any], address: str, settings: IngestSettings, deadline: float) -> bytes:
    data = bytearray()
    # The block yields urllib3's response. botocore's own `read` waits for a full block, so that a server which sends
    # single bytes would hold this thread after the deadline; `read1` returns what has arrived.
    with response["Body"] as stream:
        while part := stream.read1(READ_BYTES):
            data += part
            if len(data) > settings.max_bytes:
                raise FileTooLargeError(
                    f"{address} is larger than {settings.max_bytes:,} bytes (INGEST__MAX_BYTES): split it."
                )
            if time.monotonic() > deadline:
                raise _timeout_error(address, settings)
    length = response.get("ContentLength", len(data))
    if len(data) != length:
        raise FetchError(
            f"{address} cannot be read: it ended after {len(data):,} of {length:,} bytes. Try again later."
        )
    return bytes(data)


def _list(
    location: S3Location, address: str, settings: IngestSettings, options: ListingOptions, deadline: float
) -> Listing:
    listing, rules = Listing(), IgnoreRules(options)
    folder_name = location.key.rstrip("/").rpartition("/")[2] or location.bucket
    with _open_client(address, settings) as client:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=location.bucket, Prefix=location.key)
        for page in pages:
            if time.monotonic() > deadline:
                raise _timeout_error(address, settings)
            for item in page.get("Contents", []):
                below = str(item["Key"])[len(location.key) :]
                if not below or below.endswith("/") or ("/" in below and not options.recursive):
                    continue
                if reason := rules.check_path(below):
                    listing.ignored[reason] += 1
                    continue
                uri = location._replace(key=item["Key"]).uri
                listing.sources.append(FileSource(uri, f"{folder_name}/{below}"))
    listing.sources.sort(key=lambda source: source.name)
    return listing


@contextmanager
def _open_client(address: str, settings: IngestSettings) -> Iterator[Any]:
    """Open a client for one call, and translate the errors of boto3."""
    try:
        boto3, config, errors, http_errors = (
            import_module(name) for name in ("boto3", "botocore.config", "botocore.exceptions", "urllib3.exceptions")
        )
    except ImportError as error:
        raise MissingExtraError("s3:// needs the extra `s3`: pip install 'remstack[s3]'") from error
    try:
        client = _make_client(boto3, config, settings)
    except (ValueError, errors.BotoCoreError) as error:
        raise SettingsError(f"The S3 settings are invalid (INGEST__S3_ENDPOINT, AWS_…): {error}") from error
    try:
        yield client
    except errors.ClientError as error:
        raise _to_fetch_error(address, error.response) from error
    except errors.NoCredentialsError as error:
        raise FetchRefusedError(
            f"{address} needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
        ) from error
    except errors.ParamValidationError as error:
        raise InvalidInputError(f"{address} is not a valid S3 URI: {error}") from error
    except (errors.BotoCoreError, http_errors.HTTPError, OSError) as error:
        raise FetchError(f"{address} cannot be read: {error}. Try again later.") from error
    finally:
        client.close()


def _make_client(boto3: Any, config: Any, settings: IngestSettings) -> Any:
    session = boto3.session.Session()
    return session.client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        region_name=session.region_name or "us-east-1",
        config=config.Config(
            connect_timeout=min(10.0, settings.timeout_seconds),
            read_timeout=settings.timeout_seconds,
            retries={"total_max_attempts": 2, "mode": "standard"},
            # Servers other than Amazon's have no host name for each bucket.
            s3={"addressing_style": "path"} if settings.s3_endpoint else None,
        ),
    )


def _to_fetch_error(address: str, response: dict[str, Any]) -> Exception:
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in _MISSING_CODES:
        return FileMissingError(f"There is no {address}. Check the bucket and the key.")
    if code in _DENIED_CODES or status in (401, 403):
        return FetchRefusedError(f"{address} may not be read with these credentials ({code}).")
    if status >= 500 or status == 429 or code == "SlowDown":
        return FetchError(f"{address} cannot be read now ({code or status}): try again later.")
    return FetchRefusedError(f"{address} cannot be read: S3 answered {code or status}.")
