"""The store on Azure Blob Storage and Data Lake Storage."""

import asyncio
import os
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from time import monotonic
from typing import Any, ClassVar, Self, TypeVar, cast
from urllib.parse import unquote

from adlfs import AzureBlobFileSystem
from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from fsspec.asyn import sync

from dbio_commit.base.errors import AccessDeniedError, DbioError, InvalidInputError, ObjectNotFoundError, StoreError
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.protocol.names import DESCRIPTOR, split
from dbio_commit.store.contract import Listing, Tail, Unfinished, too_large
from dbio_commit.store.fsspec_store import FsspecStore, tail_of, without_user
from dbio_commit.store.location import Location
from dbio_commit.store.paths import common_start, within

_T = TypeVar("_T")

_FINAL_DOTS = re.compile(r"\.+(?=/|$)")
"""Dots at the end of a component of a path. The service cuts them off."""


class AzureStore(FsspecStore):
    """`put_if_absent` is one PUT with If-None-Match: *. adlfs has the credentials.

    Requests are made with the SDK: adlfs sends a HEAD for every listed blob, and hides errors when it deletes many.
    """

    delete_batch: ClassVar[int] = 256  # the service's limit

    def __init__(self, location: Location, storage_options: Mapping[str, Any]) -> None:
        account: dict[str, str] = {}
        if location.account:
            name = location.account.partition(".")[0]  # without the DNS zone
            account = {"account_name": name, "account_host": f"{location.account}.blob.{location.cloud}"}
        super().__init__(location, {**account, **storage_options})

    def identify(self) -> str:
        return f"az:{without_user(self.fs.service_client.primary_hostname)}:{self._container}"

    def connect(self) -> Any:
        # Without this, older versions of adlfs use neither credentials of the environment nor an identity.
        anonymous = {} if "AZURE_STORAGE_ANON" in os.environ else {"anon": False}
        options = {**anonymous, **_with_named_key(self.storage_options), "use_listings_cache": False}
        fs = AzureBlobFileSystem(**options)
        # adlfs has no option for these. With the SDK's values, a request takes from 1.5 to 6 minutes to fail.
        config = fs.service_client._config
        retry = config.retry_policy
        retry.initial_backoff, retry.increment_base, retry.random_jitter_range = 1, 2, 1
        config.transport.connection_config.timeout, config.transport.connection_config.read_timeout = 5, 15
        return fs

    def list_log(self, *prefixes: str) -> list[Entry]:
        return [entry for prefix in prefixes or ("_",) for entry in self._list_root(prefix)]

    def stat_log(self, *names: str) -> dict[str, Entry]:
        found = self._list_root(common_start(names), until=max(names))
        return {entry.path: entry for entry in found if entry.path in names}

    def _list_root(self, prefix: str, *, until: str = "") -> list[Entry]:
        return self._list("", self._prefix + prefix, flat=False, until=until).entries

    def list_files(self, under: str = "", *, links: bool = True) -> list[Entry]:
        return self._list(under, self.prefix_of(under), flat=True).entries

    def list_below(self, directories: Sequence[str]) -> list[Entry]:
        """One listing of all objects below the common prefix of these directories: pass a group of `neighbours`."""
        if len(directories) < 2:
            return super().list_below(directories)
        start = common_start([self.prefix_of(directory) for directory in directories])
        found = self._list("", start, flat=True).entries
        return within(found, directories)

    def neighbours(self, directories: Sequence[str], most: int) -> list[Sequence[str]]:
        """Groups by common beginnings: a listing of S3 may begin at any key, one of Azure only at a prefix."""
        groups: list[Sequence[str]] = [directories] if directories else []
        while len(groups) < most:
            widest = max(groups, key=len, default=())
            if len(widest) < 2:
                break
            groups.remove(widest)
            place = len(common_start([f"{directory}/" for directory in widest]))
            groups += (list(group) for _, group in groupby(widest, key=lambda it: f"{it}/"[place : place + 1]))
        return sorted(groups, key=lambda it: it[0])

    def list_directory(self, under: str = "") -> Listing:
        return self._list(under, self.prefix_of(under), flat=False)

    def list_unfinished(self) -> list[Unfinished]:
        return []  # the service does not list them, and drops uncommitted blocks a week after the last of them

    def abort_unfinished(self, items: Sequence[Unfinished]) -> dict[str, StoreError]:
        return {}

    def _list(self, under: str, prefix: str, *, flat: bool, until: str = "") -> Listing:
        """All that starts with the prefix. Stops after the first blob whose path sorts after `until`."""

        async def list_blobs() -> Listing:
            client = self._client()
            # With a hierarchical namespace, directories are listed as blobs. Only their metadata shows what they are.
            if flat:
                pages = client.list_blobs(name_starts_with=prefix, include=["metadata"])
            else:
                pages = client.walk_blobs(name_starts_with=prefix, delimiter="/", include=["metadata"])
            found = Listing([], [])
            async for blob in pages:
                path = blob.name.removeprefix(self._prefix)
                if not hasattr(blob, "size"):
                    if split(path[:-1])[1]:  # no directory lacks a name
                        found.directories.append(path[:-1])
                elif until and path > until:  # of blobs only: in each page, directories come before them
                    break
                elif not any(key.lower() == "hdi_isfolder" for key in blob.metadata or ()):
                    found.entries.append(Entry(path, blob.size, blob.last_modified))
            return found

        return self._run("list", under, list_blobs)

    def get(self, path: str, *, limit_bytes: int = MAX_BYTES) -> bytes:
        async def download() -> bytes:
            stream = await self._blob(path).download_blob()  # of a large blob the first 32 MiB
            if stream.size > limit_bytes:
                raise too_large(self.url_of(path), limit_bytes)
            return cast(bytes, await stream.readall())

        return self._run("read", path, download)

    def get_tail(self, path: str, length: int) -> Tail:
        """The first request, for the beginning, also returns the size. Its answer has all of a small blob."""

        async def download(start: int) -> Tail:
            try:
                stream = await self._blob(path).download_blob(offset=start, length=length)
                return tail_of(await stream.readall(), stream.properties.content_range, length)
            except HttpResponseError as error:
                if error.status_code == 416 and not start:  # an empty blob has no range
                    return Tail(0, b"")
                raise

        found = self._run("read", path, lambda: download(0))
        return found if found.size <= length else self._run("read", path, lambda: download(found.size - length))

    def stat(self, path: str) -> Entry:
        properties = self._run("look at", path, lambda: self._blob(path).get_blob_properties())
        return Entry(path, properties.size, properties.last_modified)

    def keeps_versions(self) -> bool:
        """Whether the descriptor has a version. Soft delete does not count: only the account's owner can see it."""
        with suppress(StoreError):
            found = self._run("look at", DESCRIPTOR, lambda: self._blob(DESCRIPTOR).get_blob_properties())
            return bool(found.version_id)
        return False

    def put_if_absent(self, path: str, body: bytes) -> bool:
        async def put() -> bool:
            try:
                await self._blob(path).upload_blob(body, length=len(body), overwrite=False)
            except ResourceExistsError as error:
                if error.status_code == 409 and getattr(error, "error_code", None) not in (None, "BlobAlreadyExists"):
                    raise  # leased, being deleted, or a disabled account: not a lost race
                return False
            return True

        return self._run("create", path, put)

    def delete_same(self, path: str, body: bytes) -> bool:
        async def delete() -> bool:
            try:
                await self._blob(path).delete_blob(etag=found.etag, match_condition=MatchConditions.IfNotModified)
            except ResourceModifiedError:
                return False
            return True

        try:
            found = self._run("look at", path, lambda: self._blob(path).get_blob_properties())
            return self.get(path) == body and self._run("delete", path, delete)
        except ObjectNotFoundError:
            return True

    def delete_together(self, paths: Sequence[str]) -> dict[str, StoreError]:
        """Sends one request. If that left any blob, all are deleted singly, since only single requests show which
        remain.

        The SDK assigns the answers to the blobs by position, and does not repeat what a busy service refused.
        """
        if len(paths) == 1:
            return self.delete_singly(paths)

        async def delete() -> bool:
            blobs = [self._prefix + path for path in paths]
            answers = await self._client().delete_blobs(
                *blobs, raise_on_any_failure=False, raw_request_hook=_simplify_boundary
            )
            gone = [a.status_code == 202 or a.headers.get("x-ms-error-code") == "BlobNotFound" async for a in answers]
            return len(gone) == len(blobs) and all(gone)

        try:
            if self._run(f"delete {len(paths)} blobs of", "", delete):
                return {}
        except StoreError as error:
            return self.delete_refused(paths, error)
        return self.delete_singly(paths)

    def delete_one(self, path: str) -> object:
        async def delete() -> None:
            blob = self._blob(path)
            try:
                await blob.delete_blob()
            except HttpResponseError as error:
                if not is_pending(error):
                    raise
                await abort_pending(blob)
                await blob.delete_blob()

        return self._on_loop(delete)

    def copy_within(self, source: Self, path: str, copy: str) -> bool:
        url, _, signature = source._blob(path).url.partition("?")
        if signature:
            raise StoreError(
                "a shared access signature (SAS) is for one place, and is not given to the service as the right to "
                "another: give an account key or an identity, so that it copies by itself"
            )
        if len(url) > SOURCE_LIMIT:
            return False
        return self._on_loop(lambda: copy_blob(url, self._blob(copy)))

    def unfinished_copies(self) -> Collection[str]:
        async def list_copies() -> set[str]:
            blobs = self._client().list_blobs(name_starts_with=self._prefix, include=["copy"])
            return {
                blob.name.removeprefix(self._prefix)
                async for blob in blobs
                if blob.copy.status not in (None, "success")
            }

        return self._run("list", "", list_copies)

    def check_spelling(self, directories: Iterable[str]) -> None:
        if cut := next(filter(self.may_respell, directories), None):
            raise InvalidInputError(
                f"{self.url_of(cut)} has a component that ends with a dot, which Azure cuts off: its files would be "
                "listed under another name. Write another value, such as the text without the dot, or partition by "
                "another column"
            )

    def may_respell(self, path: str) -> bool:
        return _FINAL_DOTS.search(path) is not None

    def is_same(self, path: str, other: str) -> bool:
        return _FINAL_DOTS.sub("", path) == _FINAL_DOTS.sub("", other)

    def translate(self, error: BaseException, action: str, path: str) -> DbioError | None:
        if isinstance(error, RuntimeError) and isinstance(error.__cause__, AzureError):
            error = error.__cause__  # adlfs raises it when it uploads
        message = self.failure(action, path, error)
        if isinstance(error, FileNotFoundError | ResourceNotFoundError):
            if getattr(error, "error_code", None) == "ContainerNotFound":
                return StoreError(f"{message}; check the container's name")
            return ObjectNotFoundError(message)
        status = error.status_code if isinstance(error, HttpResponseError) else None
        code = str(getattr(error, "error_code", None) or "")
        if code in ("BlobArchived", "BlobBeingRehydrated"):
            return StoreError(
                f"{message}; it is in the archive tier: bring it back with `az storage blob set-tier --tier Hot`, "
                "which takes hours, and keep the table out of lifecycle rules that archive"
            )
        if status == 501 or code.startswith(("Unsupported", "FeatureNot", "NotImplemented")):
            return StoreError(f"{message}; this service does not support this request, or one of its headers: use an "
                              "account without the feature that prevents it, or another service")  # fmt: skip
        if isinstance(error, PermissionError | ClientAuthenticationError) or status in (401, 403):
            return AccessDeniedError(
                f"{message}; give credentials with access to it: environment, managed identity or storage_options"
            )
        if isinstance(error, OSError | AzureError | TimeoutError):
            return StoreError(f"{message}; check the service and the network, then try again")
        if isinstance(error, ValueError) and not self._fs:  # adlfs raises it when it connects
            return AccessDeniedError(f"{message}; give account_name and a credential, or a connection string")
        return None

    def failure(self, action: str, path: str, error: BaseException) -> str:
        return super().failure(action, path, error).partition("\n")[0]  # the rest is XML

    def _client(self) -> Any:
        return self.fs.service_client.get_container_client(self._container)

    def _blob(self, path: str) -> Any:
        return self._client().get_blob_client(self._prefix + path)

    def _run(self, action: str, path: str, request: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        return self.call(action, path, lambda: self._on_loop(request))

    def _on_loop(self, request: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Runs the request on fsspec's event loop, where the filesystem's client lives."""

        async def run() -> _T:
            return await request()

        return cast(_T, sync(self.fs.loop, run))


def _with_named_key(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options with an account's key as a connection string, which names the account.

    Otherwise the SDK finds the account's name only in hosts of the form `NAME.blob.core.…`.
    """
    key, name, host = (options.get(f"account_{it}") for it in ("key", "name", "host"))
    goes_first = options.get("credential") or options.get("connection_string")
    if goes_first or key is None or not host or host.startswith(f"{name}.blob.core."):
        return options
    rest = {option: value for option, value in options.items() if option not in ("account_key", "account_host")}
    named = f"AccountName={name};AccountKey={key};BlobEndpoint=https://{host}"
    return {**rest, "connection_string": f"DefaultEndpointsProtocol=https;{named}"}


def _simplify_boundary(request: Any) -> None:
    """Removes "=" from the boundaries between the parts of a body: Azurite's parser fails on it."""
    sent = request.http_request
    kind, _, boundary = sent.headers["Content-Type"].partition("boundary=")
    simple = boundary.replace("=", "")
    sent.headers["Content-Type"] = f"{kind}boundary={simple}"
    sent.set_bytes_body(sent.body.replace(boundary.encode(), simple.encode()))


# --- copies within a storage account ---------------------------------------------------------------------------------
# Copy Blob may continue after the service has answered. A blob whose copy is pending may already show its final size.
# So only the status of a copy proves that it is whole.


STALLED_S = 60.0
"""How long a pending copy may make no progress, in s. Within an account, a copy usually ends with its request."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
"""The pauses between looks at a pending copy, in s. Each is twice as long as the one before."""

SOURCE_LIMIT = 2048
"""The longest URL of a source that the service takes, in bytes."""

_TAKEN = ("BlobAlreadyExists", "PendingCopyOperation", "ConditionNotMet", "TargetConditionNotMet")


async def copy_blob(url: str, blob: Any) -> bool:
    """Copies the blob of this URL, and returns when the copy is whole. False if another blob is there.

    An existing blob is never replaced, so a whole blob never becomes a pending one. If a copy of the same source is
    already there, for example of a request whose answer was lost, the call waits for it. Raises the SDK's errors, and
    OSError for a copy that fails or stands still; then there is no blob.
    """
    try:
        begun = await blob.start_copy_from_url(url, match_condition=MatchConditions.IfMissing)
        copy_id, status = begun["copy_id"], begun["copy_status"]
    except HttpResponseError as error:
        code = getattr(error, "error_code", None)
        if code == "CannotVerifyCopySource" and error.status_code != 404:  # the SDK takes it for an absent blob
            raise OSError(f"the service may not read the source: {error.message}") from None
        if code not in _TAKEN:
            raise
        found = (await blob.get_blob_properties()).copy
        if found.status not in ("pending", "success") or unquote(found.source or "") != unquote(url):
            await abort_pending(blob)
            return False
        copy_id, status = found.id, found.status
    if status == "success":
        return True
    try:
        await _wait(blob, copy_id)
    except (AzureError, OSError):
        if await _give_up(blob, copy_id):
            return True
        raise
    return True


async def _wait(blob: Any, copy_id: str) -> None:
    pause_s, progress, since = _FIRST_PAUSE_S, "", monotonic()
    while True:
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        copy = (await blob.get_blob_properties()).copy
        if copy.id != copy_id:
            raise OSError("another process has replaced the copy")
        if copy.status == "success":
            return
        if copy.status != "pending":
            raise OSError(
                f"the copy has ended as {copy.status}: {copy.status_description or 'the service says no more'}"
            )
        if copy.progress != progress:
            progress, since = copy.progress, monotonic()
        elif monotonic() - since >= STALLED_S:
            raise OSError(f"the copy was aborted, since it stood still for {STALLED_S:.0f} s at {progress} bytes")


async def _give_up(blob: Any, copy_id: str) -> bool:
    """Aborts the copy, and deletes the blob that an aborted copy leaves. True if the copy has succeeded meanwhile.

    A copy that has succeeded stays: another process may already use it.
    """
    with suppress(ResourceExistsError):  # it is not pending any more
        await blob.abort_copy(copy_id)
    found = await blob.get_blob_properties()
    if found.copy.id != copy_id:
        return False
    if found.copy.status in ("aborted", "failed"):
        with suppress(ResourceModifiedError):
            await blob.delete_blob(etag=found.etag, match_condition=MatchConditions.IfNotModified)
    return bool(found.copy.status == "success")


async def abort_pending(blob: Any) -> None:
    """Aborts a pending copy that an interrupted process has left: until then, the blob cannot be changed."""
    found = (await blob.get_blob_properties()).copy
    if found.status == "pending":
        with suppress(ResourceExistsError):
            await blob.abort_copy(found.id)


def is_pending(error: HttpResponseError) -> bool:
    """Whether the service refused a change because a copy to the blob is pending."""
    return bool(getattr(error, "error_code", None) == "PendingCopyOperation")
