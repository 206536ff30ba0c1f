"""The loop guard of every flow, with its view of the registry on the flow's source."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from clusters.flows import FlowRecord
from clusters.producers import PRODUCER_PREFIX
from clusters.settings import ConnectionSettings
from replicator.desired import DesiredState
from replicator.guard import UNKNOWN, Guard, Path

_PRODUCER_KEY = re.compile(re.escape(PRODUCER_PREFIX) + r"[0-9]{1,19}")


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
