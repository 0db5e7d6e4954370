"""Calls a function for items in Spark's Python workers. Items and results are pickled."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any


class ForItems:
    """For `mapInArrow`: calls the function for each item of the first column.

    A pickle of this class names only this module, so that a worker imports only this and the function's module.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for item in batch.column(0).to_pylist():
                result = pickle.dumps(self._function(pickle.loads(item)))
                yield pa.RecordBatch.from_pydict({"result": pa.array([result], pa.binary())})
