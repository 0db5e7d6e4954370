"""The client of S3: s3fs with fewer retries and round trips, and what its answers and errors contain."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import s3fs
from aiohttp import ClientError as AioHttpError
from botocore.exceptions import ClientError
from botocore.handlers import add_expect_header
from fsspec.asyn import sync_wrapper
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt


class FileSystem(s3fs.S3FileSystem):  # type: ignore[misc]
    retries = 2  # each is up to five attempts of botocore: with s3fs's own 5, a silent server would take 6 minutes

    async def set_session(self, refresh: bool = False, kwargs: Mapping[str, Any] = MappingProxyType({})) -> Any:
        before = self._s3
        client = await super().set_session(refresh, kwargs)
        if client is not before:
            # "Expect: 100-continue" costs a round trip, and aiohttp waits for its answer without a time-out.
            client.meta.events.unregister("before-call.s3", add_expect_header)
        return client

    connect = sync_wrapper(set_session)
    """Called by the property `s3`. The one that it inherits would not call the `set_session` above."""


async def first_bytes(body: Any, most: int) -> bytes:
    """The first bytes of an answer's body, which is then closed."""
    found = bytearray()
    async with body:  # older versions of aiobotocore give the response within it: so use `body` itself
        while len(found) < most and (chunk := await body.read(most - len(found))):
            found += chunk
    return bytes(found)


def again() -> Retrying:
    """Repeats a request whose answer breaks off, as s3fs does for its own requests."""
    return Retrying(retry=retry_if_exception_type(AioHttpError), stop=stop_after_attempt(3), reraise=True)


def status_of(error: BaseException) -> int | None:
    """The HTTP status of the answer that the error is about."""
    status: int | None = _response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status


def code_of(error: BaseException) -> str:
    """The service's error code, such as "NoSuchKey", or ""."""
    return str(_response(error).get("Error", {}).get("Code", ""))


def _response(error: BaseException) -> Mapping[str, Any]:
    source = error if isinstance(error, ClientError) else error.__cause__
    return source.response if isinstance(source, ClientError) else {}
