"""Finds who wrote to partitions. There are three sources: batch headers in the log, the producer state that leaders
hold (KIP-664), and the transactional ids to which transaction coordinators gave a producer id. None of them holds a
principal or a client id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from watershed.clusters.errors import ClusterError, RequestRefused, TopicMissing
from watershed.clusters.record_batch import BatchHeader, split_batches
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.answered_fetch import fetch_each
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.messages import READ_UNCOMMITTED, FetchedPartition, FetchPartition, TopicMetadata
from watershed.clusters.wire.versions import Api

_PARTITIONS_A_FETCH = 32
_Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ProducerWrites:
    """What one producer wrote to one partition.

    first, last, records: counted from the requested offset on; -1, -1, 0 if the answer is a leader's producer state.
    last_ms: the time of the last record, in ms since 1970. producer_id: -1 for a producer without idempotence.
    """

    place: TopicPartition
    producer_id: int
    epoch: int
    sequence: int
    last_ms: int
    first: int = -1
    last: int = -1
    records: int = 0
    marker: bool = False


def read_writes_since(
    settings: ConnectionSettings, since: Mapping[TopicPartition, int]
) -> tuple[list[ProducerWrites], dict[TopicPartition, int]]:
    """Read all batches from these offsets on, up to the present end of each log.

    Return the writes by producer (newest first within a partition) and the offset that each log was read up to. Raises
    ClusterError.
    """
    found: dict[tuple[TopicPartition, int, int, bool], ProducerWrites] = {}
    upto: dict[TopicPartition, int] = {}
    for address, topics, places in _led(settings, since):
        with closing(open_connection(settings, address)) as leader:
            for start in range(0, len(places), _PARTITIONS_A_FETCH):
                left = {place: since[place] for place in places[start : start + _PARTITIONS_A_FETCH]}
                while left:
                    left, ended = _read_on(settings, leader, topics, left, found)
                    upto |= ended
    return sorted(found.values(), key=lambda each: (each.place, -each.last)), upto


def read_producer_states(settings: ConnectionSettings, places: Collection[TopicPartition]) -> list[ProducerWrites]:
    """The producers whose state leaders hold (DescribeProducers), newest first within a partition.

    Brokers drop the state after `producer.id.expiration.ms`, and hold none for producers without idempotence. Raises
    ClusterError.
    """
    found: list[ProducerWrites] = []
    for address, _topics, led in _led(settings, places):
        with closing(open_connection(settings, address)) as leader:
            for place in led:
                error, states = leader.describe_producers(place.topic, place.partition)
                if error:
                    raise _refused(settings, place, error)
                found += [
                    ProducerWrites(place, each.producer_id, each.epoch, each.last_sequence, each.last_timestamp)
                    for each in states
                ]
    return sorted(found, key=lambda each: (each.place, -each.last_ms))


def find_transactional_ids(settings: ConnectionSettings, producer_ids: Collection[int]) -> dict[int, str]:
    """Producer id → transactional id, for producers that have one that we may see (DESCRIBE on the id)."""
    wanted = tuple(each for each in sorted(set(producer_ids)) if each >= 0)
    found: dict[int, str] = {}
    if not wanted:
        return found
    with closing(open_connection(settings)) as connection:
        addresses = sorted(connection.metadata(()).brokers.values())
    for address in addresses:
        with closing(open_connection(settings, address)) as broker:
            answer = broker.ask(Api.LIST_TRANSACTIONS, state_filters=(), producer_id_filters=wanted)
        found |= {int(each.producer_id): str(each.transactional_id) for each in answer.transaction_states}
    return found


def _led(
    settings: ConnectionSettings, places: Collection[TopicPartition]
) -> Iterator[tuple[_Address, dict[str, TopicMetadata], list[TopicPartition]]]:
    """The partitions by the address of their leader."""
    if not places:
        return
    with closing(open_connection(settings)) as connection:
        metadata = connection.metadata(tuple(sorted({place.topic for place in places})))
    topics = {topic.name: topic for topic in metadata.topics}
    by_leader: dict[_Address, list[TopicPartition]] = defaultdict(list)
    for place in sorted(places):
        described = topics.get(place.topic)
        if described is None or described.error or place.partition >= len(described.partitions):
            raise TopicMissing(f"cluster {settings.alias} shows no partition {place}", alias=settings.alias)
        leader = metadata.brokers.get(described.partitions[place.partition].node)
        if leader is None:
            raise settings.unreachable(f"{place} has no leader just now")
        by_leader[leader].append(place)
    for address, led in sorted(by_leader.items()):
        yield address, topics, led


def _read_on(
    settings: ConnectionSettings,
    leader: Connection,
    topics: Mapping[str, TopicMetadata],
    left: Mapping[TopicPartition, int],
    found: dict[tuple[TopicPartition, int, int, bool], ProducerWrites],
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Fetch once from each partition. Return the offsets to read on from, and the ends of the logs that are read up to
    there."""
    by_id = {(topics[place.topic].topic_id, place.partition): place for place in left}
    asked = tuple(FetchPartition(topic, number, left[place]) for (topic, number), place in by_id.items())
    answers = fetch_each(leader, asked, isolation=READ_UNCOMMITTED)
    rest: dict[TopicPartition, int] = {}
    ended: dict[TopicPartition, int] = {}
    for answer in answers:
        place = by_id[answer.topic_id, answer.partition]
        at = left[place]
        if answer.error == error_codes.OFFSET_OUT_OF_RANGE and answer.log_start > at:
            rest[place] = answer.log_start
            continue
        if answer.error:
            raise _refused(settings, place, answer.error)
        after = _tallied(place, at, answer, found)
        # Partitions share the size limit of a response. An empty one is asked again, until it is asked alone.
        if after >= answer.high_watermark or (after == at and len(left) == 1):
            ended[place] = after
        else:
            rest[place] = after
    return rest, ended


def _tallied(
    place: TopicPartition,
    at: int,
    answer: FetchedPartition,
    found: dict[tuple[TopicPartition, int, int, bool], ProducerWrites],
) -> int:
    """Add the writes to `found`. Return the offset behind the last complete batch."""
    for head, _batch in split_batches(answer.records):
        if head.last_offset < at:
            continue
        key = (place, head.producer_id, head.producer_epoch, head.is_control)
        found[key] = _added(found.get(key), place, head, max(at, head.base_offset))
        at = head.last_offset + 1
    return at


def _added(before: ProducerWrites | None, place: TopicPartition, head: BatchHeader, first: int) -> ProducerWrites:
    count = min(head.count, head.last_offset - first + 1)
    if before is None:
        return ProducerWrites(
            place,
            head.producer_id,
            head.producer_epoch,
            head.last_sequence,
            head.max_timestamp,
            first,
            head.last_offset,
            count,
            head.is_control,
        )
    return replace(
        before,
        sequence=head.last_sequence,
        last_ms=max(before.last_ms, head.max_timestamp),
        last=head.last_offset,
        records=before.records + count,
    )


def _refused(settings: ConnectionSettings, place: TopicPartition, code: int) -> ClusterError:
    error = RequestRefused(
        f"cluster {settings.alias} answered {error_codes.describe_error_code(code)} when asked who writes to {place}",
        alias=settings.alias,
    )
    error.code = code
    return error
