"""Opens tables with the store settings of a Spark session, and finds out whether Spark itself can read a store.

Works on classic sessions and over Spark Connect. `hadoop` translates the settings. A path without a scheme means the
default file system to Spark, and a disk to dbio.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbio_commit.base.arguments import check_storage_options
from dbio_commit.base.errors import AccessDeniedError, InvalidInputError
from dbio_commit.base.logs import warn_caller
from dbio_commit.base.texts import visible
from dbio_commit.commit.provenance import SparkRun
from dbio_commit.spark.session import hadoop
from dbio_commit.spark.session.python import settle_python
from dbio_commit.spark.versions import all_settings, read_texts_as
from dbio_commit.store import Location
from dbio_commit.store.location import instead_of, is_plain, parse_location
from dbio_commit.table import Table

# --- settings of the stores ---------------------------------------------------------------------------------------


_LOCAL = ("", "file", "local")
_WITH_CONTAINER = ("abfs", "wasb")
_USER = re.compile("^//.*@")


@dataclass(frozen=True, slots=True)
class DefaultFileSystem:
    """The file system of paths without a scheme in a session, if that is not the disk of each machine."""

    url: str
    """`fs.defaultFS`, such as "hdfs://nn" or "dbfs:/"."""
    home: str | None = None
    """The URL of the directory for relative paths, if it is known."""

    @classmethod
    def of(cls, url: str | None, home: str | None = None) -> "DefaultFileSystem | None":
        """None if `url` is a disk or not set: Hadoop's own default is a disk."""
        scheme, colon, rest = (url or "").strip().partition(":")
        if not colon or scheme.lower() in _LOCAL:
            return None
        if not scheme.lower().startswith(_WITH_CONTAINER):  # in other URLs, the part before the host may be a secret
            rest = _USER.sub("//", rest)
        return cls(f"{scheme}:{rest}", home)

    def url_of(self, path: str) -> str | None:
        """The URL that Spark makes of the path; None for a relative path if `home` is not known."""
        if path.startswith("/"):
            scheme, _, rest = self.url.partition(":")
            authority = rest[2:].partition("/")[0] if rest.startswith("//") else ""
            return f"{scheme}:{'//' if authority else ''}{authority}{path}"
        return None if self.home is None else f"{self.home.rstrip('/')}/{path}"


def refuse_elsewhere(path: str, default: DefaultFileSystem | None) -> None:
    """Raises InvalidInputError for a path without a scheme if Spark does not take it for a path on a disk.

    Else dbio and Spark would use two places for the same path. Every function that takes a path and a session calls
    this (ADR 0046).
    """
    if default is None or not is_plain(path):
        return
    url, local = default.url_of(path), parse_location(path).hadoop_url()
    raise InvalidInputError(
        f"{path!r} has no scheme: for Spark it is {url or 'a path'} in the default file system of this session "
        f"({default.url}), and for dbio a path on a disk. {_give(url or default.url, known=url is not None)}; "
        f"or {local!r} for a disk that this machine and all executors share"
    )


def _give(url: str, *, known: bool) -> str:
    try:
        parse_location(url)
    except InvalidInputError:
        return f"Give the URL of a store: {instead_of(url) or 's3://…, abfss://…'}"
    return f"Give {url!r}" if known else f"Give a URL, {url.rstrip('/')}/…"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A session's settings for S3, Azure and Google Cloud Storage."""

    values: hadoop.HadoopSettings = field(default_factory=dict, repr=False)  # secrets
    unread: Mapping[str, str] = field(default_factory=dict)
    """Credential stores of Hadoop that cannot be read: by the setting that names the store, the reason."""
    withheld: bool = False
    """Whether secrets are missing: over Spark Connect, the server does not give them out."""
    default: DefaultFileSystem | None = None
    """The file system of paths without a scheme, if it is not a disk."""
    run: SparkRun | None = None
    """The session's application, which processes without the session record in their commits."""

    def open_table(
        self, path: str | os.PathLike[str], explicit: Mapping[str, Any] | None = None
    ) -> tuple[Table, tuple[str, ...]]:
        """The table at the path, and a sentence for each ignored setting that might matter.

        Explicit storage_options override the settings. Raises InvalidInputError for a setting that dbio cannot honour
        and that would change what is stored, and as `refuse_elsewhere` does. Raises AccessDeniedError if needed keys
        are in a credential store that cannot be read.
        """
        location = parse_location(path)
        refuse_elsewhere(os.fspath(path), self.default)
        translation = hadoop.translate(location, self.values, explicit)
        options = translation.options
        if not hadoop.gives_credentials(location, explicit or {}) or "s3_additional_kwargs" in options:
            for setting in filter(self.unread.get, _credential_stores(location, self.unread)):
                raise AccessDeniedError(
                    f"cannot read the Hadoop credential store that {setting} names: {self.unread[setting]}; let the "
                    "driver read it, unset it, or pass storage_options"
                )
        if translation.role:
            with suppress(ImportError):  # `Table` raises the error for a missing extra
                from dbio_commit.spark.session.hadoop.assumed_role import RoleSession

                options["session"] = RoleSession(translation.role)
        table = Table(path, options)
        table.run = self.run
        return table, translation.ignored


