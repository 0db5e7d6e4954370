"""Returns freed memory of pyarrow's pools to the operating system."""

import pyarrow as pa


def release() -> None:
    """Returns freed memory to the operating system. Otherwise the process would keep it for a while.

    The system's pool also returns the memory of large Python objects.
    """
    for pool in (pa.default_memory_pool(), pa.system_memory_pool()):
        pool.release_unused()
