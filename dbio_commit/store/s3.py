"""The store on Amazon S3, and on other services that have its protocol with If-None-Match."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, BinaryIO, Self, cast

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
from dbio_commit.store.contract import Listing, Tail, Unfinished, too_large
from dbio_commit.store.fsspec_store import ClientFailure, FsspecStore, tail_of, without_user
from dbio_commit.store.paths import common_start, within
from dbio_commit.store.upload import Download

_NOT_IN_XML = re.compile("[\x00-\x1f\x7f\ufffe\uffff]")  # or that do not come back from XML as they were

_DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "401", "403"}
_ABSENT = {"NoSuchKey", "NoSuchUpload", "404"}
_BUSY = {"SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "Throttling", "500", "503"}


COPY_BYTES = 1024**3
"""The service copies a larger object in parts of this size. One request may copy at most 5 GiB."""

_NO_SUCH_REQUEST = "this service does not support this request, or one of its headers; use another service"
_NO_CONDITION = (
    "this service does not support If-None-Match (501), which a commit needs: use one with conditional writes (S3, "
    "MinIO, Ceph); or it does not support the checksums that the client sends: then set config_kwargs="
    "{'request_checksum_calculation': 'when_required'} in storage_options"
)


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
    """The property `s3` calls this. The inherited `connect` would not call the `set_session` above."""


async def _first_bytes(body: Any, most: int) -> bytes:
    """The first bytes of an answer's body, which is then closed."""
    found = bytearray()
    async with body:  # older versions of aiobotocore give the response within it: so use `body` itself
        while len(found) < most and (chunk := await body.read(most - len(found))):
            found += chunk
    return bytes(found)


def _retrying() -> Retrying:
    """Repeats a request whose answer breaks off, as s3fs does for its own requests."""
    return Retrying(retry=retry_if_exception_type(AioHttpError), stop=stop_after_attempt(3), reraise=True)


def _status_of(error: BaseException) -> int | None:
    """The HTTP status of the answer that the error is about."""
    status: int | None = _response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status


def _code_of(error: BaseException) -> str:
    """The service's error code, such as "NoSuchKey", or ""."""
    return str(_response(error).get("Error", {}).get("Code", ""))


def _response(error: BaseException) -> Mapping[str, Any]:
    source = error if isinstance(error, ClientError) else error.__cause__
    return source.response if isinstance(source, ClientError) else {}