def open_table(spark: SparkSession, path: str | os.PathLike[str], explicit: Mapping[str, Any] | None) -> Table:
    """The table at the path, with the session's settings. `explicit` storage_options override them.

    Every function that users call begins here. Prepares the session's workers, and this thread for texts in SQL.
    """
    check_storage_options(explicit)
    settle_workers(spark)
    read_texts_as(spark)
    location = locate(spark, path)
    if location.scheme == "file":
        table = Table(path, explicit)
    else:
        table, ignored = store_settings(spark, location).open_table(path, explicit)
        for sentence in ignored:
            warn_caller(sentence)
    table.run = run_of(spark)
    return table


def run_of(spark: SparkSession) -> SparkRun:
    """The session's application, and the job that the caller has named in this thread."""
    if is_connect(spark):
        return SparkRun(application=spark.conf.get("spark.app.id", None), job=", ".join(sorted(spark.getTags())))
    context = spark.sparkContext
    named = (context.getLocalProperty(name) for name in ("spark.job.description", "spark.jobGroup.id"))
    return SparkRun(application=context.applicationId, job=" ".join(next(filter(None, named), "").split()))


def locate(spark: SparkSession, path: str | os.PathLike[str]) -> Location:
    """The location of the path. Raises InvalidInputError for a wrong path, and as `refuse_elsewhere` does."""
    location, text = parse_location(path), os.fspath(path)
    if is_plain(text) and (default := default_file_system(spark)):
        if not os.path.isabs(text) and not is_connect(spark):
            default = replace(default, home=_home(spark))
        refuse_elsewhere(text, default)
    return location


def default_file_system(spark: SparkSession) -> DefaultFileSystem | None:
    """The file system of the session's paths without a scheme, if it is no disk; over Connect, only if it was set."""
    if is_connect(spark):
        names = (_DEFAULT_FS, f"spark.hadoop.{_DEFAULT_FS}")
        return DefaultFileSystem.of(next(filter(None, (spark.conf.get(name, None) for name in names)), None))
    return DefaultFileSystem.of(spark._jsparkSession.sessionState().newHadoopConf().get(_DEFAULT_FS))


def _home(spark: SparkSession) -> str | None:
    """The directory of relative paths, for a message; None if there is no client of that file system."""
    with suppress(Py4JError, PySparkException):
        here = java_class(spark.sparkContext._jvm, "org.apache.hadoop.fs.Path")(".")
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        return str(here.getFileSystem(conf).makeQualified(here).toString())
    return None


_DEFAULT_FS = "fs.defaultFS"


def raise_explained(refused: AccessDeniedError, table: Table, *, withheld: bool) -> NoReturn:
    """Raises the error. If a Connect server has withheld credentials that were needed, the message says so."""
    given = table.location is None or hadoop.gives_credentials(table.location, table.storage_options)
    if given or not withheld:
        raise refused
    raise AccessDeniedError(
        f"{refused}. Spark Connect does not give out secrets: keys, tokens, passwords and names of credential "
        "providers that are set in the session stay on the server. Pass storage_options (to the data source as the "
        "option secretStorageOptions), or set the environment of this process, of the server and of the workers"
    ) from refused


def is_connect(spark: SparkSession) -> bool:
    return not hasattr(spark, "_jsparkSession")


def settle_workers(spark: SparkSession, *, plans_here: bool = False) -> None:
    """As `settle_python`. Does nothing over Connect, where the server chooses the Python of the workers."""
    if not is_connect(spark):
        settle_python(spark.sparkContext, plans_here=plans_here)


def store_settings(spark: SparkSession, location: Location | None = None) -> StoreSettings:
    """The session's settings for the stores, including those in Hadoop's credential stores.

    They are the settings for the bucket of the location; without a location, for all buckets. Over Connect, they are
    only those that were set as spark.hadoop.fs…, without secrets.
    """
    default = None if location else default_file_system(spark)  # a location is resolved already
    run = None if location else replace(run_of(spark), job=None)
    if is_connect(spark):
        set_there = {name.removeprefix("spark.hadoop."): value for name, value in all_settings(spark).items()}
        values = {name: value for name, value in set_there.items() if hadoop.is_known(name)}
        return StoreSettings(values, withheld=True, default=default, run=run)
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    given: dict[str, str] = {}
    for prefix in hadoop.PREFIXES:
        given |= {prefix + name: value for name, value in conf.getPropsWithPrefix(prefix).items()}
    values = {name: value for name, value in given.items() if hadoop.is_known(name)}
    unread: dict[str, str] = {}
    for setting in _credential_stores(location, given):
        if path := (conf.get(setting) or "").strip():
            try:
                values |= _read_credential_store(spark, conf, setting, path)
            except Py4JJavaError as error:
                unread[setting] = str(error.java_exception.toString())
    return StoreSettings(values, unread, default=default, run=run)


