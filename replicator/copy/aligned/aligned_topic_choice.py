"""Which topics of a flow get the source's own offsets: decided when a topic is first placed, and for ever.

What speaks against it: the flow's shape (`topology.alignment_obstacles`, said in the plan), and what only the clusters
know: a target that is not empty or has another partition count, a cluster that does not let us, a price above the
limit. A topic for which something does is copied with translated offsets, and the reason stands in its record and in
the status.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from watershed.clusters.alignment_records import AlignmentRecord, agree_on_alignment, read_alignments
from watershed.clusters.cluster_protocol import ClusterProtocol
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.alignment_requests import AlignmentWire
from watershed.clusters.wire.connection import open_connection
from watershed.replicator.copy.aligned.alignment_cost import (
    AlignmentCost,
    GapCount,
    PartitionCost,
    estimate_alignment_cost,
    explain_excessive_cost,
)
from watershed.replicator.copy.aligned.cluster_probe import AlignmentSupport, AlignmentSupportCache
from watershed.replicator.copy.aligned.filling_configs import (
    CLEANUP_POLICY,
    apply_filling_configs,
    build_filling_configs,
    find_configs_to_restore,
    restore_topic_configs,
)
from watershed.replicator.copy.aligned.target_log import build_deleter_connect
from watershed.replicator.copy.transactions.slot_sender import read_transaction_version
from watershed.replicator.ledger.ledger import read_ledger
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.topic_mapping import HoldReason, MappedTopic, read_configs_to_create
from watershed.topology.plan import PlanFlow

log = logging.getLogger("watershed.aligned")

_PROBES: Final = AlignmentSupportCache()  # of this process
_WAITING_S, _RESTORED_S = 10.0, 300.0  # how often settings are looked at, before they are as meant and afterwards


@dataclass(frozen=True, slots=True)
class AlignmentProspect:
    """What is known of a topic before it is copied. refused: why its offsets cannot be equal ("": they can). starts:
    where the source's log begins, by partition."""

    refused: str = ""
    starts: tuple[int, ...] = ()
    cost: AlignmentCost | None = None
    gap_method: str = ""


def assess_alignment(
    mapped: MappedTopic, source: ClusterProtocol, target: ClusterProtocol, probed: AlignmentSupport, *, copied: bool
) -> AlignmentProspect:
    """Whether a topic's offsets can be equal, and what that costs. copied: the flow has copied it already, with
    translated offsets. The target topic need not be there. Raises ClusterError."""
    if copied:
        return AlignmentProspect("it was copied with translated offsets already, and they stay as they are")
    if probed.fills or probed.gap_method is None:
        return AlignmentProspect(f"the target cluster does not allow it: {probed.fills or probed.transactions}")
    here = [TopicPartition(mapped.topic, number) for number in range(mapped.partitions)]
    ranges = source.offsets(here)
    starts = tuple(ranges[each].start for each in here)
    there = target.topic(mapped.target_topic)
    if there is not None:
        if there.partitions != mapped.partitions:
            reason = f"the source topic has {mapped.partitions} partitions, the target topic {there.partitions}"
            return AlignmentProspect(reason, starts)
        places = [TopicPartition(mapped.target_topic, number) for number in range(mapped.partitions)]
        for (place, span), start in zip(sorted(target.offsets(places).items()), starts, strict=True):
            if span.start != span.end:
                reason = f"target partition {place.partition} already holds offsets {span.start} to {span.end - 1}"
                return AlignmentProspect(reason, starts)
            if span.end > start:
                reason = f"target partition {place.partition} is empty, but goes on at offset {span.end}"
                return AlignmentProspect(f"{reason}, and the source's log begins at {start}", starts)
    compacted = "compact" in source.effective_configs([mapped.topic])[mapped.topic].get(CLEANUP_POLICY, "")
    costs = [
        PartitionCost(place.partition, span.start, GapCount(span.end - span.start if compacted else 0))
        for place, span in sorted(ranges.items())
    ]
    shape = source.topic(mapped.topic)
    replicas = min(shape.replication_factor if shape is not None else 1, target.brokers())
    cost = estimate_alignment_cost(
        [replace(each, gaps=GapCount()) for each in costs], replicas=replicas, gap_method=probed.gap_method
    )
    return AlignmentProspect(
        explain_excessive_cost(mapped.topic, costs, gap_method=probed.gap_method, replicas=replicas),
        starts,
        cost,
        probed.gap_method
    )  # fmt: skip


