"""The client of Google Cloud Storage: gcsfs with other retries, requests for ranges and error messages."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

import aiohttp
from fsspec.asyn import sync
from gcsfs.core import GCSFile, GCSFileSystem
from gcsfs.retry import HttpError
from google.auth.exceptions import TransportError
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random_exponential

_BUSY = {408, 429, 500, 502, 503, 504}


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, HttpError):
        return error.code in _BUSY
    return isinstance(error, aiohttp.ClientError | TransportError | TimeoutError)


class FileSystem(GCSFileSystem):  # type: ignore[misc]
    """gcsfs, but errors have the service's message, requests are repeated less often, and objects are read as
    stored."""

    @retry(
        retry=retry_if_exception(_may_pass),
        stop=stop_after_attempt(5),
        wait=wait_random_exponential(max=8),
        reraise=True,
    )
    async def _request(
        self,
        method: str,
        path: str,
        *args: str,
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        data: Any = None,
        cache_type: object = None,  # for gcsfs's own readers
        cache_source: object = None,
        **params: Any,
    ) -> tuple[int, Any, Any, bytes]:
        await self._set_session()
        if hasattr(data, "seek"):
            data.seek(0)
        ranged = headers is not None and "Range" in headers
        async with self.session.request(
            method,
            self._format_path(path, args),
            params=self._get_params(params),
            json=json,
            # Otherwise the service may decompress an object that is stored compressed, and send all of it.
            headers=self._get_headers({**headers, "Accept-Encoding": "gzip"} if headers and ranged else headers),
            auto_decompress=not ranged,
            data=data,
            timeout=self.requests_timeout,
        ) as answer:
            if answer.status >= 400:
                raise _refusal(answer.status, await answer.read())
            if ranged and answer.status != 206 and answer.content_length != 0:
                raise OSError(f"the service answers {answer.status} where 206 is expected: it has no ranges")
            return answer.status, answer.headers, answer.request_info, await answer.read()

    async def upload(self, bucket: str, key: str, body: bytes, **conditions: str) -> None:
        """Creates an object by one request, of any size."""
        await self._call(
            "POST",
            f"{self._location}/upload/storage/v1/b/{{}}/o",
            bucket,
            name=key,
            uploadType="media",
            fields="generation",
            headers={"Content-Type": "application/octet-stream"},
            data=body,
            **conditions,
        )

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any) -> Any:
        return _File(self, path, mode, block_size or self.default_block_size, **options)


class _File(GCSFile):  # type: ignore[misc]
    """A file that sends one request if it is closed before it has a block of bytes. gcsfs would send two."""

    def _initiate_upload(self) -> None:
        if self.tell() >= self.blocksize or not self.forced:
            super()._initiate_upload()
            update = self.checker.update  # older versions call it with None if the file ends with a block
            self.checker.update = lambda data: update(data or b"")

    def _upload_chunk(self, final: bool = False) -> bool:
        if self.location is not None:
            return cast(bool, super()._upload_chunk(final))
        sync(self.gcsfs.loop, self.gcsfs.upload, self.bucket, self.key, self.buffer.getvalue())
        return True


def _refusal(status: int, body: bytes) -> Exception:
    message = body.decode(errors="replace")
    with suppress(ValueError, LookupError, TypeError):  # downloads and proxies do not answer with JSON
        message = str(json.loads(message)["error"]["message"])
    return FileNotFoundError(message) if status == 404 else HttpError({"code": status, "message": message})
