"""Makes absolute URLs of a table's root, as Hadoop and compatible tools write them."""

import os
import re
from typing import Any

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.store import Store, parse_location

_ACCOUNT = re.compile(r"(?:^|;)\s*AccountName=([^;]+)", re.IGNORECASE)


def root_url(store: Store, *, s3: str) -> str:
    """The root as `file:///...`, `abfss://container@account...`, or with `s3` as the scheme; not escaped.

    Raises InvalidInputError if the storage account of an Azure container is not known.
    """
    it = parse_location(store.url)
    account = _account(getattr(store, "storage_options", {}))
    if it.scheme == "az" and not (it.account or account):
        raise InvalidInputError(
            f"{store.url} names no storage account, and absolute paths need one; name the table as "
            "abfss://container@account.dfs.core.windows.net/..., or give account_name"
        )
    return it.hadoop_url(s3=s3, account=account)


def _account(options: dict[str, Any]) -> str | None:
    """The account name as adlfs finds it."""
    text = options.get("connection_string") or os.environ.get("AZURE_STORAGE_CONNECTION_STRING") or ""
    match = _ACCOUNT.search(text)
    return options.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME") or (match[1] if match else None)
