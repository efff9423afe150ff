"""Files from S3 and servers that speak its protocol (extra `s3`)."""

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
from rem.ingest.models import FetchedFile, FileSource, Listing, is_ignored
from rem.ingest.sources.policy import FetchPolicy
from rem.settings import IngestSettings

_PART = 1 << 20
_SCHEME = "s3://"
_MISSING = frozenset({"NoSuchKey", "NoSuchBucket", "NotFound", "404"})
_DENIED = frozenset({"AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"})
_T = TypeVar("_T")


class S3Location(NamedTuple):
    """An object, or all whose keys begin alike."""

    bucket: str
    key: str

    @property
    def uri(self) -> str:
        return f"{_SCHEME}{self.bucket}/{self.key}"

    @property
    def is_folder(self) -> bool:
        return not self.key or self.key.endswith("/")


def parse_s3_uri(address: str, reach: FetchPolicy) -> S3Location:
    """A place in a bucket that the caller may read. A key is taken as it is, without percent signs being decoded."""
    bucket, _, key = address[len(_SCHEME) :].partition("/")
    if not bucket or "@" in bucket:
        raise InvalidInputError(f"{address} is no place in S3: write it as s3://bucket/key.")
    if not reach.is_everywhere and bucket not in reach.buckets:
        raise FetchForbiddenError(
            f"The bucket {bucket} may not be read. Whoever runs REM can allow it with INGEST__S3_BUCKETS."
        )
    return S3Location(bucket, key)


async def fetch_s3(address: str, reach: FetchPolicy, settings: IngestSettings) -> FetchedFile:
    """An object of a bucket."""
    place = parse_s3_uri(address, reach)
    if place.is_folder:
        raise InvalidInputError(f"{address} is a folder: take in its files.")
    return await _in_time(address, settings, lambda deadline: _read(place, address, settings, deadline))


async def list_s3(address: str, reach: FetchPolicy, settings: IngestSettings) -> Listing:
    """The objects below a prefix that ends with a slash."""
    place = parse_s3_uri(address, reach)
    return await _in_time(address, settings, lambda deadline: _list(place, address, settings, deadline))


async def _in_time(address: str, settings: IngestSettings, work: Callable[[float], _T]) -> _T:
    """Run in a thread, which also looks at the clock itself: a thread cannot be stopped from outside."""
    deadline = time.monotonic() + settings.timeout_seconds
    try:
        async with asyncio.timeout(settings.timeout_seconds):
            return await asyncio.to_thread(work, deadline)
    except TimeoutError as error:
        raise _late(address, settings) from error


def _late(address: str, settings: IngestSettings) -> FetchError:
    return FetchError(
        f"{address} was not there within {settings.timeout_seconds:g} s: try again later, "
        "or set INGEST__TIMEOUT_SECONDS higher."
    )


def _read(place: S3Location, address: str, settings: IngestSettings, deadline: float) -> FetchedFile:
    with _client(address, settings) as client:
        answer = client.get_object(Bucket=place.bucket, Key=place.key)
        with answer["Body"] as body:
            data = _content(body, address, settings, deadline)
    name, changed = place.key.rpartition("/")[2], parse_time(answer.get("LastModified"))
    return FetchedFile(name, place.uri, data, answer.get("ContentType"), changed)


def _content(body: Any, address: str, settings: IngestSettings, deadline: float) -> bytes:
    parts: list[bytes] = []
    room = settings.max_bytes
    while part := body.read(_PART):
        room -= len(part)
        if room < 0:
            raise FileTooLargeError(
                f"{address} is larger than {settings.max_bytes:,} bytes (INGEST__MAX_BYTES): take in a smaller part."
            )
        if time.monotonic() > deadline:
            raise _late(address, settings)
        parts.append(part)
    return b"".join(parts)


def _list(place: S3Location, address: str, settings: IngestSettings, deadline: float) -> Listing:
    found = Listing()
    own_name = place.key.rstrip("/").rpartition("/")[2] or place.bucket
    with _client(address, settings) as client:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=place.bucket, Prefix=place.key)
        for page in pages:
            if time.monotonic() > deadline:
                raise _late(address, settings)
            for item in page.get("Contents", []):
                below = str(item["Key"])[len(place.key) :]
                if below and not below.endswith("/") and not any(map(is_ignored, below.split("/"))):
                    found.sources.append(FileSource(place._replace(key=item["Key"]).uri, f"{own_name}/{below}"))
    found.sources.sort(key=lambda source: source.name)
    return found


@contextmanager
def _client(address: str, settings: IngestSettings) -> Iterator[Any]:
    """A client of its own for one call; whatever goes wrong with it is said in our words."""
    try:
        boto3, config, errors = (import_module(name) for name in ("boto3", "botocore.config", "botocore.exceptions"))
    except ImportError as error:
        raise MissingExtraError("s3:// needs another part of REM: pip install 'remstack[s3]'") from error
    try:
        client = _connected(boto3, config, settings)
    except (ValueError, errors.BotoCoreError) as error:
        raise SettingsError(f"S3 cannot be used as it is set up (INGEST__S3_ENDPOINT, AWS_…): {error}") from error
    try:
        yield client
    except errors.ClientError as error:
        raise _refused(address, error.response) from error
    except errors.NoCredentialsError as error:
        raise FetchRefusedError(
            f"{address} needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
        ) from error
    except errors.ParamValidationError as error:
        raise InvalidInputError(f"{address} is no place in S3: {error}") from error
    except (errors.BotoCoreError, OSError) as error:
        raise FetchError(f"{address} cannot be read: {error}. Try again later.") from error
    finally:
        client.close()


def _connected(boto3: Any, config: Any, settings: IngestSettings) -> Any:
    session = boto3.session.Session()
    return session.client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        region_name=session.region_name or "us-east-1",
        config=config.Config(
            connect_timeout=min(10.0, settings.timeout_seconds),
            read_timeout=settings.timeout_seconds,
            retries={"total_max_attempts": 2, "mode": "standard"},
            # Other servers than Amazon's have no name for each bucket.
            s3={"addressing_style": "path"} if settings.s3_endpoint else None,
        ),
    )


def _refused(address: str, response: dict[str, Any]) -> Exception:
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in _MISSING:
        return FileMissingError(f"There is no {address}. Check the bucket and the key.")
    if code in _DENIED or status in (401, 403):
        return FetchRefusedError(f"{address} may not be read with these credentials ({code}).")
    if status >= 500 or status == 429 or code == "SlowDown":
        return FetchError(f"{address} cannot be read now ({code or status}): try again later.")
    return FetchRefusedError(f"{address} cannot be read: S3 answered {code or status}.")
