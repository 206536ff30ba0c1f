"""Read both logs of many partitions of one flow at once: the I/O behind `replicator.recovery.recovery_point`."""

from __future__ import annotations

import math
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from clusters.admin import Admin
from clusters.claim_rules import ClaimedPartition
from clusters.errors import ClusterError, RequestRefused, TopicMissing, Unauthorised
from clusters.settings import ConnectionSettings
from clusters.topic_partition import TopicPartition
from clusters.wire import error_codes
from clusters.wire.answered_fetch import fetch_each, fetch_one
from clusters.wire.broker_pool import BrokerPool
from clusters.wire.connection import Connection, open_connection
from clusters.wire.fetch import FETCH_WITH_EPOCHS
from clusters.wire.messages import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, FetchPartition
from clusters.wire.versions import SUPPORT, Api
from replicator.batch.batch_selection import select_batches
from replicator.batch.record_batch import RawBatch, decode_batches
from replicator.batch.repack import RepackTerms
from replicator.ledger.leader_epochs import LeaderEpochEntry, find_leader_epoch_below
from replicator.partition_key import PartitionKey
from replicator.recovery.recovery_point import LogInspection
from replicator.recovery.settled_log_ends import SettledLogEnds

_SEARCHED = 8 << 20  # bytes of a target's log that are asked for at once


class BrokerAddress(NamedTuple):
    """Host and port where a broker listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class LeaderLog:
    """A partition's leader and what it says of the log; epochs are those of the first record and of the end. asked_at:
    when it was asked for the end (monotonic seconds); the answer says nothing of later moments."""

    topic_id: uuid.UUID
    leader: BrokerAddress
    start: int
    end: int
    start_epoch: int = -1
    end_epoch: int = -1
    asked_at: float = field(default=math.inf, compare=False)


def inspect_logs(
    keys: Iterable[PartitionKey],
    source: ConnectionSettings,
    target: ConnectionSettings,
    producer_id: int,
    expiration_ms: int,
    stillness: SettledLogEnds,
    aligned: Collection[PartitionKey] = (),
    guard: Callable[[ClaimedPartition], Callable[[RawBatch], bool]] = lambda _where: lambda _batch: False,
) -> dict[PartitionKey, tuple[LogInspection, LeaderLog, LeaderLog] | ClusterError]:
    """What both logs look like now: (seen, source leader, target leader) by partition.

    aligned: those of `keys` whose offsets are the source's own; behind their last record there may be any number of
    markers, where the source has no records either, or only some that are left out (`guard`).

    Raises Unreachable when a cluster does not answer at all; trouble with one partition stands in its place.
    """
    wanted = list(keys)
    at_source = read_leader_logs(source, [(key.topic, key.partition) for key in wanted], READ_COMMITTED)
    at_target = read_leader_logs(target, [(key.target_topic, key.partition) for key in wanted], READ_UNCOMMITTED)
    found: dict[PartitionKey, tuple[LogInspection, LeaderLog, LeaderLog] | ClusterError] = {}
    with BrokerPool(partial(open_connection, target)) as pool:
        for key in wanted:
            here, there = at_source[key.topic, key.partition], at_target[key.target_topic, key.partition]
            if isinstance(here, ClusterError):
                found[key] = here
            elif isinstance(there, ClusterError):
                found[key] = there
            else:
                connection = pool.get(there.leader)
                last = _newest if key in aligned else _tail
                seen = _seen(key, here, there, connection, producer_id, expiration_ms, stillness, last)
                if key in aligned and isinstance(seen, LogInspection):
                    seen = _with_missed(key, seen, source, here, guard)
                elif isinstance(seen, LogInspection) and seen.tail is None and there.end > there.start:
                    seen = _without_tail(key, seen, target)
                found[key] = seen if isinstance(seen, ClusterError) else (seen, here, there)
    return found


def _seen(
    key: PartitionKey,
    here: LeaderLog,
    there: LeaderLog,
    connection: Connection,
    producer_id: int,
    expiration_ms: int,
    stillness: SettledLogEnds,
    last: Callable[[Connection, LeaderLog, int], RawBatch | ClusterError | None],
) -> LogInspection | ClusterError:
    state = _read_producer_state(connection, key, there, producer_id)
    if isinstance(state, ClusterError):
        return state
    tail: RawBatch | None = None
    if there.end > there.start:
        stored = last(connection, there, key.partition)
        if isinstance(stored, ClusterError):
            return stored
        tail = stored
    stands_still = stillness.settled(key, "target", state.end, time.monotonic(), state.asked_at)
    return LogInspection(
        source_id=here.topic_id,
        source_start=here.start,
        source_end=here.end,
        target_id=there.topic_id,
        target_start=there.start,
        target_end=there.end,
        tail=tail,
        producer=state.producer,
        now=int(time.time() * 1000),
        expiration=expiration_ms,
        settled=stands_still and state.end == there.end,
        unreplicated=state.end - there.end,
        source_settled=stillness.settled(key, "source", here.end, time.monotonic(), here.asked_at),
    )


class _ProducerState(NamedTuple):
    """producer: see `LogInspection`. end: of the leader's log, with what its followers do not have yet where the
    leader does not tell what it holds of us; otherwise that of `LeaderLog`. asked_at: when that end was asked for."""

    producer: tuple[int, int, int] | None
    end: int
    asked_at: float


def _read_producer_state(
    connection: Connection, key: PartitionKey, there: LeaderLog, producer_id: int
) -> _ProducerState | ClusterError:
    """What the target's leader holds of our producer id. Nothing is known where it cannot be asked (Kafka below 2.8):
    the partition is taken over as one whose producer state has expired (decision 0085). DescribeProducers also shows
    what is not replicated yet. Where it is missing, the end of the leader's own log does."""
    topic, partition = key.target_topic, key.partition
    if not connection.knows(Api.DESCRIBE_PRODUCERS, 0):
        asked_at = time.monotonic()
        (own,) = connection.list_offsets(((topic, partition),), LATEST, unreplicated=True)
        if own.error in error_codes.REINSPECT_CODES:
            return build_refusal(connection.alias, "ListOffsets", topic, partition, own.error)
        # A server that is not Apache's may refuse this question (its offset is -1 then), and answered the usual one.
        return _ProducerState(None, max(own.offset, there.end), asked_at)
    error, states = connection.describe_producers(topic, partition)
    if error:
        return build_refusal(connection.alias, "DescribeProducers", topic, partition, error)
    ours = next((state for state in states if state.producer_id == producer_id), None)
    held = None if ours is None else (ours.epoch, ours.last_sequence, ours.last_timestamp)
    return _ProducerState(held, there.end, there.asked_at)


