"""Amazon S3, and what speaks its protocol with If-None-Match."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import s3fs
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from botocore.handlers import add_expect_header
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from dbio_commit.errors import AccessDeniedError, DbioError, ObjectNotFoundError, StoreError
from dbio_commit.state import Entry
from dbio_commit.store.base import FsspecStore
from dbio_commit.store.location import Location

_KEYS_PER_DELETE = 1000
_DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "401", "403"}
_ABSENT = {"NoSuchKey", "404"}


class S3Store(FsspecStore):
    """`put_if_absent` is one PUT with If-None-Match: *. Credentials and connections are s3fs's."""

    def __init__(self, location: Location, storage_options: Mapping[str, Any]) -> None:
        super().__init__(location.url, storage_options)
        self._bucket, self._prefix = location.container, location.key_prefix

    @property
    def identity(self) -> str:
        options = self.storage_options
        endpoint = options.get("endpoint_url") or options.get("client_kwargs", {}).get("endpoint_url", "")
        return f"s3:{endpoint}:{self._bucket}"

    def connect(self) -> Any:
        options = dict(self.storage_options)
        config = {"max_pool_connections": 64, **options.pop("config_kwargs", {})}
        return _FileSystem(**{**options, "use_listings_cache": False, "config_kwargs": config})

    def list_log(self) -> list[Entry]:
        return self.call("list", "", lambda: self._list(self._prefix + "_", Delimiter="/"))

    def list_files(self, under: str = "") -> list[Entry]:
        prefix = f"{self._prefix}{under}/" if under else self._prefix
        return self.call("list", under, lambda: self._list(prefix))

    def _list(self, prefix: str, **options: str) -> list[Entry]:
        entries: list[Entry] = []
        page: dict[str, Any] = {"IsTruncated": True}
        while page["IsTruncated"]:
            page = self.fs.call_s3("list_objects_v2", Bucket=self._bucket, Prefix=prefix, **options)
            for found in page.get("Contents", ()):
                path = found["Key"].removeprefix(self._prefix)
                if path and not path.endswith("/"):  # consoles create "directories" as empty objects
                    entries.append(Entry(path, found["Size"], found["LastModified"]))
            options["ContinuationToken"] = page.get("NextContinuationToken", "")
        return entries

    def get(self, path: str) -> bytes:
        # max_concurrency=1: one GET; more would ask for the size first.
        return self.call("read", path, lambda: cast(bytes, self.fs.cat_file(self.location(path), max_concurrency=1)))

    def stat(self, path: str) -> Entry:
        head = self.call("look at", path, lambda: self.fs.call_s3("head_object", **self._object(path)))
        return Entry(path, head["ContentLength"], head["LastModified"])

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

    def delete_many(self, paths: Sequence[str]) -> dict[str, StoreError]:
        failures: dict[str, StoreError] = {}
        for start in range(0, len(paths), _KEYS_PER_DELETE):
            failures |= self._delete(paths[start : start + _KEYS_PER_DELETE])
        return failures

    def _delete(self, paths: Sequence[str]) -> dict[str, StoreError]:
        delete = {"Objects": [{"Key": self._prefix + path} for path in paths], "Quiet": True}
        try:
            answer = self.call(
                f"delete {len(paths)} objects of",
                "",
                lambda: self.fs.call_s3("delete_objects", Bucket=self._bucket, Delete=delete),
            )
        except StoreError as error:
            return dict.fromkeys(paths, error)
        failures: dict[str, StoreError] = {}
        for refused in answer.get("Errors", ()):
            path = refused["Key"].removeprefix(self._prefix)
            failure = self.translate(ClientError({"Error": refused}, "DeleteObjects"), "delete", path)
            if isinstance(failure, StoreError) and not isinstance(failure, ObjectNotFoundError):
                failures[path] = failure
        return failures

    def translate(self, error: BaseException, action: str, path: str) -> DbioError | None:
        message = self.failure(action, path, error)
        code = _code(error)
        if isinstance(error, FileNotFoundError) or code in _ABSENT:
            if code == "NoSuchBucket":
                return StoreError(f"{message}; check the bucket's name")
            return ObjectNotFoundError(message)
        if isinstance(error, PermissionError | NoCredentialsError | PartialCredentialsError) or code in _DENIED:
            return AccessDeniedError(
                f"{message}; give credentials with access to it: environment, profile, role or storage_options"
            )
        if isinstance(error, _Undecided):
            return StoreError(
                f"cannot {action} {self.url_of(path)}: concurrent requests for it kept conflicting; try again"
            )
        if isinstance(error, OSError | ClientError | BotoCoreError | TimeoutError):
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


class _Undecided(Exception):
    """HTTP 409 ConditionalRequestConflict."""


def _response(error: BaseException) -> Mapping[str, Any]:
    source = error if isinstance(error, ClientError) else error.__cause__
    return source.response if isinstance(source, ClientError) else {}


def _status(error: BaseException) -> int | None:
    status: int | None = _response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status


def _code(error: BaseException) -> str:
    return str(_response(error).get("Error", {}).get("Code", ""))