class S3Store(FsspecStore):
    """`put_if_absent` is one PUT with If-None-Match: *. s3fs has the credentials and connections."""

    def identify(self) -> str:
        return f"s3:{without_user(self.fs.s3.meta.endpoint_url)}:{self._container}"

    def connect(self) -> Any:
        options = dict(self.storage_options)
        config = {"max_pool_connections": 64, **options.pop("config_kwargs", {})}
        return FileSystem(**{**options, "use_listings_cache": False, "config_kwargs": config})

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
        """The objects at the root from the name or prefix `first` up to `last`. The last page may add later ones."""
        if first == last:
            return self._list("", self._prefix + first, Delimiter="/").entries
        prefix = self._prefix + common_start([first, last])
        before = self._prefix + _just_before(first)
        return self._list("", prefix, until=self._prefix + last, Delimiter="/", StartAfter=before).entries

    def list_files(self, under: str = "", *, links: bool = True) -> list[Entry]:
        return self._list(under, self.prefix_of(under)).entries

    def list_below(self, directories: Sequence[str]) -> list[Entry]:
        """One listing, from the first of the directories to the last: pass a group of `neighbours`."""
        if len(directories) < 2:
            return super().list_below(directories)
        starts = sorted(self.prefix_of(directory) for directory in directories)
        found = self._list("", self._prefix, until=starts[-1], StartAfter=_just_before(starts[0])).entries
        return within(found, directories)

    def list_directory(self, under: str = "") -> Listing:
        return self._list(under, self.prefix_of(under), Delimiter="/")

    def _list(self, under: str, prefix: str, *, until: str = "", **options: str) -> Listing:
        """All that starts with the prefix, in pages. Stops after the first page that goes past `until`."""
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
        """The pages of a listing. `markers` maps an answer's fields that say where to go on to those of the next
        request."""
        place: dict[str, str] = {}
        while True:
            page = self.fs.call_s3(operation, Bucket=self._container, Prefix=prefix, **options, **place)
            yield page
            if not page.get("IsTruncated"):
                return
            before, place = place, {to: page[come] for come, to in markers.items() if page.get(come)}
            if place == before:
                raise OSError(f"the service answers {operation} with the same page again and again")

    def get(self, path: str, *, limit_bytes: int = MAX_BYTES) -> bytes:
        def get() -> bytes:  # one GET; cat_file would ask for the size first, or read without a limit
            return cast(bytes, sync(self.fs.loop, self._read, path, limit_bytes + 1))

        body = self.unless_absent("read", path, lambda: _retrying()(get))
        if len(body) > limit_bytes:
            raise too_large(self.url_of(path), limit_bytes)
        return body

    async def _read(self, path: str, most: int) -> bytes:
        """The object's first `most` bytes."""
        response = await self.fs._call_s3("get_object", **self._object(path))
        return await _first_bytes(response["Body"], most)

    def get_tail(self, path: str, length: int) -> Tail:
        def get() -> Tail:
            return cast(Tail, sync(self.fs.loop, self._read_tail, path, length))

        return self.unless_absent("read", path, lambda: _retrying()(get))

    async def _read_tail(self, path: str, length: int) -> Tail:
        try:
            response = await self.fs._call_s3("get_object", **self._object(path), Range=f"bytes=-{length}")
        except OSError as error:
            if _status_of(error) == 416:  # an empty object has no end
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
                match _status_of(error):
                    case 412:  # s3fs translates it only for some services
                        return False
                    case 409:  # another conditional PUT of this key is under way, and its outcome decides this one
                        raise _Undecided from error
                raise
            return True

        retrying = Retrying(
            retry=retry_if_exception_type(_Undecided),
            stop=stop_after_attempt(10),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            reraise=True,
        )
        return self.call("create", path, lambda: retrying(put))

    def copy_within(self, source: Self, path: str, copy: str) -> bool:
        original = source._object(path)
        size = self.fs.call_s3("head_object", **original)["ContentLength"]
        if size <= COPY_BYTES:
            self.fs.call_s3("copy_object", **self._object(copy), CopySource=original)
        else:
            self._copy_in_parts(original, copy, size)
        return True

    def _copy_in_parts(self, original: Mapping[str, str], copy: str, size: int) -> None:
        upload = {**self._object(copy), "UploadId": ""}
        upload["UploadId"] = self.fs.call_s3("create_multipart_upload", **self._object(copy))["UploadId"]

        def copy_part(start: int) -> dict[str, Any]:
            end = min(start + COPY_BYTES, size) - 1
            part = {"PartNumber": start // COPY_BYTES + 1, "CopySourceRange": f"bytes={start}-{end}"}
            answer = self.fs.call_s3("upload_part_copy", **upload, **part, CopySource=original)
            return {"PartNumber": part["PartNumber"], "ETag": answer["CopyPartResult"]["ETag"]}

        try:
            parts = self.in_parallel(copy_part, range(0, size, COPY_BYTES), at_once=4)
            self.fs.call_s3("complete_multipart_upload", **upload, MultipartUpload={"Parts": parts})
        except BaseException:
            with suppress(OSError, ClientError):
                self.fs.call_s3("abort_multipart_upload", **upload)
            raise

    def delete_same(self, path: str, body: bytes) -> bool:
        def delete() -> bool:
            try:
                self.fs.call_s3("delete_object", **self._object(path), IfMatch=head["ETag"])
            except OSError as error:
                match _status_of(error):
                    case 412:
                        return False
                    case 404:
                        return True
                    case 400 | 501:  # the service does not support the condition
                        return super(S3Store, self).delete_same(path, body)
                raise
            return True

        try:
            head = self.unless_absent("look at", path, lambda: self.fs.call_s3("head_object", **self._object(path)))
            return self.get(path) == body and self.call("delete", path, delete)
        except ObjectNotFoundError:
            return True

    def delete_together(self, paths: Sequence[str]) -> dict[str, StoreError]:
        failures: dict[str, StoreError] = {}
        busy = paths

        def ask() -> bool:
            """Deletes what is left. Returns whether to ask again."""
            nonlocal busy
            refusals = self._delete(busy)
            for path in busy:
                failures.pop(path, None)
            failures.update(refusals)
            busy = [path for path, error in refusals.items() if _is_busy(error)]
            return bool(busy)

        retrying = Retrying(
            retry=retry_if_result(bool),
            stop=stop_after_attempt(6),
            wait=wait_random_exponential(multiplier=0.5, max=10),
            retry_error_callback=lambda _: None,  # `failures` has what is left
        )
        retrying(ask)
        return failures

    def _delete(self, paths: Sequence[str]) -> dict[str, StoreError]:
        singly = [path for path in paths if _NOT_IN_XML.search(path)]  # in a URL, such a key can be written
        refusals = self.delete_singly(singly)
        if len(singly) < len(paths):
            refusals |= self._delete_by_one_request([path for path in paths if path not in singly] if singly else paths)
        return refusals

    def _delete_by_one_request(self, paths: Sequence[str]) -> dict[str, StoreError]:
        delete = {"Objects": [{"Key": self._prefix + path} for path in paths], "Quiet": True}
        try:
            answer = self.call(
                f"delete {len(paths)} objects of",
                "",
                lambda: self.fs.call_s3("delete_objects", Bucket=self._container, Delete=delete),
            )
        except StoreError as error:
            return dict.fromkeys(paths, error) if _is_busy(error) else self.delete_refused(paths, error)
        refusals: dict[str, StoreError] = {}
        for refused in answer.get("Errors", ()):
            path = refused["Key"].removeprefix(self._prefix)
            reason = ClientError({"Error": refused}, "DeleteObjects")
            failure = self.translate(reason, "delete", path)
            if isinstance(failure, StoreError) and not isinstance(failure, ObjectNotFoundError):
                failure.__cause__ = ClientFailure.of(reason, self.redact)
                refusals[path] = failure
        return refusals

    def delete_one(self, path: str) -> object:
        return self.fs.call_s3("delete_object", **self._object(path))

    def keeps_versions(self) -> bool:
        def ask() -> bool:
            answer = self.fs.call_s3("get_bucket_versioning", Bucket=self._container)
            return bool(answer.get("Status") == "Enabled")

        with suppress(StoreError):
            return self.call("ask for the versioning of", "", ask)
        return False

    def abort_unfinished(self, items: Sequence[Unfinished]) -> dict[str, StoreError]:
        def abort(item: Unfinished) -> StoreError | None:
            upload = {**self._object(item.path), "UploadId": item.id}
            return self.failure_of(
                "abort the upload of", item.path, lambda: self.fs.call_s3("abort_multipart_upload", **upload)
            )

        failures = zip(items, self.in_parallel(abort, items), strict=True)
        return {item.path: error for item, error in failures if error}

    def translate(self, error: BaseException, action: str, path: str) -> DbioError | None:
        message = self.failure(action, path, error)
        code = _code_of(error)
        if isinstance(error, FileNotFoundError) or code in _ABSENT:
            if code == "NoSuchBucket":
                return StoreError(f"{message}; check the bucket's name")
            return ObjectNotFoundError(message)
        if code == "InvalidObjectState":
            return StoreError(
                f"{message}; it is archived (S3 Glacier): bring it back with `aws s3api restore-object`, and keep the "
                "table out of lifecycle rules that archive"
            )
        if _status_of(error) == 501 or code == "NotImplemented":
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

    def _object(self, path: str) -> dict[str, str]:
        return {"Bucket": self._container, "Key": self._prefix + path}


def _just_before(name: str) -> str:
    """A text that sorts shortly before the name, without "/", which would change a listing with a delimiter."""
    return name[:-1] + chr(ord(name[-1]) - 1).replace("/", ".") + "~"


class _Undecided(Exception):
    """HTTP 409 ConditionalRequestConflict."""


def _is_busy(error: StoreError) -> bool:
    return isinstance(error.__cause__, ClientFailure) and error.__cause__.code in _BUSY
