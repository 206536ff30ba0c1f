"""The loop guard of every flow, with its view of the registry on the flow's source."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from clusters.flows import FlowRecord
from clusters.settings import ConnectionSettings
from replicator.batches import Batch
from replicator.desired import DesiredState
from replicator.guard import Guard


@dataclass(slots=True)
class Guards:
    """`target_id` is the cluster id of the target that this worker serves."""

    target_id: str
    _guards: dict[str, Guard] = field(default_factory=dict)

    def of(self, record: FlowRecord, source: ConnectionSettings) -> Callable[[Batch], bool]:
        """Which batches of the flow are left out."""
        if record.flow.guard == "none":
            return _nothing
        guard = self._guards.get(record.flow.id)
        if guard is None:
            guard = self._guards[record.flow.id] = Guard(self.target_id, record.flow.forward, _origins(source))
        return guard

    def forget(self, flow_id: str) -> None:
        """The flow's content changed."""
        self._guards.pop(flow_id, None)


def _origins(source: ConnectionSettings) -> Callable[[], dict[int, str]]:
    registry = DesiredState(source)
    reading = threading.Lock()  # the guard is shared by all fetch links of the flow

    def origins() -> dict[int, str]:
        with reading:
            registry.catch_up()
            return {
                flow.producer_id: flow.source_cluster_id
                for flow in registry.flows.values()
                if flow.producer_id is not None and flow.source_cluster_id is not None
            }

    return origins


def _nothing(_batch: Batch) -> bool:
    return False
