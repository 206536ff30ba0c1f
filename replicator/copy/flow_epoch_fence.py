"""Keeping the workers of a flow out of its target partitions for good: those that stood still, too.

A stopped flow is obeyed by workers that run. One that was frozen, or cut off from the target, still holds batches that
it may send when it wakes up, behind what applications have written meanwhile. So its producers are fenced in the log:

- by sequence numbers: a bare abort marker at the next producer epoch on every partition; brokers take nothing of an
  older epoch behind it (INVALID_PRODUCER_EPOCH), and no consumer sees the marker. It needs ALTER on the cluster.
- in transactions: InitProducerId on the transactional id of every slot, as any successor does.

The flow can not go on there by itself afterwards, and is not meant to.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Final

from watershed.clusters.control_topics import SLOT_COUNT
from watershed.clusters.errors import RequestRefused, RequestUnsupported, Unauthorised
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.answered_fetch import fetch_one
from watershed.clusters.wire.broker_pool import BrokerPool
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.messages import READ_UNCOMMITTED, FetchPartition
from watershed.clusters.wire.transaction_requests import ProducerIdAndEpoch
from watershed.clusters.wire.versions import Api
from watershed.replicator.batch.record_batch import decode_batches
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.copy.transactions.slot_sender import (
    build_home_path,
    read_slot_paths,
    read_transaction_version,
)
from watershed.replicator.copy.transactions.slot_writer import SlotWriter
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.ledger import Ledger, read_ledger
from watershed.replicator.recovery.log_inspection import LeaderLog, require_leader_logs
from watershed.replicator.recovery.producer_epochs import MAX_PRODUCER_EPOCH
from watershed.topology.delivery_guarantee import AT_LEAST_ONCE

_FETCH_BYTES: Final = 4 << 20
_PATIENCE_S: Final = 30.0
_NOWHERE: Final = "watershed.nowhere"


class FlowNotFenced(ReplicatorError):
    """A worker could not be kept out; nothing of the applications may start yet."""

    exit_code = 1


def explain_fence_refusal(record: FlowRecord, target: ConnectionSettings) -> str:
    """Why this process could not; empty when it could. Nothing is changed. Raises ClusterError."""
    if record.guarantee == AT_LEAST_ONCE:
        return (
            f"flow {record.key} copies to {target.alias} with `{AT_LEAST_ONCE}`: its batches carry no producer id, so "
            "a worker that stood still cannot be kept out, and may write behind the applications"
        )
    if record.flow.delivery == "transactions":
        return ""
    with closing(open_connection(target)) as connection:
        try:
            connection.versions.pick(Api.DESCRIBE_PRODUCERS)
            # Rights are checked before the partition is looked for (KafkaApis.handleWriteTxnMarkersRequest).
            code = connection.write_markers(_NOWHERE, 0, ProducerIdAndEpoch(record.producer_id or 0, 0), 1)
        except RequestUnsupported as error:
            return (
                f"workers of flow {record.flow.id} cannot be fenced at {target.alias}, and one that stood still may "
                f"write behind the applications: {error}. Upgrade {target.alias} to Kafka "
                f"{error.release or '2.8'} or newer"
            )
    if code == error_codes.CLUSTER_AUTHORIZATION_FAILED:
        return (
            f"cluster {target.alias} does not let this principal fence producers: ALTER on the cluster is missing "
            "(`topology acls --role migrate`); without it, a worker that stood still may write behind the applications"
        )
    return ""


@dataclass(frozen=True, slots=True)
class FlowFence:
    """epochs: by target partition, the producer epoch below which nothing of the flow is taken any more. ends: the
    fence's own offset, behind everything that was copied. Both are empty where transactional ids were fenced.
    source_ids: source topic → its id, as the ledger has it."""

    epochs: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    source_ids: Mapping[str, str]


def fence_flow(record: FlowRecord, since: Mapping[TopicPartition, int], target: ConnectionSettings) -> FlowFence:
    """since: the target's partitions with their ends of a moment when none was fenced. May be repeated.

    Raises FlowNotFenced, ClusterError.
    """
    if record.flow.delivery == "transactions":
        _end_sessions(record, target)
        return FlowFence({}, {}, _source_ids(read_ledger(target, flow=record.flow.id)))
    if record.producer_id is None:
        raise FlowNotFenced(f"flow {record.flow.id} has no producer id: it never wrote anything")
    led = require_leader_logs(target, sorted(since), READ_UNCOMMITTED)
    epochs: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    with BrokerPool(partial(open_connection, target)) as pool:
        for each in led.values():  # before anything is fenced
            pool.get(each.leader)
        for place, each in led.items():
            epochs[place] = _held(pool.get(each.leader), place, record.producer_id, target)
        # Read behind the inspections of the leaders: whoever wrote under an epoch had claimed it here before.
        ledger = read_ledger(target, flow=record.flow.id)
        claimed = _claimed(record, ledger)
        for place, each in led.items():
            leader, newest = pool.get(each.leader), claimed.get(place, 0)
            if epochs[place] <= newest:  # otherwise it was fenced before
                epochs[place] = _fenced(leader, place, record.producer_id, newest + 1, target)
            fence = ProducerIdAndEpoch(record.producer_id, epochs[place])
            ends[place] = _standing(leader, each, place, since[place], fence, target)
    return FlowFence(epochs, ends, _source_ids(ledger))


def _held(leader: Connection, place: TopicPartition, producer_id: int, target: ConnectionSettings) -> int:
    """The flow's producer epoch as the leader knows it; -1 when it knows none."""
    error, states = leader.describe_producers(*place)
    if error:
        raise _refused(target, place, error, "DescribeProducers")
    return next((state.epoch for state in states if state.producer_id == producer_id), -1)


