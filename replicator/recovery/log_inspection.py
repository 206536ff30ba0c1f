"""Read both logs of many partitions of one flow at once: the I/O behind `replicator.recovery.recovery_point`."""

from __future__ import annotations

import math
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from watershed.clusters.admin import Admin
from watershed.clusters.claim_rules import ClaimedPartition
from watershed.clusters.errors import ClusterError, RequestRefused, TopicMissing, Unauthorised
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.answered_fetch import fetch_each, fetch_one
from watershed.clusters.wire.broker_pool import BrokerPool
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.fetch import FETCH_WITH_EPOCHS
from watershed.clusters.wire.messages import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, FetchPartition
from watershed.clusters.wire.versions import SUPPORT, Api
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.record_batch import RawBatch, decode_batches
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.ledger.leader_epochs import LeaderEpochEntry, find_leader_epoch_below
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.recovery.recovery_point import LogInspection
from watershed.replicator.recovery.settled_log_ends import SettledLogEnds

_SEARCHED = 8 << 20  # bytes of a target's log that are asked for at once
_DESCRIBED_TOGETHER = 200  # partitions whose producers one request asks for; each may have thousands
_TAILS_TOGETHER = 64  # partitions whose last batch one Fetch asks for
_SMALL_TAIL = 64 << 10  # bytes of a last batch that may come with others: 4 MiB an answer


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
    led: dict[BrokerAddress, dict[PartitionKey, tuple[LeaderLog, LeaderLog]]] = defaultdict(dict)
    for key in wanted:
        here, there = at_source[key.topic, key.partition], at_target[key.target_topic, key.partition]
        if isinstance(here, ClusterError):
            found[key] = here
        elif isinstance(there, ClusterError):
            found[key] = there
        else:
            led[there.leader][key] = here, there
    with BrokerPool(partial(open_connection, target)) as pool:
        for leader, logs in led.items():
            at_leader = {key: there for key, (_, there) in logs.items()}
            seen_there = _read_targets(pool.get(leader), at_leader, producer_id, aligned)
            for key, (here, there) in logs.items():
                state = seen_there[key]
                if isinstance(state, ClusterError):
                    found[key] = state
                    continue
                seen: LogInspection | ClusterError = _seen(key, here, there, state, expiration_ms, stillness)
                if key in aligned and isinstance(seen, LogInspection):
                    seen = _with_missed(key, seen, source, here, guard)
                elif isinstance(seen, LogInspection) and seen.tail is None and there.end > there.start:
                    seen = _without_tail(key, seen, target)
                found[key] = seen if isinstance(seen, ClusterError) else (seen, here, there)
    return {key: found[key] for key in wanted}


def _read_targets(
    connection: Connection, logs: Mapping[PartitionKey, LeaderLog], producer_id: int, aligned: Collection[PartitionKey]
) -> dict[PartitionKey, _TargetState | ClusterError]:
    """What one leader of the target holds: of our producer id, and as the last batch of each log."""
    states = _read_producer_states(connection, logs, producer_id)
    filled = {
        key: there
        for key, there in logs.items()
        if there.end > there.start and not isinstance(states[key], ClusterError) and key not in aligned
    }
    tails = _read_tails(connection, filled)
    found: dict[PartitionKey, _TargetState | ClusterError] = {}
    for key, there in logs.items():
        state, tail = states[key], tails.get(key)
        if key in aligned and there.end > there.start and not isinstance(state, ClusterError):
            tail = _newest(connection, there, key.partition)
        if isinstance(state, ClusterError):
            found[key] = state
        else:
            found[key] = tail if isinstance(tail, ClusterError) else _TargetState(state, tail)
    return found


