"""The loop guard of every flow, with its view of the registry and of the ledger on the flow's source."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field

from watershed.clusters.claim_rules import ClaimedPartition
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.producer_registry import PRODUCER_PREFIX
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.copy.loop_guard import UNKNOWN_PATH, ClusterPath, LoopGuard
from watershed.replicator.ledger.claims_follower import ClaimsFollower
from watershed.replicator.worker.desired_state import DesiredState
from watershed.topology.external_flows import ExternalFlow
from watershed.topology.plan import PlanFlow

_PRODUCER_KEY = re.compile(re.escape(PRODUCER_PREFIX) + r"[0-9]{1,19}")


@dataclass(slots=True)
class LoopGuards:
    """`target_id` is the cluster id of the target that this worker serves."""

    target_id: str
    _guards: dict[str, LoopGuard] = field(default_factory=dict)
    _sources: dict[str, _Source] = field(default_factory=dict)  # by alias

    def of(self, record: FlowRecord, source: ConnectionSettings) -> LoopGuard:
        """Which batches of the flow are left out, and which way the others came."""
        guard = self._guards.get(record.flow.id)
        if guard is None:
            known = self._sources.get(source.alias)
            if known is None or known.settings != source:
                known = self._sources[source.alias] = _Source(source)
            guard = self._guards[record.flow.id] = LoopGuard(
                source=record.source_cluster_id or record.flow.source,
                target=self.target_id,
                forward=record.flow.forward,
                registry=known.paths,
                claims=known.claims,
                guarded=record.flow.guard != "none",
                paths=record.flow.paths,
                tools=self._find_tool_paths(record.flow),
            )
        return guard

    def _find_tool_paths(self, flow: PlanFlow) -> tuple[tuple[ExternalFlow, ClusterPath], ...]:
        """What other tools copy into the flow's source, and from which cluster: the target's id where it comes from
        there. The file's alias stands for a cluster whose id the file does not say: it is no cluster's id, but tells
        that the records were born elsewhere."""
        into = (tool for tool in flow.beside if tool.target == flow.source)
        return tuple(
            (tool, (self.target_id if tool.source == flow.target else tool.source_id or tool.source,)) for tool in into
        )

    def forget(self, flow_id: str) -> None:
        """The flow's content changed."""
        self._guards.pop(flow_id, None)


def build_producer_paths(desired: DesiredState) -> dict[int, ClusterPath]:
    """Producer id → the way that what it writes came. A flow's record names its id and its source, too.

    An id whose record cannot be read, and of which no earlier one is known, has the path UNKNOWN_PATH: whoever meets
    one of its batches stands still, because a loop is worse. Other flows, and other batches, go on (decision 0058).
    """
    found: dict[int, ClusterPath] = {
        flow.producer_id: (flow.source_cluster_id,)
        for flow in desired.flows.values()
        if flow.producer_id is not None and flow.source_cluster_id is not None
    }
    unknown = {
        int(key[len(PRODUCER_PREFIX) :]): UNKNOWN_PATH for key in desired.unreadable if _PRODUCER_KEY.fullmatch(key)
    }
    return unknown | found | {producer.producer_id: producer.path for producer in desired.producers.values()}


@dataclass(slots=True)
class _Source:
    """What a source cluster knows of the flows into it, for the guards of all flows out of it. Thread-safe: a guard is
    shared by all fetch links. Read when the first batch names somebody: most batches name nobody."""

    settings: ConnectionSettings
    _desired: DesiredState | None = None
    _tail: ClaimsFollower | None = None
    _reading: threading.Lock = field(default_factory=threading.Lock)

    def paths(self) -> dict[int, ClusterPath]:
        """Raises ClusterError."""
        with self._reading:
            return build_producer_paths(self._caught_up())

    def claims(self, where: ClaimedPartition, batch: RawBatch) -> bool:
        """Raises ClusterError."""
        with self._reading:
            if self._tail is None:
                desired = self._caught_up()
                self._tail = ClaimsFollower(self.settings, lambda: _find_mapped_flows(desired))
            return self._tail.claims(where, batch)

    def _caught_up(self) -> DesiredState:
        if self._desired is None:
            self._desired = DesiredState(self.settings)
        self._desired.catch_up()
        return self._desired


def _find_mapped_flows(desired: DesiredState) -> set[str]:
    """Flows whose sequence numbers follow from offsets (`replicator.ledger.claims`)."""
    return {id_ for id_, record in desired.flows.items() if record.flow.offsets != "aligned"}
