"""A Fetch that is asked again until every partition is answered.

A broker answers a Fetch over a quota at once, with the time to wait and without any partition (Apache Kafka,
FetchContext.getThrottledResponse; KIP-219). Such an answer says nothing of a log: neither that it is empty, nor that it
has not diverged. Who asks for a few partitions and needs to know asks here.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Final, Protocol

from watershed.clusters.errors import ProtocolError, Unanswered
from watershed.clusters.wire.messages import READ_COMMITTED, FetchedPartition, FetchPartition

_PATIENCE_S: Final = 30.0  # a broker asks to wait for as long as its quota window at most, 11 s by default
_SHORTEST_MS: Final = 100
_LONGEST_MS: Final = 5_000  # asking early does no harm: the broker reads nothing of the connection until then


class FetchConnection(Protocol):
    """What is needed of a connection. throttle_ms: what the last answer asks us to wait (KIP-219)."""

    @property
    def alias(self) -> str:
        """The cluster's alias."""
        ...

    @property
    def throttle_ms(self) -> int:
        """In ms; 0 when no quota is used up."""
        ...

    def fetch(
        self, partitions: tuple[FetchPartition, ...], *, max_wait_ms: int, isolation: int
    ) -> list[FetchedPartition]:
        """See `clusters.wire.messages.Wire`."""
        ...


def fetch_one(
    connection: FetchConnection, partition: FetchPartition, *, max_wait_ms: int = 0, isolation: int = READ_COMMITTED
) -> FetchedPartition:
    """As `fetch_each`, for one partition."""
    [answer] = fetch_each(connection, (partition,), max_wait_ms=max_wait_ms, isolation=isolation)
    return answer


def fetch_each(
    connection: FetchConnection,
    partitions: Sequence[FetchPartition],
    *,
    max_wait_ms: int = 0,
    isolation: int = READ_COMMITTED,
) -> list[FetchedPartition]:
    """One answer for each of the partitions, in their order; those that an answer leaves out are asked for again.

    An answer may hold an error, or no records, as with `fetch`. max_wait_ms: of one Fetch. Raises Unanswered after 30 s
    without any, ProtocolError for an answer about a partition that was not asked for, and what `fetch` raises.
    """
    left = {(each.topic_id, each.partition): each for each in partitions}
    found: dict[tuple[uuid.UUID, int], FetchedPartition] = {}
    deadline = time.monotonic() + _PATIENCE_S
    while left:
        answers = connection.fetch(tuple(left.values()), max_wait_ms=max_wait_ms, isolation=isolation)
        for answer in answers:
            place = answer.topic_id, answer.partition
            if left.pop(place, None) is None:
                raise ProtocolError(
                    f"cluster {connection.alias} answers a Fetch for partition {answer.partition} of topic id "
                    f"{answer.topic_id}, which it was not asked for",
                    alias=connection.alias,
                )
            found[place] = answer
        if answers:
            deadline = time.monotonic() + _PATIENCE_S
        elif time.monotonic() >= deadline:
            raise _build_unanswered(connection.alias, list(left.values()))
        if left:
            time.sleep(min(max(connection.throttle_ms, _SHORTEST_MS), _LONGEST_MS) / 1000)
    return [found[each.topic_id, each.partition] for each in partitions]


def _build_unanswered(alias: str, left: Sequence[FetchPartition]) -> Unanswered:
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    return Unanswered(
        f"cluster {alias} answers each Fetch for partition {left[0].partition} of topic id {left[0].topic_id}{more} "
        f"with nothing, for {_PATIENCE_S:g} s: a quota of this principal or client id is used up. Raise its "
        "consumer_byte_rate or request_percentage, or wait until other readers have ended; then run it again",
        alias=alias,
    )
