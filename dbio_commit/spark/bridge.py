"""Answers what threads of the JVM ask: threads of this process fetch the questions over Py4J's gateway.

Py4J's own way to call Python is a port on which any local user may connect without a token. Here nothing listens: who
asks has the gateway's token, and is the JVM. `Bridge.java` is the other end.
"""

from collections.abc import Callable
from threading import Lock, Thread
from typing import Any
from weakref import WeakKeyDictionary

from py4j.clientserver import ClientServer
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from dbio_commit.errors import DbioError
from dbio_commit.logs import get_logger
from dbio_commit.spark.java import BRIDGE, install
from dbio_commit.spark.session import java_class
from dbio_commit.texts import visible

Answer = Callable[[str, Any], str]
"""Of a text and of an object of the JVM, None where there is none."""

_log = get_logger(__name__)


class Bridge:
    """Of this process and one JVM."""

    def __init__(self, channel: Any, *, pinned: bool) -> None:
        self.channel = channel
        """The JVM's end: `apply` of an array of a topic, a text and an object asks."""
        self._pinned = pinned
        self._topics: dict[str, Answer] = {}
        self._lock, self._idle = Lock(), 0
        self._start()

    def answer(self, topic: str, answer: Answer) -> None:
        """Answers what is asked about the topic from now on; None before."""
        self._topics[topic] = answer

    # As many threads as there are questions at once, and one that waits for the next. Each has a thread of the JVM.

    def _start(self) -> None:
        self._idle += 1
        Thread(target=self._serve, name="dbio-bridge", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                question = self.channel.take()
                if question is not None and not question.begin(self._pinned):
                    continue
            except (Py4JError, OSError):
                return  # the JVM has ended
            with self._lock:
                if question is None and self._idle > 1:
                    self._idle -= 1
                    return
                if question is not None:
                    self._idle -= 1
                    if not self._idle:
                        self._start()
            if question is not None:
                self._reply(question)
                del question  # or the JVM would keep it
                with self._lock:
                    self._idle += 1

    def _reply(self, question: Any) -> None:
        try:
            reply, failed = self._answer(question.topic(), question.text(), question.subject())
            (question.fail if failed else question.answer)(reply)
        except (Py4JError, OSError) as error:
            _log.debug("the JVM ended before it had its answer: %s", error)

    def _answer(self, topic: str, text: str, subject: Any) -> tuple[str, bool]:
        """What is answered, and whether it is an error."""
        try:
            if (answer := self._topics.get(topic)) is None:
                raise LookupError(f"nothing here answers {topic!r:.100}")
            return answer(text, subject), False
        except DbioError as error:
            return f"{type(error).__module__}.{type(error).__name__}: {error}", True
        except (Exception, SystemExit) as error:  # whoever asks must get an answer
            _log.exception("%s could not be answered", topic)
            return f"{type(error).__name__}: {visible(str(error))}", True


_lock = Lock()
_bridges: WeakKeyDictionary[Any, Bridge] = WeakKeyDictionary()


def bridge_of(spark: SparkSession) -> Bridge:
    """The bridge to the session's JVM, built once. Raises UnsupportedStoreError in a JVM that takes no class."""
    install(spark, BRIDGE)
    gateway: Any = spark.sparkContext._gateway
    with _lock:
        if gateway not in _bridges:
            # Without a thread of the JVM for each of Python's, nothing says whose the properties would be.
            channel = java_class(spark._jvm, BRIDGE.name)()
            _bridges[gateway] = Bridge(channel, pinned=isinstance(gateway, ClientServer))
        return _bridges[gateway]
