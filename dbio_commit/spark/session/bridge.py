"""Answers questions of the JVM's threads: threads of this process fetch them over Py4J's gateway.

Py4J's own callbacks need a port in Python to which any local user can connect without a token. Here nothing listens:
this process connects to the JVM, with the gateway's token. `Bridge.java` is the other end.
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
"""Gets the text of a question, and its object in the JVM or None; returns the answer."""

_log = get_logger(__name__)


class Bridge:
    """The bridge between this process and one JVM."""

    def __init__(self, channel: Any, *, pinned: bool) -> None:
        self.channel = channel
        """The JVM's end. There, `apply` of an array of a topic, a text and an object asks a question."""
        self._pinned = pinned
        self._topics: dict[str, Answer] = {}
        self._lock = ProcessLock()
        self._threads, self._waiting = 0, 0

    def answer(self, topic: str, answer: Answer) -> None:
        """Sets the function that answers questions about the topic from now on."""
        self._topics[topic] = answer

    def forget(self, topic: str) -> None:
        """Ends `answer` for the topic."""
        self._topics.pop(topic, None)

    def serve(self) -> None:
        """Starts a thread that waits for questions, if none is running."""
        with self._lock:
            if not self._threads:
                self._start()

    # One thread for each question at work, and one that waits for the next. Each uses a thread of the JVM.

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
            except Py4JError as error:  # the JVM's, such as no memory
                _log.warning("could not fetch a question of the JVM, tries again: %s", error)
                sleep(1)
                continue
            if question is None:
                if self._leave(most_waiting=1):
                    return
                continue
            with self._serving():
                self._reply(question)
            del question  # else the JVM would keep it

    def _leave(self, *, most_waiting: int) -> bool:
        """Whether this waiting thread may end: if more than `most_waiting` threads wait."""
        with self._lock:
            if self._waiting <= most_waiting:
                return False
            self._waiting -= 1
            self._threads -= 1
            return True

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """Within the block, this thread is busy, and another one waits."""
        with self._lock:
            self._waiting -= 1
            if not self._waiting:
                try:
                    self._start()
                except RuntimeError as error:  # then this thread waits again after its answer
                    _log.warning("could not start a thread for the JVM's next question, it has to wait: %s", error)
        try:
            yield
        finally:
            with self._lock:
                self._waiting += 1

    def _reply(self, question: Any) -> None:
        try:
            if not question.begin(self._pinned):
                return  # another thread has
            reply, failed = self._answer(question.topic(), question.text(), question.subject())
            (question.fail if failed else question.answer)(reply)
        except (Py4JError, OSError) as error:
            _log.warning("the JVM did not take an answer: %s", error)
            with suppress(Py4JError, OSError):
                question.fail("an answer did not reach the JVM: see the log of the driver's Python")

    def _answer(self, topic: str, text: str, subject: Any) -> tuple[str, bool]:
        """The answer, and whether it is an error. Every error becomes an answer: the JVM's thread waits for one."""
        try:
            if (answer := self._topics.get(topic)) is None:
                raise LookupError(f"nothing answers questions about {topic!r:.100}")
            return answer(text, subject), False
        except DbioError as error:
            return f"{type(error).__module__}.{type(error).__name__}: {error}", True
        except BaseException as error:  # also such as asyncio.CancelledError, which would end the thread
            _log.exception("a question about %s could not be answered", topic)
            return f"{type(error).__name__}: {_text_of(error)}", True


_MOST_CHARACTERS = 100_000


def _text_of(error: BaseException) -> str:
    try:
        return visible(str(error)[:_MOST_CHARACTERS])
    except Exception:  # raised by the error's own `__str__`
        return "an error that cannot be converted to text"


_lock = ProcessLock()
_bridges: WeakKeyDictionary[Any, Bridge] = WeakKeyDictionary()


def bridge_of(spark: SparkSession) -> Bridge:
    """The bridge to the session's JVM, built once. Raises UnsupportedStoreError if the JVM takes no class."""
    install(spark, BRIDGE)
    gateway: Any = spark.sparkContext._gateway
    with _lock:
        if gateway not in _bridges:
            # Local properties belong to a thread of the JVM: without pinned threads, other jobs would get them.
            channel = java_class(spark._jvm, BRIDGE.name)()
            _bridges[gateway] = Bridge(channel, pinned=isinstance(gateway, ClientServer))
        bridge = _bridges[gateway]
        bridge.serve()
        return bridge