_STORES = "security.credential.provider.path"


def _credential_stores(location: Location | None, settings: Iterable[str]) -> list[str]:
    """The settings that may name credential stores: of Hadoop, then of S3A, then of the bucket or of all buckets."""
    if location and location.scheme != "s3":
        return [] if location.scheme == "file" else [f"hadoop.{_STORES}"]
    own = f"fs.s3a.bucket.{location.container}.{_STORES}" if location else None
    buckets = (name for name in settings if name.startswith("fs.s3a.bucket.") and name.endswith(f".{_STORES}"))
    return [f"hadoop.{_STORES}", f"fs.s3a.{_STORES}", *(name for name in buckets if own in (None, name))]


def _read_credential_store(spark: SparkSession, conf: Any, setting: str, path: str) -> dict[str, str]:
    """The known settings in a credential store; those in the store of a bucket are settings of that bucket."""
    owner = setting.removesuffix(_STORES) if setting.startswith("fs.s3a.bucket.") else "fs.s3a."
    jvm = spark.sparkContext._jvm
    own = java_class(jvm, "org.apache.hadoop.conf.Configuration")(conf)
    own.set(f"hadoop.{_STORES}", path)
    found: dict[str, str] = {}
    factory = java_class(jvm, "org.apache.hadoop.security.alias.CredentialProviderFactory")
    for provider in factory.getProviders(own):
        for name in filter(hadoop.is_secret, provider.getAliases()):
            value = "".join(own.getPassword(name))
            found[name if name.startswith("fs.s3a.bucket.") else name.replace("fs.s3a.", owner, 1)] = value
    return found


# --- its JVM ------------------------------------------------------------------------------------------------------


def java_class(jvm: Any, name: str) -> Any:
    """The class with this full name. One `getattr`: for each package of a dotted path, Py4J would search all jars."""
    return getattr(jvm, name)


# --- can Spark read the store itself? -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Probe:
    reached: bool
    until: float


_PROBE_AGAIN_S = 60.0
_SHARE = 20
"""A failed probe may take 30 s. The next probe comes after at least so many times its duration."""

_probes: "WeakKeyDictionary[SparkSession, dict[str, _Probe]]" = WeakKeyDictionary()


def native_root(
    spark: SparkSession,
    location: Location,
    *,
    account: str | None,
    file: str,
    now: Callable[[], float] = time.monotonic,
) -> str | None:
    """The table's root as Hadoop writes it, if Spark itself can read it; else None, with a warning the first time.

    `account` is the storage account of a container whose URL names none. `file` is a live file of the table, relative
    to its root: if Spark finds this file, it reads the same store as dbio. A failure is remembered for 60 s or more, a
    success as long as the session exists.
    """
    root = location.hadoop_url(account=account)
    if location.scheme == "file":
        return root
    account = location.account or account
    container = replace(location, prefix="").hadoop_url(account=account)
    probes = _probes.setdefault(spark, {})
    probe = probes.get(container)
    if probe is None or (not probe.reached and now() >= probe.until):
        began = now()
        nameless = location.scheme == "az" and not account
        problem = "its URL names no account" if nameless else _problem_of_reading(spark, f"{root}/{file}")
        probes[container] = _Probe(problem is None, now() + max(_PROBE_AGAIN_S, _SHARE * (now() - began)))
        if problem and probe is None:
            warn_caller(
                f"Spark cannot read {visible(container)} itself ({visible(_cause(problem, container))}); dbio reads it "
                "through fsspec in Python workers, which is about 3 times slower. Give the session a connector "
                "(hadoop-aws, hadoop-azure or Google's) and credentials"
            )
    return root if probes[container].reached else None


def _problem_of_reading(spark: SparkSession, file: str) -> str | None:
    try:
        spark.read.schema("probe int").parquet(file).schema  # noqa: B018  (over Connect, this plans the read)
    except Py4JJavaError as error:
        return str(error.java_exception.toString())
    except (PySparkException, Py4JError) as error:
        return str(error)
    return None


_CAUSE = 400


def _cause(problem: str, container: str) -> str:
    """The problem in one line, without paths and stack traces; if it is long, its beginning and its end."""
    text = " ".join(problem.partition("JVM stacktrace:")[0].split())
    text = re.sub(rf"{re.escape(container)}/[^\s,]*[^\s,:;)\]]", "the file", text)
    return text if len(text) <= _CAUSE else f"{text[: _CAUSE // 4]} … {text[-3 * _CAUSE // 4 :]}"


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once, as far as the session shows."""
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    known = spark.conf.get("spark.default.parallelism", None) or spark.conf.get("spark.sql.shuffle.partitions", None)
    return int(known or 8)
