"""Google Cloud Storage."""

import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.parser import BytesParser
from typing import Any, BinaryIO, ClassVar, cast
from urllib.parse import quote, urlencode
from uuid import uuid4

import aiohttp
from fsspec.asyn import sync
from gcsfs.core import GCSFile, GCSFileSystem
from gcsfs.retry import HttpError
from google.auth.exceptions import GoogleAuthError, TransportError
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random_exponential

from dbio_commit.base.errors import AccessDeniedError, DbioError, ObjectNotFoundError, StoreError
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.protocol.names import split
from dbio_commit.store.base import (
    BATCHES,
    CONCURRENCY,
    FsspecStore,
    Listing,
    Tail,
    Unfinished,
    tail_of,
    too_large,
    within,
    without_user,
)
from dbio_commit.store.location import Location
from dbio_commit.store.upload import Download

PAGE = 1000
"""Objects in one page of a listing: the service's limit."""

READ_BYTES = 1024 * 1024
"""Fetched at least, where a stream is read in small pieces."""

_NO_BUCKET = "bucket does not exist"  # what else is not there is an object


class GcsStore(FsspecStore):
    """`put_if_absent` is one POST with ifGenerationMatch=0. Credentials and connections are gcsfs's.

    The requests are of the JSON API, and made here: gcsfs looks twice for what it opens, and does not say which of many
    objects it could not delete.
    """

    delete_batch: ClassVar[int] = 100  # the service's limit
    lists_ranges = True

    def __init__(self, location: Location, storage_options: Mapping[str, Any]) -> None:
        super().__init__(location.url, storage_options)
        self._bucket, self._prefix = location.container, location.key_prefix

    def identify(self) -> str:
        return f"gs:{without_user(self.fs._location)}:{self._bucket}"

    def connect(self) -> Any:
        token = self.storage_options.get("token")
        if isinstance(token, str) and token.startswith(("/", "~")) and not os.path.exists(token):
            raise ValueError("there is no such key file here")  # gcsfs would send its path to Google, as a token
        # With aiohttp's own time-out a silent server is waited for five minutes, each time.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=15)
        return _FileSystem(**{"requests_timeout": timeout, **self.storage_options, "use_listings_cache": False})

    def list_log(self, *prefixes: str) -> list[Entry]:
        wanted = prefixes or ("_",)
        return [entry for entry in self._list_range(min(wanted), max(wanted)) if entry.path.startswith(wanted)]

    def list_log_from(self, name: str, prefix: str) -> list[Entry]:
        return self._list_range(name, prefix)

    def stat_log(self, *names: str) -> dict[str, Entry]:
        return {entry.path: entry for entry in self._list_range(min(names), max(names)) if entry.path in names}

    def _list_range(self, first: str, last: str) -> list[Entry]:
        """What is at the root from the name, or prefix, `first` to all that starts with `last`."""
        return self._list("", self._prefix, flat=False, first=first, last=last).entries

    def list_files(self, under: str = "", *, links: bool = True) -> list[Entry]:
        return self._list(under, self._prefix_of(under), flat=True).entries

    def list_below(self, directories: Sequence[str]) -> list[Entry]:
        """One listing, from the first to the last of them: give it neighbours."""
        if len(directories) < 2:
            return super().list_below(directories)
        starts = sorted(f"{directory}/" for directory in directories)
        return within(self._list("", self._prefix, flat=True, first=starts[0], last=starts[-1]).entries, directories)

    def neighbours(self, directories: Sequence[str], most: int) -> list[Sequence[str]]:
        size = max(1, -(-len(directories) // most))
        return [directories[start : start + size] for start in range(0, len(directories), size)]

    def list_directory(self, under: str = "") -> Listing:
        return self._list(under, self._prefix_of(under), flat=False)

    def _list(self, under: str, prefix: str, *, flat: bool, first: str = "", last: str = "") -> Listing:
        """All that starts with the prefix, in pages; of that, what is not before `first`, nor after all of `last`."""
        options: dict[str, Any] = {
            "prefix": prefix,
            "delimiter": None if flat else "/",
            "startOffset": self._prefix + first if first else None,
            "endOffset": self._prefix + _just_after(last) if last else None,
            "fields": "items(name,size,timeCreated),prefixes,nextPageToken",
            "maxResults": PAGE,
        }

        def list_pages() -> Listing:
            found, token = Listing([], []), None
            while True:
                page = self._ask("GET", "b/{}/o", self._bucket, **options, pageToken=token)
                for item in page.get("items", ()):
                    path = item["name"].removeprefix(self._prefix)
                    if path and not path.endswith("/"):  # consoles create "directories" as empty objects
                        found.entries.append(_entry(path, item))
                for name in page.get("prefixes", ()):
                    path = name.removeprefix(self._prefix)[:-1]
                    if split(path)[1]:  # no directory lacks a name
                        found.directories.append(path)
                before, token = token, page.get("nextPageToken")
                if not token:
                    return found
                if token == before:
                    raise OSError("the service answers with the same page of a listing for ever")

        return self.call("list", under, list_pages)

    def keeps_versions(self) -> bool:
        def ask() -> bool:
            found = self._ask("GET", "b/{}", self._bucket, fields="versioning,softDeletePolicy")
            kept_s = int(found.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0))
            return bool(found.get("versioning", {}).get("enabled")) or kept_s > 0

        with suppress(DbioError):
            return self.call("ask for the versioning of", "", ask)
        return False

    def list_unfinished(self) -> list[Unfinished]:
        return []  # the service lists none, and drops the session of an upload a week after it began

    def abort_unfinished(self, items: Sequence[Unfinished]) -> dict[str, StoreError]:
        return {}

    def get(self, path: str, *, limit_bytes: int = MAX_BYTES) -> bytes:
        body = self.get_range(path, 0, limit_bytes + 1)
        if len(body) > limit_bytes:
            raise too_large(self.url_of(path), limit_bytes)
        return body

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self.unless_absent("read", path, lambda: self._read(path, start, length))

    def _read(self, path: str, start: int, length: int, generation: str | None = None) -> bytes:
        """Fewer bytes where the object ends before."""
        return self._download(path, f"{start}-{start + length - 1}", generation)[1] if length > 0 else b""

    def get_tail(self, path: str, length: int) -> Tail:
        def get() -> Tail:
            headers, body = self._download(path, f"-{length}")
            return tail_of(body, headers.get("Content-Range"), length)

        return self.unless_absent("read", path, get)

    def _download(self, path: str, range: str, generation: str | None = None) -> tuple[Mapping[str, str], bytes]:
        """The answer's headers, and the bytes; none where nothing is there."""
        where = f"{self.fs._location}/download/storage/v1/b/{{}}/o/{{}}"
        options = {"alt": "media", "generation": generation, "headers": {"Range": f"bytes={range}"}}
        try:
            return cast(
                tuple[Mapping[str, str], bytes],
                self._ask("GET", where, *self._object(path), json_out=False, **options),
            )
        except HttpError as error:
            if error.code == 416:  # also of an empty object
                return {}, b""
            raise

    def stat(self, path: str) -> Entry:
        return self.unless_absent("look at", path, lambda: _entry(path, self._look_at(path)))

    def lists(self, path: str) -> bool:
        return any(it.path == path for it in self._list(path, self._prefix + path, flat=False).entries)

    def _look_at(self, path: str) -> dict[str, str]:
        found = self._ask("GET", "b/{}/o/{}", *self._object(path), fields="size,timeCreated,generation")
        return cast(dict[str, str], found)

    def open_read(self, path: str) -> BinaryIO:
        def look() -> BinaryIO:
            found = self._look_at(path)
            return cast(BinaryIO, _Ranges(self, path, int(found["size"]), found["generation"]))

        return cast(BinaryIO, Download(look, lambda function: self.unless_absent("read", path, function)))

    def put_if_absent(self, path: str, body: bytes) -> bool:
        def put() -> bool:
            try:
                sync(self.fs.loop, self.fs.upload, *self._object(path), body, ifGenerationMatch="0")
            except HttpError as error:
                if error.code == 412:
                    return False
                raise
            return True

        return self.call("create", path, put)

    def delete_same(self, path: str, body: bytes) -> bool:
        def delete() -> bool:
            try:
                self._ask(
                    "DELETE", "b/{}/o/{}", *self._object(path), json_out=False, ifGenerationMatch=found["generation"]
                )
            except HttpError as error:
                if error.code == 412:
                    return False
                raise
            return True

        try:
            found = self.unless_absent("look at", path, lambda: self._look_at(path))
            return self.get(path) == body and self.call("delete", path, delete)
        except ObjectNotFoundError:
            return True

    def delete_many(self, paths: Sequence[str]) -> dict[str, StoreError]:
        return self.in_batches(self._delete_batch, paths)

    def _delete_batch(self, paths: Sequence[str]) -> dict[str, StoreError]:
        """One request. What it left, for whatever reason, is asked for singly, as often as that may be repeated."""
        if len(paths) == 1:
            return self._delete_singly(paths)
        try:
            left = self.call(f"delete {len(paths)} objects of", "", lambda: self._delete_together(paths))
        except StoreError as error:
            refusals = self._delete_singly(ends := [*{paths[0], paths[-1]}])
            if len(refusals) == len(ends):
                return dict.fromkeys(paths, error)
            # It was about requests for many, which some services do not have.
            return refusals | self._delete_singly([path for path in paths if path not in ends])
        return self._delete_singly(left)

    def _delete_together(self, paths: Sequence[str]) -> list[str]:
        """Returns those that the service does not say to be gone."""
        payer = f"?{urlencode(query)}" if (query := self.fs._get_params({})) else ""
        urls = [f"/storage/v1/b/{quote(self._bucket, '')}/o/{quote(self._prefix + it, '')}{payer}" for it in paths]
        boundary = uuid4().hex
        headers, answer = self._ask(
            "POST",
            f"{self.fs._location}/batch/storage/v1",
            json_out=False,
            data=_deletions(urls, boundary),
            headers={"Content-Type": f"multipart/mixed; boundary={boundary}"},
        )
        gone = _gone(headers.get("Content-Type", ""), answer)
        return [path for number, path in enumerate(paths) if number not in gone]

    def _delete_singly(self, paths: Sequence[str]) -> dict[str, StoreError]:
        def delete(path: str) -> StoreError | None:
            try:
                self.call("delete", path, lambda: self._ask("DELETE", "b/{}/o/{}", *self._object(path), json_out=False))
            except ObjectNotFoundError:
                return None
            except StoreError as error:
                return error
            return None

        failures = zip(paths, self.in_parallel(delete, paths, at_once=CONCURRENCY // BATCHES), strict=True)
        return {path: error for path, error in failures if error}

    def translate(self, error: BaseException, action: str, path: str) -> DbioError | None:
        message = self.failure(action, path, error)
        if isinstance(error, FileNotFoundError) and _NO_BUCKET in str(error):
            return StoreError(f"{message}; check the bucket's name")
        if isinstance(error, FileNotFoundError) and action not in ("create", "write"):  # whose session may be gone
            return ObjectNotFoundError(message)
        refused = isinstance(error, HttpError) and error.code in (401, 403)
        unknown = isinstance(error, GoogleAuthError) and not isinstance(error, TransportError)
        if refused or unknown or isinstance(error, PermissionError):
            return AccessDeniedError(
                f"{message}; give credentials with access to it: environment, service account or storage_options"
            )
        passing = OSError | HttpError | aiohttp.ClientError | TransportError | TimeoutError | json.JSONDecodeError
        if isinstance(error, passing):
            return StoreError(f"{message}; check the service and the network, then try again")
        if isinstance(error, ValueError) and not self._fs:  # gcsfs, when it connects
            return AccessDeniedError(f"{message}; give a token: the path of a key file, or what gcsfs knows besides")
        return None

    def location(self, path: str) -> str:
        return f"{self._bucket}/{self._prefix}{path}"

    def _object(self, path: str) -> tuple[str, str]:
        return self._bucket, self._prefix + path

    def _ask(self, method: str, url: str, *names: str, json_out: bool = True, **options: Any) -> Any:
        """The answer's JSON, or else its headers and body. `names` go into the URL, quoted; None is no option."""
        return sync(self.fs.loop, self.fs._call, method, url, *names, json_out=json_out, **options)


_BUSY = {408, 429, 500, 502, 503, 504}


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, HttpError):
        return error.code in _BUSY
    return isinstance(error, aiohttp.ClientError | TransportError | TimeoutError)


class _FileSystem(GCSFileSystem):  # type: ignore[misc]
    """Its errors keep what the service says; it tries less often; and what it reads is what is stored."""

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
        cache_type: object = None,  # of readers of gcsfs's own
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
            # Else the service may decompress what is stored compressed, all of it, whatever the range.
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
        """An object by one request, whatever its size."""
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
    """Where it is closed before it has a block of bytes, they are one request; gcsfs would take two."""

    def _initiate_upload(self) -> None:
        if self.tell() >= self.blocksize or not self.forced:
            super()._initiate_upload()
            update = self.checker.update  # of older versions, with None where the file ends with a block
            self.checker.update = lambda data: update(data or b"")

    def _upload_chunk(self, final: bool = False) -> bool:
        if self.location is not None:
            return cast(bool, super()._upload_chunk(final))
        sync(self.gcsfs.loop, self.gcsfs.upload, self.bucket, self.key, self.buffer.getvalue())
        return True


class _Ranges(io.RawIOBase):
    """The bytes of one generation of an object: a large piece is one request, and small neighbours are one together."""

    def __init__(self, store: GcsStore, path: str, size: int, generation: str) -> None:
        self._store, self._path, self._size, self._generation = store, path, size, generation
        self._place = 0
        self._kept, self._kept_from = b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def read(self, size: int = -1, /) -> bytes:
        start = self._place
        end = self._size if size < 0 else min(start + size, self._size)
        found = self._fetch(start, end) if end - start >= READ_BYTES else self._small(start, end)
        self._place += len(found)
        return found

    def _small(self, start: int, end: int) -> bytes:
        if start < self._kept_from or end > self._kept_from + len(self._kept):
            self._kept, self._kept_from = self._fetch(start, min(start + READ_BYTES, self._size)), start
        return self._kept[start - self._kept_from : max(start, end) - self._kept_from]

    def _fetch(self, start: int, end: int) -> bytes:
        return self._store._read(self._path, start, end - start, self._generation)


def _entry(path: str, found: Mapping[str, str]) -> Entry:
    """With the time at which this generation was created: `updated` is also that of a change of metadata."""
    return Entry(path, int(found["size"]), datetime.fromisoformat(found["timeCreated"]).astimezone(UTC))


def _just_after(name: str) -> str:
    """What sorts after all that starts with the name, and next to nothing in between."""
    return name[:-1] + chr(ord(name[-1]) + 1)


def _refusal(status: int, body: bytes) -> Exception:
    said = body.decode(errors="replace")
    with suppress(ValueError, LookupError, TypeError):  # downloads and proxies answer otherwise
        said = str(json.loads(said)["error"]["message"])
    return FileNotFoundError(said) if status == 404 else HttpError({"code": status, "message": said})


def _deletions(urls: Sequence[str], boundary: str) -> bytes:
    """The body of a request that deletes many objects."""
    parts = (
        f"--{boundary}\r\nContent-Type: application/http\r\nContent-ID: <dbio+{number}>\r\n\r\n"
        f"DELETE {url} HTTP/1.1\r\n\r\n\r\n"
        for number, url in enumerate(urls)
    )
    return f"{''.join(parts)}--{boundary}--\r\n".encode()


_NUMBER = re.compile(r"\+(\d{1,9})>\s*$")
_GONE = re.compile(rf"HTTP/[\d.]+ (?:2\d\d|404(?!.*{_NO_BUCKET}))\b", re.DOTALL)


def _gone(content_type: str, answer: bytes) -> set[int]:
    """The numbers of the objects that the service deleted or did not find."""
    message = BytesParser().parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode() + answer)
    numbers = set()
    for part in message.walk():
        number = _NUMBER.search(str(part.get("Content-ID", "")))
        if number and _GONE.match(str(part.get_payload()).lstrip()):
            numbers.add(int(number[1]))
    return numbers