def _tail(connection: Connection, there: LeaderLog, partition: int) -> RawBatch | ClusterError | None:
    """The last stored batch. Asking for the last offset brings the whole batch that holds it (KIP-74)."""
    asked = FetchPartition(there.topic_id, partition, there.end - 1)
    answer = fetch_one(connection, asked, isolation=READ_UNCOMMITTED)
    if answer.error:
        return build_refusal(connection.alias, "Fetch", str(there.topic_id), partition, answer.error)
    return next((batch for batch in decode_batches(answer.records) if batch.end == there.end), None)


def _newest(connection: Connection, there: LeaderLog, partition: int) -> RawBatch | ClusterError | None:
    """The last batch that is no marker, searched from the log's end in longer and longer steps."""
    high, step = there.end, 16
    while high > there.start:
        low = at = max(there.start, high - step)
        found: RawBatch | None = None
        while at < high:
            asked = FetchPartition(there.topic_id, partition, at, max_bytes=_SEARCHED)
            answer = fetch_one(connection, asked, isolation=READ_UNCOMMITTED)
            if answer.error:
                return build_refusal(connection.alias, "Fetch", str(there.topic_id), partition, answer.error)
            before = at
            for batch in decode_batches(answer.records):
                if not batch.control and batch.base < high:
                    found = batch
                at = max(at, batch.end)
            if at == before:
                break
        if found is not None:
            return found
        high, step = low, min(step * 16, 1 << 20)
    return None


def _with_missed(
    key: PartitionKey,
    seen: LogInspection,
    source: ConnectionSettings,
    here: LeaderLog,
    guard: Callable[[ClaimedPartition], Callable[[RawBatch], bool]],
) -> LogInspection | ClusterError:
    """With the first record of the source that should stand where the target's log has nothing but markers behind its
    last record: somebody else's, then."""
    position = max(seen.target_start if seen.tail is None else seen.tail.end, here.start)
    end = min(seen.target_end, here.end)
    if position >= end:
        return seen
    leave_out = guard(ClaimedPartition(key.topic, here.topic_id, key.partition))
    with closing(open_connection(source, here.leader)) as connection:
        while position < end:
            asked = FetchPartition(here.topic_id, key.partition, position, max_bytes=_SEARCHED)
            answer = fetch_one(connection, asked, isolation=READ_COMMITTED)
            if answer.error:
                return build_refusal(connection.alias, "Fetch", key.topic, key.partition, answer.error)
            selected = select_batches(
                answer.records, position, answer.aborted, leave_out=leave_out, terms=RepackTerms(dense=True)
            )
            if selected.batches and selected.batches[0].base < end:
                return replace(seen, missed=selected.batches[0].base)
            if selected.position == position:
                break
            position = selected.position
    return seen


