"""Gives memory back that nothing uses any more."""

import pyarrow as pa


def release() -> None:
    """Returns freed memory to the system. Otherwise the process keeps what it once needed for a while.

    That of the system's pool is what large objects of Python had.
    """
    for pool in (pa.default_memory_pool(), pa.system_memory_pool()):
        pool.release_unused()