@dataclass(slots=True)
class AlignmentDecisions:
    """Makes and remembers decisions about topics of flows into one target. by: who decides, for the record.

    May be used by several threads, each with other flows.
    """

    target: ConnectionSettings
    writer: ControlWriter
    by: str
    probe: Callable[[ClusterProtocol, str], AlignmentSupport] | None = None
    _known: dict[tuple[str, str], AlignmentRecord] | None = None
    _flows: dict[str, PlanFlow] = field(default_factory=dict)  # as they were when that was read
    _restored: dict[tuple[str, str], float] = field(default_factory=dict)  # monotonic: not before
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def placed(
        self,
        flow: PlanFlow,
        found: list[MappedTopic],
        source: ClusterProtocol,
        target: ClusterProtocol,
        report: Callable[[str], None] = lambda _text: None,
    ) -> list[MappedTopic]:
        """The same topics, with how they are copied. A topic that is not on the target yet waits; `report` hears of
        each decision that is made now. Raises ClusterError."""
        with self._lock:  # only here: a source that does not answer must not keep the flows of others waiting
            changed = self._flows.get(flow.id) != flow  # what was decided while it was another one
            if self._known is None or changed or any(each.mode == "unreadable" for each in self._known.values()):
                self._known = read_alignments(self.target)
                self._flows[flow.id] = flow
        return [self._placed(flow, each, source, target, report) for each in found]

    def _placed(
        self,
        flow: PlanFlow,
        mapped: MappedTopic,
        source: ClusterProtocol,
        target: ClusterProtocol,
        report: Callable[[str], None],
    ) -> MappedTopic:
        assert self._known is not None
        decided = self._known.get((flow.id, mapped.topic))
        if decided is None and flow.offsets == "mapped":
            return mapped
        if decided is not None and decided.mode == "unreadable":
            remedy = "write the value that the key had before, or a tombstone; it is looked at again by itself"
            return replace(mapped, copied=0, held=HoldReason("unsupported", decided.reason, remedy))
        if decided is None:
            if mapped.held is not None or target.topic(mapped.target_topic) is None:
                held = mapped.held or HoldReason(
                    "starting", "its target topic is not there yet", "wait; it is looked at again"
                )
                return replace(mapped, copied=0, held=held)
            decided = self._decided(flow, mapped, source, target)
            self._known[flow.id, mapped.topic] = decided
            report(
                f"equal offsets for {mapped.topic}"
                if decided.mode == "aligned"
                else f"translated offsets for {mapped.topic}: {decided.reason}"
            )
        if decided.mode == "mapped":
            if flow.offsets == "mapped":
                return mapped
            note = f"offsets are translated, not equal: {decided.reason}"
            return replace(mapped, note="; ".join(each for each in (mapped.note, note) if each))
        self._restore(flow, mapped, source, target)
        return replace(mapped, gap_method=decided.way)

    def _decided(
        self, flow: PlanFlow, mapped: MappedTopic, source: ClusterProtocol, target: ClusterProtocol
    ) -> AlignmentRecord:
        probed = self._probed(flow, target)
        ledger = read_ledger(self.target, flow=flow.id, tolerant=True)
        known = {key.topic for key in ledger.copies()} | {place.topic for place in ledger.invalid}
        copied = bool(mapped.source_ids) or mapped.topic in known
        found = assess_alignment(mapped, source, target, probed, copied=copied)
        refused = found.refused
        if not refused and any(found.starts):
            refused = prepare_topic_for_filling(flow, mapped.topic, source, target)
        record = AlignmentRecord(
            flow=flow.id,
            topic=mapped.topic,
            mode="mapped" if refused else "aligned",
            reason=refused,
            way=probed.gap_method or "transactions",
            by=self.by,
            at_ms=int(time.time() * 1000),
        )
        agreed = agree_on_alignment(self.writer, self.target, record)
        if agreed.mode == "mapped" and record.mode == "aligned" and any(found.starts):
            wanted = read_configs_to_create(
                flow, mapped.topic, source, target
            )  # nobody will fill it, or take them back
            restore_topic_configs(target, mapped.target_topic, wanted, build_filling_configs(wanted, target))
        log.info("offsets decided", extra={"flow": flow.id, "topic": mapped.topic, "mode": agreed.mode,
                                           "reason": agreed.reason})  # fmt: skip
        return agreed

    def _probed(self, flow: PlanFlow, target: ClusterProtocol) -> AlignmentSupport:
        if self.probe is not None:
            return self.probe(target, flow.id)
        return probe_cluster_once(self.target, target, flow.id)

    def _restore(self, flow: PlanFlow, mapped: MappedTopic, source: ClusterProtocol, target: ClusterProtocol) -> None:
        """Put the topic's settings back once all of its partitions are filled."""
        key, now = (flow.id, mapped.topic), time.monotonic()
        if now < self._restored.get(key, 0.0):
            return
        self._restored[key] = now + _WAITING_S
        wanted = read_configs_to_create(flow, mapped.topic, source, target)
        meanwhile = build_filling_configs(wanted, target)
        own = target.topic_configs([mapped.target_topic]).get(mapped.target_topic, {})
        if not find_configs_to_restore(own, wanted, meanwhile):
            self._restored[key] = now + _RESTORED_S
            return
        ledger = read_ledger(self.target, flow=flow.id, tolerant=True)
        states = {key.partition: known for key, (known, _) in ledger.partitions.items() if key.topic == mapped.topic}
        filled = any(known.since for known in states.values())  # otherwise nobody has changed its settings for us
        if filled and len(states) == mapped.partitions and not any(known.filling for known in states.values()):
            restore_topic_configs(target, mapped.target_topic, wanted, meanwhile)
            log.info("topic settings restored", extra={"flow": flow.id, "topic": mapped.target_topic})


def prepare_topic_for_filling(flow: PlanFlow, topic: str, source: ClusterProtocol, target: ClusterProtocol) -> str:
    """Give the target topic the settings that a fill needs; "" or why not. Raises ClusterError."""
    wanted = read_configs_to_create(flow, topic, source, target)
    return apply_filling_configs(target, flow.target_topic(topic), wanted, build_filling_configs(wanted, target))


def probe_cluster_once(settings: ConnectionSettings, admin: ClusterProtocol, flow: str) -> AlignmentSupport:
    """What a target allows, tried once a process. Raises ClusterError."""

    def connected(address: BrokerAddress | None) -> AlignmentWire:
        return open_connection(settings, address)

    if settings.has_aligner:  # a login that fails is no answer of the cluster: what is decided by it stays for ever
        open_connection(settings.aligning()).close()
    version = partial(read_transaction_version, settings)
    return _PROBES.of(admin, settings.alias, connected, flow, version, build_deleter_connect(settings))


def read_flow_alignments(settings: ConnectionSettings, flow: str) -> Mapping[str, AlignmentRecord]:
    """What was decided about a flow's topics, by source topic. Raises ClusterError."""
    return {topic: record for (named, topic), record in read_alignments(settings).items() if named == flow}