def _without_tail(key: PartitionKey, seen: LogInspection, target: ConnectionSettings) -> LogInspection | ClusterError:
    """The log holds offsets, and its last batch did not come. Only the cleaner takes it away for good; otherwise it
    is about to be there (a leader that has just changed), and what it says must not go unread."""
    try:
        with Admin(target) as admin:
            policy = admin.effective_configs([key.target_topic]).get(key.target_topic, {}).get("cleanup.policy", "")
    except ClusterError as error:
        return error
    if "compact" in policy:
        return seen
    return ClusterError(
        f"cluster {target.alias} holds {key.target_topic}-{key.partition} up to offset {seen.target_end - 1}, "
        "but does not give the last batch",
        alias=target.alias,
        topic=key.target_topic,
        partition=key.partition,
    )


def require_leader_logs(
    settings: ConnectionSettings, partitions: Iterable[tuple[str, int]], isolation: int
) -> dict[TopicPartition, LeaderLog]:
    """`read_leader_logs`, in the order given. Raises ClusterError for the first partition with trouble."""
    found: dict[TopicPartition, LeaderLog] = {}
    for place, log in read_leader_logs(settings, list(partitions), isolation).items():
        if isinstance(log, ClusterError):
            raise log
        found[TopicPartition(*place)] = log
    return found


def read_leader_logs(
    settings: ConnectionSettings, partitions: list[tuple[str, int]], isolation: int
) -> dict[tuple[str, int], LeaderLog | ClusterError]:
    """Who leads each (topic, partition), and its log's range; trouble with one stands in its place.

    Raises Unreachable when the cluster does not answer at all.
    """
    found: dict[tuple[str, int], LeaderLog | ClusterError] = {}
    leaders: dict[tuple[str, int], tuple[uuid.UUID, BrokerAddress]] = {}
    with closing(open_connection(settings)) as connection:
        metadata = connection.metadata(tuple(sorted({topic for topic, _ in partitions})))
    topics = {topic.name: topic for topic in metadata.topics}
    for topic, partition in partitions:
        described = topics.get(topic)
        if described is not None and described.error == error_codes.TOPIC_AUTHORIZATION_FAILED:
            found[topic, partition] = Unauthorised(
                f"cluster {settings.alias} does not let this principal see topic {topic}: DESCRIBE on it is missing",
                alias=settings.alias,
                topic=topic,
            )
            continue
        if described is not None and described.error not in (error_codes.NONE, error_codes.UNKNOWN_TOPIC_OR_PARTITION):
            found[topic, partition] = build_refusal(settings.alias, "Metadata", topic, partition, described.error)
            continue
        if described is None or described.error or partition >= len(described.partitions):
            found[topic, partition] = TopicMissing(
                f"cluster {settings.alias} has no topic {topic} with a partition {partition}",
                alias=settings.alias,
                topic=topic,
                partition=partition,
            )
            continue
        leader = metadata.brokers.get(described.partitions[partition].node)
        if leader is None:
            found[topic, partition] = build_refusal(
                settings.alias, "Metadata", topic, partition, error_codes.LEADER_NOT_AVAILABLE
            )
            continue
        leaders[topic, partition] = (described.topic_id, BrokerAddress(*leader))
    by_leader: dict[BrokerAddress, list[tuple[str, int]]] = defaultdict(list)
    for where, (_topic_id, address) in leaders.items():
        by_leader[address].append(where)
    for address, led in by_leader.items():
        with closing(open_connection(settings, address)) as connection:
            asked = tuple(led)
            starts = {(a.topic, a.partition): a for a in connection.list_offsets(asked, EARLIEST)}
            asked_at = time.monotonic()
            ends = {(a.topic, a.partition): a for a in connection.list_offsets(asked, LATEST, isolation=isolation)}
        for where in led:
            error = starts[where].error or ends[where].error
            if error:
                found[where] = build_refusal(settings.alias, "ListOffsets", *where, error)
            else:
                topic_id, _ = leaders[where]
                start, end = starts[where], ends[where]
                found[where] = LeaderLog(
                    topic_id, address, start.offset, end.offset, start.leader_epoch, end.leader_epoch, asked_at
                )
    return found


def find_leaderless_partitions(settings: ConnectionSettings, topic: str, partitions: Iterable[int]) -> set[int]:
    """Those of `partitions` that nobody leads now. A topic that is not there misses none. Raises Unreachable."""
    with closing(open_connection(settings)) as connection:
        metadata = connection.metadata((topic,))
    led = [each for described in metadata.topics if not described.error for each in described.partitions]
    absent = {each.partition for each in led if each.node not in metadata.brokers}
    return absent & set(partitions)


