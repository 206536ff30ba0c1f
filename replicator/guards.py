"""The loop guard of every flow, with its view of the registry and of the ledger on the flow's source."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field

from clusters.claims import Claimed
from clusters.flows import FlowRecord
from clusters.producers import PRODUCER_PREFIX
from clusters.settings import ConnectionSettings
from replicator.batch import Batch
from replicator.claims_tail import ClaimsTail
from replicator.desired import DesiredState
from replicator.guard import UNKNOWN, Guard, Path

_PRODUCER_KEY = re.compile(re.escape(PRODUCER_PREFIX) + r"[0-9]{1,19}")


@dataclass(slots=True)
class Guards:
    """`target_id` is the cluster id of the target that this worker serves."""

    target_id: str
    _guards: dict[str, Guard] = field(default_factory=dict)
    _sources: dict[str, _Source] = field(default_factory=dict)  # by alias

    def of(self, record: FlowRecord, source: ConnectionSettings) -> Guard:
        """Which batches of the flow are left out, and which way the others came."""
        guard = self._guards.get(record.flow.id)
        if guard is None:
            known = self._sources.get(source.alias)
            if known is None or known.settings != source:
                known = self._sources[source.alias] = _Source(source)
            guard = self._guards[record.flow.id] = Guard(
                source=record.source_cluster_id or record.flow.source,
                target=self.target_id,
                forward=record.flow.forward,
                registry=known.paths,
                claims=known.claims,
                guarded=record.flow.guard != "none",
                paths=record.flow.paths,
            )
        return guard

    def forget(self, flow_id: str) -> None:
        """The flow's content changed."""
        self._guards.pop(flow_id, None)


def paths_in(desired: DesiredState) -> dict[int, Path]:
    """Producer id → the way that what it writes came. A flow's record names its id and its source, too.

    An id whose record cannot be read, and of which no earlier one is known, has the path UNKNOWN: whoever meets one of
    its batches stands still, because a loop is worse. Other flows, and other batches, go on (decision 0058).
    """
    found: dict[int, Path] = {
        flow.producer_id: (flow.source_cluster_id,)
        for flow in desired.flows.values()
        if flow.producer_id is not None and flow.source_cluster_id is not None
    }
    unknown = {int(key[len(PRODUCER_PREFIX) :]): UNKNOWN for key in desired.unreadable if _PRODUCER_KEY.fullmatch(key)}
    return unknown | found | {producer.producer_id: producer.path for producer in desired.producers.values()}


@dataclass(slots=True)
class _Source:
    """What a source cluster knows of the flows into it, for the guards of all flows out of it. Thread-safe: a guard is
    shared by all fetch links. Read when the first batch names somebody: most batches name nobody."""

    settings: ConnectionSettings
    _desired: DesiredState | None = None
    _tail: ClaimsTail | None = None
    _reading: threading.Lock = field(default_factory=threading.Lock)

    def paths(self) -> dict[int, Path]:
        """Raises ClusterError."""
        with self._reading:
            return paths_in(self._caught_up())

    def claims(self, where: Claimed, batch: Batch) -> bool:
        """Raises ClusterError."""
        with self._reading:
            if self._tail is None:
                desired = self._caught_up()
                self._tail = ClaimsTail(self.settings, lambda: _mapped_in(desired))
            return self._tail.claims(where, batch)

    def _caught_up(self) -> DesiredState:
        if self._desired is None:
            self._desired = DesiredState(self.settings)
        self._desired.catch_up()
        return self._desired


def _mapped_in(desired: DesiredState) -> set[str]:
    """Flows whose sequence numbers follow from offsets (`replicator.claims`)."""
    return {id_ for id_, record in desired.flows.items() if record.flow.offsets != "aligned"}
