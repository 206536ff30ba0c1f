"""The desired state of one cluster (`watershed.flows`), followed record by record."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from watershed.clusters.admin_requests import LEADER_MOVING_CODES
from watershed.clusters.budget_breaches import BudgetBreach
from watershed.clusters.control_topics import FLOWS_TOPIC
from watershed.clusters.control_values import decode_control_value
from watershed.clusters.errors import UnreadableControlRecord
from watershed.clusters.fleet import (
    FLEET_PREFIX,
    PLACEMENT_PREFIX,
    SUPERVISOR_PREFIX,
    FleetRecord,
    PlacementRecord,
    SupervisorRecord,
)
from watershed.clusters.flow_records import (
    ALIGNMENT_PREFIX,
    BREACH_PREFIX,
    DECISION_PREFIX,
    END_PREFIX,
    GROUP_PREFIX,
    JOURNALED_PREFIX,
    PROTECTION_PREFIX,
    SYNCED_ACLS_PREFIX,
    SYNCED_USER_PREFIX,
    WITHHELD_RIGHTS_PREFIX,
    FlowRecord,
)
from watershed.clusters.librdkafka import build_cluster_error, extract_kafka_error
from watershed.clusters.partition_consumer import build_partition_consumer, is_group_error
from watershed.clusters.partition_end_records import PartitionEnd
from watershed.clusters.producer_registry import PRODUCER_PREFIX, ProducerRecord
from watershed.clusters.secret_rotation import SecretRotation
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.recovery.operator_decisions import OperatorDecision

log = logging.getLogger("watershed.worker")

_CATCH_UP_S = 15.0  # for a leader to be chosen, and then again for the log to be read
_ASK_AGAIN_S = 0.2
_READ_ELSEWHERE = (
    *(GROUP_PREFIX, ALIGNMENT_PREFIX, WITHHELD_RIGHTS_PREFIX, JOURNALED_PREFIX),
    *(SYNCED_ACLS_PREFIX, SYNCED_USER_PREFIX, PROTECTION_PREFIX),
)
_REMEDY = (
    "what stood there before still counts; write it again with `topology apply`, with the version of Watershed that "
    "the workers have"
)
_REMEDY_NEWER = (
    "this worker copies nothing of the flow until then: start workers of the version that wrote it, or apply with that "
    "version a file without what is new in it (docs/upgrade.md)"
)
_REMEDY_NEWER_KIND = (
    "what stood there before still counts, if anything did; start workers of the version that wrote it "
    "(docs/upgrade.md)"
)
_UNREADABLE_AT_MOST = 10_000  # keys of whoever writes what is none of ours


class DesiredState:
    """Flows, fleets, supervisors, orders, placements, producers, ends of partitions and budget breaches (by their keys)
    as of the last `follow` or `catch_up`. Not thread-safe."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self.flows: dict[str, FlowRecord] = {}
        self.fleets: dict[str, FleetRecord] = {}
        self.supervisors: dict[str, SupervisorRecord] = {}
        self.decisions: dict[str, OperatorDecision] = {}
        self.placements: dict[str, PlacementRecord] = {}
        self.producers: dict[str, ProducerRecord] = {}
        self.ends: dict[str, PartitionEnd] = {}
        self.breaches: dict[str, BudgetBreach] = {}
        self._kinds: tuple[tuple[str, dict[str, Any], Callable[[dict[str, Any], str], Any]], ...] = (
            (FLEET_PREFIX, self.fleets, FleetRecord.from_json),
            (SUPERVISOR_PREFIX, self.supervisors, SupervisorRecord.from_json),
            (DECISION_PREFIX, self.decisions, OperatorDecision.from_json),
            (PLACEMENT_PREFIX, self.placements, PlacementRecord.from_json),
            (PRODUCER_PREFIX, self.producers, ProducerRecord.from_json),
            (END_PREFIX, self.ends, PartitionEnd.from_json),
            (BREACH_PREFIX, self.breaches, BudgetBreach.from_json),
            ("", self.flows, FlowRecord.from_json),
        )
        self.overtaken: set[str] = set()  # keys whose newest record is of one that woke up too late (`_is_overtaken`)
        self.unreadable: dict[str, str] = {}  # keys of records that say nothing we understand, and why
        self.there = False  # whether the topic has been found
        self._position = 0
        self._rotation = SecretRotation(settings)
        self._consumer = self._made()

    def catch_up(self) -> None:
        """Read everything that was written before the call. A cluster without the topic has no flows.

        Raises Unreachable (or another ClusterError) when the cluster does not answer.
        """
        self._renew()
        high = self._find_end(time.monotonic() + _CATCH_UP_S)
        deadline = time.monotonic() + _CATCH_UP_S
        while self._position < high:
            self.follow(0.2)
            if time.monotonic() > deadline:
                raise self.settings.unreachable(f"{FLOWS_TOPIC} could not be read to its end")

    def _find_end(self, deadline: float) -> int:
        """The topic's end, 0 without the topic. A cluster that is just choosing a leader is asked again."""
        while True:
            try:
                if not self._assigned():
                    return 0
                return self._consumer.get_watermark_offsets(TopicPartition(FLOWS_TOPIC, 0), timeout=10)[1]
            except KafkaException as error:
                problem = extract_kafka_error(error)
                if problem.code() not in LEADER_MOVING_CODES or time.monotonic() > deadline:
                    raise build_cluster_error(
                        self.settings, problem, doing=f"reading {FLOWS_TOPIC}", topic=FLOWS_TOPIC
                    ) from None
            time.sleep(_ASK_AGAIN_S)

    def follow(self, timeout: float) -> None:
        """Take what is there within `timeout` seconds; nothing before the first `catch_up` found the topic."""
        if not self.there:
            return
        self._renew()
        for message in self._consumer.consume(100, timeout=timeout):
            error = message.error()
            if error is None:
                offset = message.offset() or 0
                self._take((message.key() or b"").decode(errors="replace"), message.value(), offset)
                self._position = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._position = max(self._position, message.offset() or 0)
            elif not is_group_error(error):  # it is tried again, and what is known so far still holds
                log.warning("topic cannot be followed", extra={"topic": FLOWS_TOPIC, "reason": error.str()})

    def close(self) -> None:
        """Close the consumer of watershed.flows."""
        self._consumer.close()

    def _made(self) -> Consumer:
        return build_partition_consumer(self.settings, {"fetch.wait.max.ms": 100})

    def _renew(self) -> None:
        """New secrets into the consumer; new certificates need a new one, which goes on where this one is."""
        if not self._rotation.spent(self._consumer):
            return
        renewed = self._rotation.replace_client(self._made)
        if renewed is not None:
            self._consumer.close()
            self._rotation, self._consumer = renewed
            if self.there:
                self._consumer.assign([TopicPartition(FLOWS_TOPIC, 0, self._position)])

    def _assigned(self) -> bool:
        if not self.there:
            topics = self._consumer.list_topics(FLOWS_TOPIC, timeout=10).topics
            if topics[FLOWS_TOPIC].error is not None:
                return False
            self._consumer.assign([TopicPartition(FLOWS_TOPIC, 0, OFFSET_BEGINNING)])
            self.there = True
        return True

    def _take(self, key: str, payload: bytes | None, offset: int) -> None:
        """Anybody's records stand here, of other topologies and other versions. What cannot be read is told, and
        changes nothing: the record that stood under its key before still counts."""
        if key.startswith(_READ_ELSEWHERE):
            # where groups are synced, topics placed, rights and users kept, and by people
            return
        known, read = next((known, read) for prefix, known, read in self._kinds if key.startswith(prefix))
        self.unreadable.pop(key, None)
        if payload is None:
            known.pop(key, None)
            self.overtaken.discard(key)
            return
        try:
            self._keep(known, key, read(decode_control_value(payload), key))
        except ValueError as error:
            if len(self.unreadable) >= _UNREADABLE_AT_MOST:
                self.unreadable.pop(next(iter(self.unreadable)))
            self.unreadable[key] = str(error)
            remedy = _REMEDY
            if isinstance(error, UnreadableControlRecord) and error.is_newer:
                remedy = _REMEDY_NEWER if self._pause_outdated_flow(known, key) else _REMEDY_NEWER_KIND
            log.error(
                "record unreadable",
                extra={
                    "topic": FLOWS_TOPIC,
                    "partition": 0,
                    "offset": offset,
                    "key": key,
                    "reason": self.unreadable[key],
                    "cluster": self.settings.alias,
                    "remedy": remedy,
                },
            )

    def _pause_outdated_flow(self, known: dict[str, Any], key: str) -> bool:
        """Whether the key is a flow that is known from an earlier record. Nothing is copied by that one any more: the
        newer one may say that topics have moved, and their producers write to the target by now."""
        if known is not self.flows or key not in self.flows:
            return False
        record = self.flows[key]
        if record.state == "running":  # a stopped one stays as it is
            self.flows[key] = record.with_state("paused")
        return True

    def _keep(self, known: dict[str, Any], key: str, record: Any) -> None:
        """The newest record of a key counts, but not one that was written too late."""
        if _is_overtaken(record, known.get(key)):
            self.overtaken.add(key)
            return
        self.overtaken.discard(key)
        known[key] = record


def _is_overtaken(record: Any, known: Any) -> bool:
    """Whether who wrote `record` had not read `known` yet: a supervisor whose epoch is over, or a worker that takes a
    flow's next breach for an earlier one, which is answered."""
    if isinstance(record, SupervisorRecord):
        return record.is_overtaken_by(known)
    return isinstance(record, BudgetBreach) and known is not None and record.number < known.number
