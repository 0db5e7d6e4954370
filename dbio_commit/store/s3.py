"""Amazon S3, and what speaks its protocol with If-None-Match."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, BinaryIO, cast

import s3fs
from aiohttp import ClientError as AioHttpError
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from botocore.handlers import add_expect_header
from fsspec.asyn import sync, sync_wrapper
from tenacity import Retrying, retry_if_exception_type, retry_if_result, stop_after_attempt, wait_random_exponential

from dbio_commit.base.errors import AccessDeniedError, DbioError, ObjectNotFoundError, StoreError
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.protocol.names import split
from dbio_commit.store.base import (
    BATCHES,
    CONCURRENCY,
    ClientFailure,
    FsspecStore,
    Listing,
    Tail,
    Unfinished,
    common_start,
    tail_of,
    too_large,
    within,
    without_user,
)
from dbio_commit.store.location import Location
from dbio_commit.store.upload import Download

_NOT_IN_XML = re.compile("[\x00-\x1f\x7f\ufffe\uffff]")  # some of these it has; their way back is no plain one

_DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "401", "403"}
_ABSENT = {"NoSuchKey", "NoSuchUpload", "404"}
_BUSY = {"SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "Throttling", "500", "503"}


_NO_SUCH_REQUEST = "this service does not have such a request, or not a header of it; use another service"
_NO_CONDITION = (
    "this service does not have If-None-Match (501), which a commit needs: use one with conditional writes (S3, MinIO, "
    "Ceph); or it does not have the checksums that the client sends, then set config_kwargs="
    "{'request_checksum_calculation': 'when_required'} in storage_options"
)


class S3Store(FsspecStore):
    """`put_if_absent` is one PUT with If-None-Match: *. Credentials and connections are s3fs's."""

    def __init__(self, location: Location, storage_options: Mapping[str, Any]) -> None:
        super().__init__(location.url, storage_options)
        self._bucket, self._prefix = location.container, location.key_prefix

    def identify(self) -> str:
        return f"s3:{without_user(self.fs.s3.meta.endpoint_url)}:{self._bucket}"

    lists_ranges = True

    def connect(self) -> Any:
        options = dict(self.storage_options)
        config = {"max_pool_connections": 64, **options.pop("config_kwargs", {})}
        return _FileSystem(**{**options, "use_listings_cache": False, "config_kwargs": config})

    def list_log(self, *prefixes: str) -> list[Entry]:
        wanted = prefixes or ("_",)
        found = self._list_range(min(wanted), max(wanted))
        return [entry for entry in found if entry.path.startswith(wanted)]

    def list_log_from(self, name: str, prefix: str) -> list[Entry]:
        before = self._prefix + _just_before(name)
        return self._list("", self._prefix + prefix, Delimiter="/", StartAfter=before).entries

    def stat_log(self, *names: str) -> dict[str, Entry]:
        return {entry.path: entry for entry in self._list_range(min(names), max(names)) if entry.path in names}

    def _list_range(self, first: str, last: str) -> list[Entry]:
        """What is at the root from the name, or prefix, `first` up to `last`; on the last page more than that."""
        if first == last:
            return self._list("", self._prefix + first, Delimiter="/").entries
        prefix = self._prefix + common_start([first, last])
        before = self._prefix + _just_before(first)
        return self._list("", prefix, until=self._prefix + last, Delimiter="/", StartAfter=before).entries

    def list_files(self, under: str = "", *, links: bool = True) -> list[Entry]:
        return self._list(under, self._prefix_of(under)).entries

    def list_below(self, directories: Sequence[str]) -> list[Entry]:
        """One listing, from the first to the last of them: give it neighbours."""
        if len(directories) < 2:
            return super().list_below(directories)
        starts = sorted(self._prefix_of(directory) for directory in directories)
        found = self._list("", self._prefix, until=starts[-1], StartAfter=_just_before(starts[0])).entries
        return within(found, directories)

    def neighbours(self, directories: Sequence[str], most: int) -> list[Sequence[str]]:
        size = max(1, -(-len(directories) // most))
        return [directories[start : start + size] for start in range(0, len(directories), size)]

    def list_directory(self, under: str = "") -> Listing:
        return self._list(under, self._prefix_of(under), Delimiter="/")

    def _list(self, under: str, prefix: str, *, until: str = "", **options: str) -> Listing:
        """All that starts with the prefix, in pages; no page more once one has come to what is after `until`."""
        found = Listing([], [])

        def list_pages() -> None:
            for page in self._pages("list_objects_v2", {"NextContinuationToken": "ContinuationToken"}, prefix, options):
                for item in page.get("Contents", ()):
                    path = item["Key"].removeprefix(self._prefix)
                    if path and not path.endswith("/"):  # consoles create "directories" as empty objects
                        found.entries.append(Entry(path, item["Size"], item["LastModified"]))
                for item in page.get("CommonPrefixes", ()):
                    path = item["Prefix"].removeprefix(self._prefix)[:-1]
                    if split(path)[1]:  # no directory lacks a name
                        found.directories.append(path)
                keys = [item["Key"] for item in page.get("Contents", ())]
                if until and keys and keys[-1] > until and not keys[-1].startswith(until):
                    return

        self.call("list", under, list_pages)
        return found

    def list_unfinished(self) -> list[Unfinished]:
        markers = {"NextKeyMarker": "KeyMarker", "NextUploadIdMarker": "UploadIdMarker"}

        def list_pages() -> list[Unfinished]:
            return [
                Unfinished(upload["Key"].removeprefix(self._prefix), upload["UploadId"], 0, upload["Initiated"])
                for page in self._pages("list_multipart_uploads", markers, self._prefix, {})
                for upload in page.get("Uploads", ())
            ]

        return self.call("list the unfinished uploads of", "", list_pages)

    def _pages(
        self, operation: str, markers: Mapping[str, str], prefix: str, options: Mapping[str, str]
    ) -> Iterator[dict[str, Any]]:
        """`markers`: where an answer says how to go on -> where the next request says it."""
        place: dict[str, str] = {}
        while True:
            page = self.fs.call_s3(operation, Bucket=self._bucket, Prefix=prefix, **options, **place)
            yield page
            if not page.get("IsTruncated"):
                return
            before, place = place, {to: page[come] for come, to in markers.items() if page.get(come)}
            if place == before:
                raise OSError(f"the service answers {operation} with the same page for ever")

    def get(self, path: str, *, limit_bytes: int = MAX_BYTES) -> bytes:
        def get() -> bytes:  # one GET; cat_file would ask for the size first, or has no limit
            return cast(bytes, sync(self.fs.loop, self._read, path, limit_bytes + 1))

        body = self.unless_absent("read", path, lambda: _again()(get))
        if len(body) > limit_bytes:
            raise too_large(self.url_of(path), limit_bytes)
        return body

    async def _read(self, path: str, most: int) -> bytes:
        """The object's first bytes."""
        response = await self.fs._call_s3("get_object", **self._object(path))
        return await _first_bytes(response["Body"], most)

    def get_tail(self, path: str, length: int) -> Tail:
        def get() -> Tail:
            return cast(Tail, sync(self.fs.loop, self._read_tail, path, length))

        return self.unless_absent("read", path, lambda: _again()(get))

    async def _read_tail(self, path: str, length: int) -> Tail:
        try:
            response = await self.fs._call_s3("get_object", **self._object(path), Range=f"bytes=-{length}")
        except OSError as error:
            if _status(error) == 416:  # an empty object has no end
                return Tail(0, b"")
            raise
        found = await _first_bytes(response["Body"], length + 1)
        return tail_of(found, response.get("ContentRange"), length)

    def stat(self, path: str) -> Entry:
        head = self.unless_absent("look at", path, lambda: self.fs.call_s3("head_object", **self._object(path)))
        return Entry(path, head["ContentLength"], head["LastModified"])

    def open_read(self, path: str) -> BinaryIO:
        def look() -> BinaryIO:
            return cast(BinaryIO, self.fs.open(self.location(path), "rb"))

        return cast(BinaryIO, Download(look, lambda function: self.unless_absent("read", path, function)))

    def lists(self, path: str) -> bool:
        return any(it.path == path for it in self._list(path, self._prefix + path, Delimiter="/").entries)

    def put_if_absent(self, path: str, body: bytes) -> bool:
        def put() -> bool:
            try:
                self.fs.call_s3("put_object", **self._object(path), Body=body, IfNoneMatch="*")
            except OSError as error:
                match _status(error):
                    case 412:  # s3fs knows only some services' answers
                        return False
                    case 409:  # another conditional PUT of the same key is under way: its outcome decides ours
                        raise _Undecided from error
                raise
            return True

        again = Retrying(
            retry=retry_if_exception_type(_Undecided),
            stop=stop_after_attempt(10),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            reraise=True,
        )
        return self.call("create", path, lambda: again(put))

    def delete_same(self, path: str, body: bytes) -> bool:
        def delete() -> bool:
            try:
                self.fs.call_s3("delete_object", **self._object(path), IfMatch=head["ETag"])
            except OSError as error:
                match _status(error):
                    case 412:
                        return False
                    case 404:
                        return True
                    case 400 | 501:  # the service knows no such condition
                        return super(S3Store, self).delete_same(path, body)
                raise
            return True

        try:
            head = self.unless_absent("look at", path, lambda: self.fs.call_s3("head_object", **self._object(path)))
            return self.get(path) == body and self.call("delete", path, delete)
        except ObjectNotFoundError:
            return True

    def delete_many(self, paths: Sequence[str]) -> dict[str, StoreError]:
        return self.in_batches(self._delete_batch, paths)

    def _delete_batch(self, paths: Sequence[str]) -> dict[str, StoreError]:
        failures: dict[str, StoreError] = {}
        busy = paths

        def ask() -> bool:
            """Whether to ask again."""
            nonlocal busy
            refused = self._delete(busy)
            for path in busy:
                failures.pop(path, None)
            failures.update({path: error for path, (error, _) in refused.items()})
            busy = [path for path, (_, is_busy) in refused.items() if is_busy]
            return bool(busy)

        again = Retrying(
            retry=retry_if_result(bool),
            stop=stop_after_attempt(6),
            wait=wait_random_exponential(multiplier=0.5, max=10),
            retry_error_callback=lambda _: None,  # `failures` tells
        )
        again(ask)
        return failures

    def _delete(self, paths: Sequence[str]) -> dict[str, tuple[StoreError, bool]]:
        """Returns what was not deleted: why, and whether only because the service was busy."""
        singly = [path for path in paths if _NOT_IN_XML.search(path)]
        refusals = self._delete_singly(singly)
        if len(singly) < len(paths):
            refusals |= self._delete_together([path for path in paths if path not in singly] if singly else paths)
        return refusals

    def _delete_together(self, paths: Sequence[str]) -> dict[str, tuple[StoreError, bool]]:
        """One request."""
        delete = {"Objects": [{"Key": self._prefix + path} for path in paths], "Quiet": True}
        try:
            answer = self.call(
                f"delete {len(paths)} objects of",
                "",
                lambda: self.fs.call_s3("delete_objects", Bucket=self._bucket, Delete=delete),
            )
        except StoreError as error:
            if _is_busy(error):
                return dict.fromkeys(paths, (error, True))
            refused_ends = self._delete_singly(ends := [*{paths[0], paths[-1]}])
            if len(refused_ends) == len(ends):
                return dict.fromkeys(paths, (error, False))
            # It was about requests for many, which some services, and some rights, do not have.
            return refused_ends | self._delete_singly([path for path in paths if path not in ends])
        refusals: dict[str, tuple[StoreError, bool]] = {}
        for refused in answer.get("Errors", ()):
            path = refused["Key"].removeprefix(self._prefix)
            reason = ClientError({"Error": refused}, "DeleteObjects")
            failure = self.translate(reason, "delete", path)
            if isinstance(failure, StoreError) and not isinstance(failure, ObjectNotFoundError):
                refusals[path] = (failure, _code(reason) in _BUSY)
        return refusals

    def _delete_singly(self, paths: Sequence[str]) -> dict[str, tuple[StoreError, bool]]:
        """A key that XML has no way to write would fail the whole batch; a URL has one."""

        def delete(path: str) -> StoreError | None:
            try:
                self.call("delete", path, lambda: self.fs.call_s3("delete_object", **self._object(path)))
            except ObjectNotFoundError:
                return None
            except StoreError as error:
                return error
            return None

        failures = zip(paths, self.in_parallel(delete, paths, at_once=CONCURRENCY // BATCHES), strict=True)
        return {path: (error, _is_busy(error)) for path, error in failures if error}

    def keeps_versions(self) -> bool:
        def ask() -> bool:
            answer = self.fs.call_s3("get_bucket_versioning", Bucket=self._bucket)
            return bool(answer.get("Status") == "Enabled")

        with suppress(StoreError):
            return self.call("ask for the versioning of", "", ask)
        return False

    def abort_unfinished(self, items: Sequence[Unfinished]) -> dict[str, StoreError]:
        def abort(item: Unfinished) -> StoreError | None:
            upload = {**self._object(item.path), "UploadId": item.id}
            try:
                self.call("abort the upload of", item.path, lambda: self.fs.call_s3("abort_multipart_upload", **upload))
            except ObjectNotFoundError:
                return None
            except StoreError as error:
                return error
            return None

        failures = zip(items, self.in_parallel(abort, items), strict=True)
        return {item.path: error for item, error in failures if error}

    def translate(self, error: BaseException, action: str, path: str) -> DbioError | None:
        message = self.failure(action, path, error)
        code = _code(error)
        if isinstance(error, FileNotFoundError) or code in _ABSENT:
            if code == "NoSuchBucket":
                return StoreError(f"{message}; check the bucket's name")
            return ObjectNotFoundError(message)
        if code == "InvalidObjectState":
            return StoreError(
                f"{message}; it is archived (S3 Glacier): bring it back with `aws s3api restore-object`, and keep the "
                "table out of lifecycle rules that archive"
            )
        if _status(error) == 501 or code == "NotImplemented":
            return StoreError(f"{message}; {_NO_CONDITION if action == 'create' else _NO_SUCH_REQUEST}")
        if isinstance(error, PermissionError | NoCredentialsError | PartialCredentialsError) or code in _DENIED:
            return AccessDeniedError(
                f"{message}; give credentials with access to it: environment, profile, role or storage_options"
            )
        if isinstance(error, _Undecided):
            return StoreError(
                f"cannot {action} {self.url_of(path)}: concurrent requests for it kept conflicting; try again"
            )
        if isinstance(error, OSError | ClientError | BotoCoreError | AioHttpError | TimeoutError):
            return StoreError(f"{message}; check the service and the network, then try again")
        return None

    def location(self, path: str) -> str:
        return f"{self._bucket}/{self._prefix}{path}"

    def _object(self, path: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + path}


class _FileSystem(s3fs.S3FileSystem):  # type: ignore[misc]
    retries = 2  # each of these is five attempts of botocore's: enough, and with 5 a silent server takes 6 minutes

    async def set_session(self, refresh: bool = False, kwargs: Mapping[str, Any] = MappingProxyType({})) -> Any:
        before = self._s3
        client = await super().set_session(refresh, kwargs)
        if client is not before:
            # "Expect: 100-continue" costs a round trip, and aiohttp waits for its answer without a time-out.
            client.meta.events.unregister("before-call.s3", add_expect_header)
        return client

    connect = sync_wrapper(set_session)
    """What the property `s3` calls: that of the class above would make a client past `set_session`."""


def _just_before(name: str) -> str:
    """What sorts before the name, with next to nothing in between; no "/", which with a delimiter says more."""
    return name[:-1] + chr(ord(name[-1]) - 1).replace("/", ".") + "~"


async def _first_bytes(body: Any, most: int) -> bytes:
    """Of what a request is answered with, which is closed then."""
    found = bytearray()
    async with body:  # what this gives is the response within it, of older versions of aiobotocore
        while len(found) < most and (chunk := await body.read(most - len(found))):
            found += chunk
    return bytes(found)


def _again() -> Retrying:
    """Of what s3fs asks for, it tries again what breaks off; so do we."""
    return Retrying(retry=retry_if_exception_type(AioHttpError), stop=stop_after_attempt(3), reraise=True)


class _Undecided(Exception):
    """HTTP 409 ConditionalRequestConflict."""


def _response(error: BaseException) -> Mapping[str, Any]:
    source = error if isinstance(error, ClientError) else error.__cause__
    return source.response if isinstance(source, ClientError) else {}


def _status(error: BaseException) -> int | None:
    status: int | None = _response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status


def _is_busy(error: StoreError) -> bool:
    return isinstance(error.__cause__, ClientFailure) and error.__cause__.code in _BUSY


def _code(error: BaseException) -> str:
    return str(_response(error).get("Error", {}).get("Code", ""))