def find_log_truncations(
    source: ConnectionSettings, copied: Mapping[PartitionKey, tuple[LeaderLog, int, Sequence[LeaderEpochEntry]]]
) -> dict[PartitionKey, int]:
    """Where the source's log and what was copied of it part: the first copied offset that is not the source's any more,
    for those partitions (leader, position, epochs copied) where there is one. A source that was truncated and has grown
    again is found too (KIP-320). Raises ClusterError."""
    found: dict[PartitionKey, int] = {}
    by_leader: dict[BrokerAddress, dict[PartitionKey, tuple[LeaderLog, int, Sequence[LeaderEpochEntry]]]] = defaultdict(
        dict
    )
    for key, (led, position, epochs) in copied.items():
        if find_leader_epoch_below(epochs, position) >= 0:
            by_leader[led.leader][key] = led, position, epochs
    for address, open_questions in by_leader.items():
        with closing(open_connection(source, address)) as connection:
            while open_questions:
                lower = _parted(connection, open_questions)
                found |= lower
                # An answer names the largest common epoch; what was copied of that one may part lower still (KIP-595).
                open_questions = {
                    key: (led, lower[key], epochs)
                    for key, (led, _, epochs) in open_questions.items()
                    if key in lower and lower[key] > led.start and find_leader_epoch_below(epochs, lower[key]) >= 0
                }
    return found


def _parted(
    connection: Connection, copied: Mapping[PartitionKey, tuple[LeaderLog, int, Sequence[LeaderEpochEntry]]]
) -> dict[PartitionKey, int]:
    """One question about each position; a lower one for those whose log parts below it."""
    lower: dict[PartitionKey, int] = {}
    for key, (common, end) in _ask_where_diverged(connection, copied).items():
        led, position, epochs = copied[key]
        ours_end = min((entry.source for entry in epochs if entry.epoch > common), default=position)
        lower[key] = max(min(end, ours_end, position - 1), led.start)
    return lower


def _ask_where_diverged(
    connection: Connection, copied: Mapping[PartitionKey, tuple[LeaderLog, int, Sequence[LeaderEpochEntry]]]
) -> dict[PartitionKey, tuple[int, int]]:
    """(the newest common leader epoch, where it ends in the leader's log) of the partitions whose log has parted."""
    epochs_at = {key: find_leader_epoch_below(epochs, position) for key, (_, position, epochs) in copied.items()}
    if not connection.knows(Api.FETCH, FETCH_WITH_EPOCHS):
        return _ask_for_epoch_ends(connection, {key: (copied[key][1], epoch) for key, epoch in epochs_at.items()})
    by_partition = {(led.topic_id, key.partition): key for key, (led, _, _) in copied.items()}
    asked = tuple(
        FetchPartition(led.topic_id, key.partition, position, epochs_at[key], max_bytes=1)
        for key, (led, position, _) in copied.items()
    )
    return {
        by_partition[answer.topic_id, answer.partition]: answer.diverging_epoch
        for answer in fetch_each(connection, asked, isolation=READ_COMMITTED)
        if answer.diverging_epoch is not None
    }


def _ask_for_epoch_ends(
    connection: Connection, copied: Mapping[PartitionKey, tuple[int, int]]
) -> dict[PartitionKey, tuple[int, int]]:
    """As `_ask_where_diverged`, of a broker whose Fetch does not tell. copied: (position, leader epoch below it).

    A broker that cannot be asked, or that refuses, tells nothing: the last copied record is compared in any case
    (`replicator.recovery.source_comparison`).
    """
    if not connection.knows(Api.OFFSET_FOR_LEADER_EPOCH, SUPPORT[Api.OFFSET_FOR_LEADER_EPOCH].lowest):
        return {}
    ends = connection.find_epoch_ends({(key.topic, key.partition): epoch for key, (_, epoch) in copied.items()})
    found: dict[PartitionKey, tuple[int, int]] = {}
    for key, (position, copied_epoch) in copied.items():
        error, epoch, end = ends.get((key.topic, key.partition), (-1, -1, -1))
        if not error and epoch >= 0 and (epoch < copied_epoch or end < position):
            found[key] = epoch, end
    return found


def build_refusal(alias: str, what: str, topic: str, partition: int, code: int) -> RequestRefused:
    """The error for a Kafka error code in the answer to request `what`."""
    error = RequestRefused(
        f"cluster {alias} answers {error_codes.describe_error_code(code)} to {what} for {topic}-{partition}",
        alias=alias,
        topic=topic,
        partition=partition,
    )
    error.code = code
    return error
