"""New tids and uuids, made of time and random bits."""

from datetime import UTC
from uuid import UUID

from dbio_commit.base.clock import Clock
from dbio_commit.protocol import names


def new_tid(clock: Clock) -> str:
    millis = int(clock.now().astimezone(UTC).timestamp() * 1000)
    return names.format_tid(millis, clock.random_bits(names.RANDOM_BITS))


def new_uuid(clock: Clock) -> str:
    return str(UUID(int=clock.random_bits(128), version=4))
