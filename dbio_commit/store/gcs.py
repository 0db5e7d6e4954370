"""The store on Google Cloud Storage, by its JSON API."""

import io
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.parser import BytesParser
from typing import Any, BinaryIO, ClassVar, Self, cast
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
from dbio_commit.store.contract import Listing, Tail, Unfinished, too_large
from dbio_commit.store.fsspec_store import FsspecStore, tail_of, without_user
from dbio_commit.store.paths import within
from dbio_commit.store.upload import Download

PAGE = 1000
"""Objects in one page of a listing: the service's limit."""

COPY_BYTES = 256 * 1024**2
"""The most bytes that the service copies to another location in one request."""

READ_BYTES = 1024 * 1024
"""The fewest bytes that are fetched if a stream is read in small pieces."""


class GcsStore(FsspecStore):
    """`put_if_absent` is one POST with ifGenerationMatch=0. gcsfs has the credentials and connections.

    This class makes the requests of the JSON API itself. gcsfs asks twice for an object that it opens, and does not
    report which of many objects it could not delete.
    """

    delete_batch: ClassVar[int] = 100  # the service's limit

    def identify(self) -> str:
        return f"gs:{without_user(self.fs._location)}:{self._container}"

    def connect(self) -> Any:
        token = self.storage_options.get("token")
        if isinstance(token, str) and token.startswith(("/", "~")) and not os.path.exists(token):
            raise ValueError("there is no such key file here")  # gcsfs would send its path to Google, as a token
        # With aiohttp's own time-out, each request to a silent server would wait for five minutes.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=15)
        return FileSystem(**{"requests_timeout": timeout, **self.storage_options, "use_listings_cache": False})

    def list_log(self, *prefixes: str) -> list[Entry]:
        wanted = prefixes or ("_",)
        return [entry for entry in self._list_range(min(wanted), max(wanted)) if entry.path.startswith(wanted)]

    def list_log_from(self, name: str, prefix: str) -> list[Entry]:
        return self._list_range(name, prefix)

    def stat_log(self, *names: str) -> dict[str, Entry]:
        return {entry.path: entry for entry in self._list_range(min(names), max(names)) if entry.path in names}

    def _list_range(self, first: str, last: str) -> list[Entry]:
        """The objects at the root from the name or prefix `first` to all that start with `last`."""
        return self._list("", self._prefix, flat=False, first=first, last=last).entries

    def list_files(self, under: str = "", *, links: bool = True) -> list[Entry]:
        return self._list(under, self.prefix_of(under), flat=True).entries

    def list_below(self, directories: Sequence[str]) -> list[Entry]:
        """One listing, from the first of the directories to the last: pass a group of `neighbours`."""
        if len(directories) < 2:
            return super().list_below(directories)
        starts = sorted(f"{directory}/" for directory in directories)
        return within(self._list("", self._prefix, flat=True, first=starts[0], last=starts[-1]).entries, directories)

    def list_directory(self, under: str = "") -> Listing:
        return self._list(under, self.prefix_of(under), flat=False)

    def _list(self, under: str, prefix: str, *, flat: bool, first: str = "", last: str = "") -> Listing:
        """All that starts with the prefix, in pages.

        `first` leaves out what sorts before it, `last` what sorts after all that starts with it.
        """
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
                page = self._ask("GET", "b/{}/o", self._container, **options, pageToken=token)
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
                    raise OSError("the service answers with the same page of a listing again and again")

        return self.call("list", under, list_pages)

    def keeps_versions(self) -> bool:
        def ask() -> bool:
            found = self._ask("GET", "b/{}", self._container, fields="versioning,softDeletePolicy")
            kept_s = int(found.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0))
            return bool(found.get("versioning", {}).get("enabled")) or kept_s > 0

        with suppress(DbioError):
            return self.call("ask for the versioning of", "", ask)
        return False

    def list_unfinished(self) -> list[Unfinished]:
        return []  # the service does not list them, and drops the session of an upload a week after it began

    def abort_unfinished(self, items: Sequence[Unfinished]) -> dict[str, StoreError]:
        return {}

    def get(self, path: str, *, limit_bytes: int = MAX_BYTES) -> bytes:
        body = self.get_some(path, 0, limit_bytes + 1)
        if len(body) > limit_bytes:
            raise too_large(self.url_of(path), limit_bytes)
        return body

    def get_some(self, path: str, start: int, length: int) -> bytes:
        return self.unless_absent("read", path, lambda: self._read(path, start, length))

    def _read(self, path: str, start: int, length: int, generation: str | None = None) -> bytes:
        """`length` bytes, or fewer if the object ends before."""
        return self._download(path, f"{start}-{start + length - 1}", generation)[1] if length > 0 else b""

    def get_tail(self, path: str, length: int) -> Tail:
        def get() -> Tail:
            headers, body = self._download(path, f"-{length}")
            return tail_of(body, headers.get("Content-Range"), length)

        return self.unless_absent("read", path, get)

    def _download(self, path: str, range: str, generation: str | None = None) -> tuple[Mapping[str, str], bytes]:
        """The answer's headers and bytes. Both are empty if the object has nothing in this range."""
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
        return self._on_condition(
            "create", path, lambda: sync(self.fs.loop, self.fs.upload, *self._object(path), body, ifGenerationMatch="0")
        )

    def copy_within(self, source: Self, path: str, copy: str) -> bool:
        where, token = "b/{}/o/{}/rewriteTo/b/{}/o/{}", None
        names = (*source._object(path), *self._object(copy))
        while True:  # one request, unless the bucket is in another location or of another class
            answer = self._ask("POST", where, *names, rewriteToken=token, maxBytesRewrittenPerCall=COPY_BYTES)
            if answer.get("done"):
                return True
            before, token = token, answer.get("rewriteToken")
            if not token or (token == before and not int(answer.get("totalBytesRewritten", 0))):
                raise OSError("the service neither copies the object nor says how to go on")

    def delete_same(self, path: str, body: bytes) -> bool:
        try:
            generation = self.unless_absent("look at", path, lambda: self._look_at(path))["generation"]
            return self.get(path) == body and self._on_condition(
                "delete", path, lambda: self._delete(path, ifGenerationMatch=generation)
            )
        except ObjectNotFoundError:
            return True

    def _on_condition(self, action: str, path: str, request: Callable[[], object]) -> bool:
        """Sends a conditional request. False if its condition was not met."""

        def send() -> bool:
            try:
                request()
            except HttpError as error:
                if error.code == 412:
                    return False
                raise
            return True

        return self.call(action, path, send)

    def delete_together(self, paths: Sequence[str]) -> dict[str, StoreError]:
        """Sends one request. Objects that it left are deleted singly: single requests are repeated if the service is
        busy."""
        if len(paths) == 1:
            return self.delete_singly(paths)
        try:
            left = self.call(f"delete {len(paths)} objects of", "", lambda: self._delete_by_one_request(paths))
        except StoreError as error:
            return self.delete_refused(paths, error)
        return self.delete_singly(left)

    def _delete_by_one_request(self, paths: Sequence[str]) -> list[str]:
        """Returns the paths that the answer does not confirm as deleted."""
        payer = f"?{urlencode(query)}" if (query := self.fs._get_params({})) else ""
        urls = [f"/storage/v1/b/{quote(self._container, '')}/o/{quote(self._prefix + it, '')}{payer}" for it in paths]
        boundary = uuid4().hex
        headers, answer = self._ask(
            "POST",
            f"{self.fs._location}/batch/storage/v1",
            json_out=False,
            data=_format_deletions(urls, boundary),
            headers={"Content-Type": f"multipart/mixed; boundary={boundary}"},
        )
        gone = parse_deleted(headers.get("Content-Type", ""), answer)
        return [path for number, path in enumerate(paths) if number not in gone]

    def delete_one(self, path: str) -> object:
        return self._delete(path)

    def _delete(self, path: str, **conditions: str) -> object:
        return self._ask("DELETE", "b/{}/o/{}", *self._object(path), json_out=False, **conditions)

    def translate(self, error: BaseException, action: str, path: str) -> DbioError | None:
        message = self.failure(action, path, error)
        if isinstance(error, FileNotFoundError) and _NO_BUCKET in str(error):
            return StoreError(f"{message}; check the bucket's name")
        if isinstance(error, FileNotFoundError) and action not in ("create", "write"):  # there, an upload may be gone
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
        if isinstance(error, ValueError) and not self._fs:  # gcsfs raises it when it connects
            return AccessDeniedError(f"{message}; give a token: the path of a key file, or another that gcsfs accepts")
        return None

    def _object(self, path: str) -> tuple[str, str]:
        return self._container, self._prefix + path

    def _ask(self, method: str, url: str, *names: str, json_out: bool = True, **options: Any) -> Any:
        """The answer's JSON, or with `json_out=False` its headers and body.

        `names` are quoted and go into the URL. An option that is None is left out.
        """
        return sync(self.fs.loop, self.fs._call, method, url, *names, json_out=json_out, **options)


