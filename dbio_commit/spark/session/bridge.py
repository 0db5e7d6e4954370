"""Answers questions of JVM threads: Python threads of this process fetch them over Py4J's gateway.

Py4J's own way to call Python from Java opens a port, on which any local user may connect without a token. Here nothing
listens in Python: the questions come over the connection that this process opened with the gateway's token.
`Bridge.java` is the other end.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from time import sleep
from typing import Any
from weakref import WeakKeyDictionary

from py4j.clientserver import ClientServer
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession

from dbio_commit.base.errors import DbioError
from dbio_commit.base.forks import ProcessLock
from dbio_commit.base.logs import get_logger
from dbio_commit.base.texts import visible
from dbio_commit.spark.session.conf import java_class
from dbio_commit.spark.session.jvm import BRIDGE, install

Answer = Callable[[str, Any], str]
"""Answers a question: a text, and an object of the JVM or None."""

_log = get_logger(__name__)


class Bridge:
    """Between this process and one JVM."""

    def __init__(self, channel: Any, *, pinned: bool) -> None:
        self.channel = channel
        """The end in the JVM. Java asks by `apply`, with an array of a topic, a text and an object."""
        self._pinned = pinned
        self._topics: dict[str, Answer] = {}
        self._lock = ProcessLock()
        self._threads, self._waiting = 0, 0

    def answer(self, topic: str, answer: Answer) -> None:
        """Answers questions of this topic from now on."""
        self._topics[topic] = answer

    def forget(self, topic: str) -> None:
        """Answers questions of this topic no longer."""
        self._topics.pop(topic, None)

    def serve(self) -> None:
        """Starts a thread that waits for questions, unless there is one."""
        with self._lock:
            if not self._threads:
                self._start()

    # There is a thread for each question that is being answered, and one that waits for the next question. Py4J has a
    # JVM thread for each of them.

    def _start(self) -> None:
        Thread(target=self._serve, name="dbio-bridge", daemon=True).start()
        self._threads += 1
        self._waiting += 1

    def _serve(self) -> None:
        while True:
            try:
                question = self.channel.take()
            except (Py4JNetworkError, OSError):  # the JVM has ended
                self._leave(most_waiting=0)
                return
            except Py4JError as error:  # an error in the JVM, such as no memory
                _log.warning("a question of the JVM could not be fetched, the next attempt is in 1 s: %s", error)
                sleep(1)
                continue
            if question is None:
                if self._leave(most_waiting=1):
                    return
                continue
            with self._serving():
                self._reply(question)
            del question  # so that the JVM can free it

    def _leave(self, *, most_waiting: int) -> bool:
        """Whether this waiting thread may end, as more than `most_waiting` threads wait."""
        with self._lock:
            if self._waiting <= most_waiting:
                return False
            self._waiting -= 1
            self._threads -= 1
            return True

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """Within, this thread answers, and another one waits for the next question."""
        with self._lock:
            self._waiting -= 1
            if not self._waiting:
                try:
                    self._start()
                except RuntimeError as error:  # this thread waits for the next question after its answer
                    _log.warning("no thread can be started, the JVM's next question waits for this answer: %s", error)
        try:
            yield
        finally:
            with self._lock:
                self._waiting += 1

    def _reply(self, question: Any) -> None:
        try:
            if not question.begin(self._pinned):
                return  # another thread answers it
            reply, failed = self._answer(question.topic(), question.text(), question.subject())
            (question.fail if failed else question.answer)(reply)
        except (Py4JError, OSError) as error:
            _log.warning("the JVM did not take an answer: %s", error)
            with suppress(Py4JError, OSError):
                question.fail("the answer did not reach the JVM: see the log of the driver's Python process")

    def _answer(self, topic: str, text: str, subject: Any) -> tuple[str, bool]:
        """The answer, and whether it is an error. Raises nothing, so that the JVM always gets an answer."""
        try:
            if (answer := self._topics.get(topic)) is None:
                raise LookupError(f"nothing here answers {topic!r:.100}")
            return answer(text, subject), False
        except DbioError as error:
            return f"{type(error).__module__}.{type(error).__name__}: {error}", True
        except BaseException as error:  # even one that would end this thread, such as asyncio.CancelledError
            _log.exception("%s could not be answered", topic)
            return f"{type(error).__name__}: {_text_of(error)}", True


_MOST_CHARACTERS = 100_000


def _text_of(error: BaseException) -> str:
    try:
        return visible(str(error)[:_MOST_CHARACTERS])
    except Exception:  # raised by its `__str__`
        return "an error whose message cannot be read"


_lock = ProcessLock()
_bridges: WeakKeyDictionary[Any, Bridge] = WeakKeyDictionary()


def bridge_of(spark: SparkSession) -> Bridge:
    """The bridge to the session's JVM, built once. Raises UnsupportedStoreError if the JVM accepts no class."""
    install(spark, BRIDGE)
    gateway: Any = spark.sparkContext._gateway
    with _lock:
        if gateway not in _bridges:
            # Only ClientServer has a JVM thread for each Python thread, so that its local properties can be set.
            channel = java_class(spark._jvm, BRIDGE.name)()
            _bridges[gateway] = Bridge(channel, pinned=isinstance(gateway, ClientServer))
        bridge = _bridges[gateway]
        bridge.serve()
        return bridge
