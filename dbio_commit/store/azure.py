"""Azure Blob Storage and Data Lake Storage."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar, cast

from adlfs import AzureBlobFileSystem
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from fsspec.asyn import sync

from dbio_commit.errors import AccessDeniedError, DbioError, ObjectNotFoundError, StoreError
from dbio_commit.state import Entry
from dbio_commit.store.base import FsspecStore
from dbio_commit.store.location import Location

_T = TypeVar("_T")


class AzureStore(FsspecStore):
    """`put_if_absent` is one PUT with If-None-Match: *. Credentials are adlfs's; the calls are the SDK's own,

    because adlfs's listing adds a HEAD for every blob, and its bulk deletion masks errors.
    """

    def __init__(self, location: Location, storage_options: Mapping[str, Any]) -> None:
        account: dict[str, str] = {}
        if location.account:
            account = {"account_name": location.account, "account_host": f"{location.account}.blob.{location.cloud}"}
        super().__init__(location.url, {**account, **storage_options})
        self._container, self._prefix = location.container, location.key_prefix

    @property
    def identity(self) -> str:
        return f"az:{self.fs.service_client.primary_hostname}:{self._container}"

    def connect(self) -> Any:
        fs = AzureBlobFileSystem(**{**self.storage_options, "use_listings_cache": False})
        # adlfs has no option for these; with the SDK's own a request takes from 1.5 to 6 minutes to fail.
        config = fs.service_client._config
        retry = config.retry_policy
        retry.initial_backoff, retry.increment_base, retry.random_jitter_range = 1, 2, 1
        config.transport.connection_config.timeout, config.transport.connection_config.read_timeout = 5, 15
        return fs

    def list_log(self) -> list[Entry]:
        return self._list("", self._prefix + "_", flat=False)

    def list_files(self, under: str = "") -> list[Entry]:
        return self._list(under, f"{self._prefix}{under}/" if under else self._prefix, flat=True)

    def _list(self, under: str, prefix: str, *, flat: bool) -> list[Entry]:
        async def list_blobs() -> list[Entry]:
            client = self._client()
            # With a hierarchical namespace directories are listed as blobs; only their metadata tells.
            if flat:
                pages = client.list_blobs(name_starts_with=prefix, include=["metadata"])
            else:
                pages = client.walk_blobs(name_starts_with=prefix, delimiter="/", include=["metadata"])
            return [
                Entry(blob.name.removeprefix(self._prefix), blob.size, blob.last_modified)
                async for blob in pages
                if hasattr(blob, "size") and not (blob.metadata or {}).get("hdi_isfolder")
            ]

        return self._run("list", under, list_blobs)

    def get(self, path: str) -> bytes:
        async def download() -> bytes:
            stream = await self._blob(path).download_blob()
            return cast(bytes, await stream.readall())

        return self._run("read", path, download)

    def stat(self, path: str) -> Entry:
        properties = self._run("look at", path, lambda: self._blob(path).get_blob_properties())
        return Entry(path, properties.size, properties.last_modified)

    def put_if_absent(self, path: str, body: bytes) -> bool:
        async def put() -> bool:
            try:
                await self._blob(path).upload_blob(body, length=len(body), overwrite=False)
            except ResourceExistsError as error:
                if error.status_code == 409 and getattr(error, "error_code", None) not in (None, "BlobAlreadyExists"):
                    raise  # leased, being deleted, an account that is disabled: not a lost race
                return False
            return True

        return self._run("create", path, put)

    def delete_many(self, paths: Sequence[str]) -> dict[str, StoreError]:
        def delete(path: str) -> StoreError | None:
            try:
                self._run("delete", path, lambda: self._blob(path).delete_blob())
            except ObjectNotFoundError:
                return None
            except StoreError as error:
                return error
            return None

        results = zip(paths, self.in_parallel(delete, paths), strict=True)
        return {path: error for path, error in results if error}

    def translate(self, error: BaseException, action: str, path: str) -> DbioError | None:
        if isinstance(error, RuntimeError) and isinstance(error.__cause__, AzureError):
            error = error.__cause__  # adlfs, when it uploads
        message = self.failure(action, path, error)
        if isinstance(error, FileNotFoundError | ResourceNotFoundError):
            if getattr(error, "error_code", None) == "ContainerNotFound":
                return StoreError(f"{message}; check the container's name")
            return ObjectNotFoundError(message)
        status = error.status_code if isinstance(error, HttpResponseError) else None
        if isinstance(error, PermissionError | ClientAuthenticationError) or status in (401, 403):
            return AccessDeniedError(
                f"{message}; give credentials with access to it: environment, managed identity or storage_options"
            )
        if isinstance(error, OSError | AzureError | TimeoutError):
            return StoreError(f"{message}; check the service and the network, then try again")
        if isinstance(error, ValueError) and not self._fs:  # adlfs, when it connects
            return AccessDeniedError(f"{message}; give account_name and a credential, or a connection string")
        return None

    def failure(self, action: str, path: str, error: BaseException) -> str:
        return super().failure(action, path, error).partition("\n")[0]  # the rest is XML

    def location(self, path: str) -> str:
        return f"{self._container}/{self._prefix}{path}"

    def _client(self) -> Any:
        return self.fs.service_client.get_container_client(self._container)

    def _blob(self, path: str) -> Any:
        return self._client().get_blob_client(self._prefix + path)

    def _run(self, action: str, path: str, request: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """The request on fsspec's own event loop, where the filesystem's client lives."""

        async def on_loop() -> _T:
            return await request()

        return self.call(action, path, lambda: cast(_T, sync(self.fs.loop, on_loop)))