class _Ranges(io.RawIOBase):
    """The bytes of one generation of an object. A large read is one request; small neighbouring reads share one."""

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
    """The object with the time of its creation: `updated` also changes with metadata."""
    return Entry(path, int(found["size"]), datetime.fromisoformat(found["timeCreated"]).astimezone(UTC))


def _just_after(name: str) -> str:
    """A text that sorts shortly after all that starts with the name."""
    return name[:-1] + chr(ord(name[-1]) + 1)


# --- batch requests, which delete many objects at once: bodies and answers in MIME ------------------------------------


_NO_BUCKET = "bucket does not exist"
"""Part of the service's message for 404 if the bucket is missing. Any other 404 is about an object."""


def _format_deletions(urls: Sequence[str], boundary: str) -> bytes:
    """The body of a request that deletes many objects, which are numbered from 0."""
    parts = (
        f"--{boundary}\r\nContent-Type: application/http\r\nContent-ID: <dbio+{number}>\r\n\r\n"
        f"DELETE {url} HTTP/1.1\r\n\r\n\r\n"
        for number, url in enumerate(urls)
    )
    return f"{''.join(parts)}--{boundary}--\r\n".encode()


_NUMBER = re.compile(r"\+(\d{1,9})>\s*$")
_GONE = re.compile(rf"HTTP/[\d.]+ (?:2\d\d|404(?!.*{_NO_BUCKET}))\b", re.DOTALL)


def parse_deleted(content_type: str, answer: bytes) -> set[int]:
    """The numbers of the objects that the service deleted or did not find, from its answer."""
    message = BytesParser().parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode() + answer)
    numbers = set()
    for part in message.walk():
        number = _NUMBER.search(str(part.get("Content-ID", "")))
        if number and _GONE.match(str(part.get_payload()).lstrip()):
            numbers.add(int(number[1]))
    return numbers


# --- the client: gcsfs with other retries, requests for ranges and error messages ------------------------------------


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
