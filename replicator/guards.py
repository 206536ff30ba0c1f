"""The loop guard of every flow, with its view of the registry on the flow's source."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from clusters.control import FLOWS
from clusters.errors import ProtocolError
from clusters.fleet import FLEET_PREFIX, PLACEMENT_PREFIX
from clusters.flows import ALIGNMENT_PREFIX, GROUP_PREFIX, ORDER_PREFIX, WITHHELD_PREFIX, FlowRecord
from clusters.settings import ConnectionSettings
from replicator.desired import DesiredState
from replicator.guard import Guard, Path


@dataclass(slots=True)
class Guards:
    """`target_id` is the cluster id of the target that this worker serves."""

    target_id: str
    _guards: dict[str, Guard] = field(default_factory=dict)

    def of(self, record: FlowRecord, source: ConnectionSettings) -> Guard:
        """Which batches of the flow are left out, and which way the others came."""
        guard = self._guards.get(record.flow.id)
        if guard is None:
            guard = self._guards[record.flow.id] = Guard(
                source=record.source_cluster_id or record.flow.source,
                target=self.target_id,
                forward=record.flow.forward,
                registry=_registry(source),
                guarded=record.flow.guard != "none",
                paths=record.flow.paths,
            )
        return guard

    def forget(self, flow_id: str) -> None:
        """The flow's content changed."""
        self._guards.pop(flow_id, None)


def paths_in(desired: DesiredState) -> dict[int, Path]:
    """Producer id → the way that what it writes came. A flow's record names its id and its source, too.

    Raises ProtocolError when a record was left out that may name a producer: a loop is worse than standing still.
    """
    _check_all_read(desired)
    found: dict[int, Path] = {
        flow.producer_id: (flow.source_cluster_id,)
        for flow in desired.flows.values()
        if flow.producer_id is not None and flow.source_cluster_id is not None
    }
    return found | {producer.producer_id: producer.path for producer in desired.producers.values()}


def _check_all_read(desired: DesiredState) -> None:
    others = (ALIGNMENT_PREFIX, FLEET_PREFIX, GROUP_PREFIX, ORDER_PREFIX, PLACEMENT_PREFIX, WITHHELD_PREFIX)
    for key, reason in desired.unreadable.items():
        if not key.startswith(others):
            raise ProtocolError(
                f"the loop guard needs every record of {FLOWS} on cluster {desired.settings.alias}, and the one under "
                f"{key} cannot be read: {reason}",
                alias=desired.settings.alias,
                topic=FLOWS,
            )


def _registry(source: ConnectionSettings) -> Callable[[], dict[int, Path]]:
    desired: list[DesiredState] = []  # made by the first who asks: most batches name nobody
    reading = threading.Lock()  # the guard is shared by all fetch links of the flow

    def registry() -> dict[int, Path]:
        with reading:
            if not desired:
                desired.append(DesiredState(source))
            desired[0].catch_up()
            return paths_in(desired[0])

    return registry