def _seen(
    key: PartitionKey,
    here: LeaderLog,
    there: LeaderLog,
    target: _TargetState,
    expiration_ms: int,
    stillness: SettledLogEnds,
) -> LogInspection:
    state = target.producer
    stands_still = stillness.settled(key, "target", state.end, time.monotonic(), state.asked_at)
    return LogInspection(
        source_id=here.topic_id,
        source_start=here.start,
        source_end=here.end,
        target_id=there.topic_id,
        target_start=there.start,
        target_end=there.end,
        tail=target.tail,
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


class _TargetState(NamedTuple):
    """What the target's leader holds. tail: the last batch of its log; None: the log is empty, or gives none."""

    producer: _ProducerState
    tail: RawBatch | None


def _read_producer_states(
    connection: Connection, logs: Mapping[PartitionKey, LeaderLog], producer_id: int
) -> dict[PartitionKey, _ProducerState | ClusterError]:
    """What the target's leader holds of our producer id. Nothing is known where it cannot be asked (Kafka below 2.8):
    the partition is taken over as one whose producer state has expired (decision 0085). DescribeProducers also shows
    what is not replicated yet. Where it is missing, the end of the leader's own log does."""
    if not connection.knows(Api.DESCRIBE_PRODUCERS, 0):
        return {key: _read_unreplicated_end(connection, key, there) for key, there in logs.items()}
    found: dict[PartitionKey, _ProducerState | ClusterError] = {}
    for keys in _cut(list(logs), _DESCRIBED_TOGETHER):
        answers = connection.describe_producers_of(tuple((key.target_topic, key.partition) for key in keys))
        for key in keys:
            error, states = answers[key.target_topic, key.partition]
            if error:
                found[key] = build_refusal(
                    connection.alias, "DescribeProducers", key.target_topic, key.partition, error
                )
                continue
            ours = next((state for state in states if state.producer_id == producer_id), None)
            held = None if ours is None else (ours.epoch, ours.last_sequence, ours.last_timestamp)
            found[key] = _ProducerState(held, logs[key].end, logs[key].asked_at)
    return found


def _read_unreplicated_end(
    connection: Connection, key: PartitionKey, there: LeaderLog
) -> _ProducerState | ClusterError:
    asked_at = time.monotonic()
    (own,) = connection.list_offsets(((key.target_topic, key.partition),), LATEST, unreplicated=True)
    if own.error in error_codes.REINSPECT_CODES:
        return build_refusal(connection.alias, "ListOffsets", key.target_topic, key.partition, own.error)
    # A server that is not Apache's may refuse this question (its offset is -1 then), and answered the usual one.
    return _ProducerState(None, max(own.offset, there.end), asked_at)


def _read_tails(
    connection: Connection, logs: Mapping[PartitionKey, LeaderLog]
) -> dict[PartitionKey, RawBatch | ClusterError | None]:
    """The last stored batch of each log. Many are asked for at once; a large one is asked for again, by itself."""
    found: dict[PartitionKey, RawBatch | ClusterError | None] = {}
    for keys in _cut(list(logs), _TAILS_TOGETHER):
        asked = [
            FetchPartition(logs[key].topic_id, key.partition, logs[key].end - 1, max_bytes=_SMALL_TAIL) for key in keys
        ]
        for key, answer in zip(keys, fetch_each(connection, asked, isolation=READ_UNCOMMITTED), strict=True):
            tail = None if answer.error else _find_tail(answer.records, logs[key])
            found[key] = _tail(connection, logs[key], key.partition) if tail is None else tail
    return found


def _find_tail(records: memoryview, there: LeaderLog) -> RawBatch | None:
    return next((batch for batch in decode_batches(records) if batch.end == there.end), None)


def _cut(keys: list[PartitionKey], size: int) -> Iterator[list[PartitionKey]]:
    return (keys[at : at + size] for at in range(0, len(keys), size))


def _tail(connection: Connection, there: LeaderLog, partition: int) -> RawBatch | ClusterError | None:
    """The last stored batch. Asking for the last offset brings the whole batch that holds it (KIP-74)."""
    asked = FetchPartition(there.topic_id, partition, there.end - 1)
    answer = fetch_one(connection, asked, isolation=READ_UNCOMMITTED)
    if answer.error:
        return build_refusal(connection.alias, "Fetch", str(there.topic_id), partition, answer.error)
    return _find_tail(answer.records, there)


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