def _fenced(leader: Connection, place: TopicPartition, producer_id: int, epoch: int, target: ConnectionSettings) -> int:
    topic, partition = place
    if epoch > MAX_PRODUCER_EPOCH:
        raise FlowNotFenced(
            f"{topic}-{partition}: {MAX_PRODUCER_EPOCH} producer epochs were begun, and there are none left"
        )
    error = leader.write_markers(topic, partition, ProducerIdAndEpoch(producer_id, epoch), 1)
    if error == error_codes.CLUSTER_AUTHORIZATION_FAILED:
        raise Unauthorised(
            f"cluster {target.alias} does not let this principal fence {topic}-{partition}: give it ALTER on the "
            "cluster (`topology acls --role migrate`)",
            alias=target.alias,
            topic=topic,
            partition=partition,
        )
    if error:
        raise _refused(target, place, error, "WriteTxnMarkers")
    return epoch


def _standing(
    leader: Connection,
    led: LeaderLog,
    place: TopicPartition,
    since: int,
    fence: ProducerIdAndEpoch,
    target: ConnectionSettings,
) -> int:
    """The offset of the marker. What stands between `since` and it was copied."""
    position, last = since, time.monotonic() + _PATIENCE_S
    while time.monotonic() < last:
        asked = FetchPartition(led.topic_id, place.partition, position, max_bytes=_FETCH_BYTES)
        answer = fetch_one(leader, asked, max_wait_ms=200, isolation=READ_UNCOMMITTED)
        if answer.error:
            raise _refused(target, place, answer.error, "Fetch")
        for batch in decode_batches(answer.records):
            if batch.control and (batch.producer_id, batch.producer_epoch) == tuple(fence):
                return batch.base
            if batch.end > position:
                position, last = batch.end, time.monotonic() + _PATIENCE_S
    raise FlowNotFenced(f"{place} was fenced, and its marker is not found behind offset {since}")


def _source_ids(ledger: Ledger) -> dict[str, str]:
    return {key.topic: str(source_id) for key, (_map, (source_id, _target)) in ledger.copies().items()}


def _claimed(record: FlowRecord, ledger: Ledger) -> dict[TopicPartition, int]:
    """The newest producer epoch that any worker began, by target partition; where none did, the first one has 0."""
    return {
        TopicPartition(key.target_topic, key.partition): max(known.last_epoch, known.identity.epoch)
        for key, (known, _) in ledger.partitions.items()
        if key.flow == record.flow.id
    }


def _end_sessions(record: FlowRecord, target: ConnectionSettings) -> None:
    """Every slot of the flow, also those that serve nothing now: which worker held what is not known."""
    flow = record.flow
    version = read_transaction_version(target)
    for slot in range(SLOT_COUNT):
        writer = SlotWriter(
            flow.id,
            slot,
            build_home_path(record),
            lambda address: open_connection(target, address),
            lambda: version,
            paths=lambda slot=slot: read_slot_paths(target, flow.id, slot) if flow.paths else set(),  # type: ignore[misc]
        )
        try:
            writer.open()
        except SessionLost as lost:
            raise FlowNotFenced(f"slot {slot} of flow {flow.id} could not be fenced: {lost.trouble}") from None
        finally:
            writer.close()


def _refused(target: ConnectionSettings, place: TopicPartition, code: int, doing: str) -> RequestRefused:
    topic, partition = place
    return RequestRefused(
        f"cluster {target.alias} answers {error_codes.describe_error_code(code)} to {doing} for {topic}-{partition}",
        alias=target.alias,
        topic=topic,
        partition=partition,
    )
