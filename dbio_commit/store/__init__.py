"""Stores: where the objects of a table are, on a disk, S3, Azure or Google Cloud, behind one contract.

`contract` is what every store guarantees. `local`, `s3`, `azure` and `gcs` implement it by calls whose guarantees were
tested (docs/STORES.md). `testing.MemoryStore` implements it for tests. A store does not know what its objects mean.
"""

from collections.abc import Mapping
from typing import Any

from dbio_commit.base.arguments import check_storage_options
from dbio_commit.base.packages import needs
from dbio_commit.store.contract import Listing, Store, Unfinished
from dbio_commit.store.location import Location, parse_location

__all__ = ["Listing", "Location", "Store", "Unfinished", "open_store", "parse_location"]


def open_store(location: Location, storage_options: Mapping[str, Any] | None = None) -> Store:
    """The store below the location's root. No I/O. Raises MissingPackageError if the store's extra is not installed,
    InvalidInputError."""
    check_storage_options(storage_options)
    options, extra = dict(storage_options or {}), {"az": "azure", "gs": "gcs"}.get(location.scheme, location.scheme)
    with needs(location.url, extra=extra):
        match location.scheme:
            case "file":
                from dbio_commit.store.local import LocalStore

                return LocalStore(location, options)
            case "s3":
                from dbio_commit.store.s3 import S3Store

                return S3Store(location, options)
            case "az":
                from dbio_commit.store.azure import AzureStore

                return AzureStore(location, options)
            case "gs":
                from dbio_commit.store.gcs import GcsStore

                return GcsStore(location, options)
