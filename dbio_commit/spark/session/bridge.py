"""Answers what threads of the JVM ask: threads of this process fetch the questions over Py4J's gateway.

Py4J's own way to call Python is a port on which any local user may connect without a token. Here nothing listens: who
asks has the gateway's token, and is the JVM. `Bridge.java` is the other end.
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
"""Of a text and of an object of the JVM, None where there is none."""

_log = get_logger(__name__)


class Bridge:
    """Of this process and one JVM."""

    def __init__(self, channel: Any, *, pinned: bool) -> None:
        self.channel = channel
        """The JVM's end: `apply` of an array of a topic, a text and an object asks."""
        self._pinned = pinned
        self._topics: dict[str, Answer] = {}
        self._lock = ProcessLock()
        self._threads, self._waiting = 0, 0

    def answer(self, topic: str, answer: Answer) -> None:
        """Answers what is asked about the topic from now on."""
        self._topics[topic] = answer

    def forget(self, topic: str) -> None:
        """Nobody asks about the topic any more."""
        self._topics.pop(topic, None)

    def serve(self) -> None:
        """Has a thread wait for questions, where none is left."""
        with self._lock:
            if not self._threads:
                self._start()

    # As many threads as there are questions at once, and one that waits for the next. Each has a thread of the JVM.

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
                _log.warning("a question of the JVM could not be fetched: %s", error)
                sleep(1)
                continue
            if question is None:
                if self._leave(most_waiting=1):
                    return
                continue
            with self._serving():
                self._reply(question)
            del question  # or the JVM would keep it

    def _leave(self, *, most_waiting: int) -> bool:
        """Whether this thread, which waits, may end: more than so many wait."""
        with self._lock:
            if self._waiting <= most_waiting:
                return False
            self._waiting -= 1
            self._threads -= 1
            return True

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """Within, this thread does not wait; another does."""
        with self._lock:
            self._waiting -= 1
            if not self._waiting:
                try:
                    self._start()
                except RuntimeError as error:  # then this one waits again when it has answered
                    _log.warning("no thread can be started for the JVM's next question: %s", error)
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
                question.fail("an answer could not be handed over: see the log of the driver's Python")

    def _answer(self, topic: str, text: str, subject: Any) -> tuple[str, bool]:
        """What is answered, and whether it is an error. Whatever happens, who asks gets an answer."""
        try:
            if (answer := self._topics.get(topic)) is None:
                raise LookupError(f"nothing here answers {topic!r:.100}")
            return answer(text, subject), False
        except DbioError as error:
            return f"{type(error).__module__}.{type(error).__name__}: {error}", True
        except BaseException as error:  # also one that would end a thread, such as asyncio.CancelledError
            _log.exception("%s could not be answered", topic)
            return f"{type(error).__name__}: {_text_of(error)}", True


_MOST_CHARACTERS = 100_000


def _text_of(error: BaseException) -> str:
    try:
        return visible(str(error)[:_MOST_CHARACTERS])
    except Exception:  # of its own `__str__`
        return "an error whose text cannot be made"


_lock = ProcessLock()
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
        bridge = _bridges[gateway]
        bridge.serve()
        return bridge
