"""Which topics each flow has right now: every source is asked again and again, beside the copying."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from clusters.admin import Admin
from clusters.errors import ClusterError
from clusters.flows import FlowRecord
from clusters.settings import ConnectionSettings
from replicator.targets import Mapped, mapped_topics

log = logging.getLogger("watershed.discovery")

FAILED_AGAIN_S = 2.0


@dataclass(slots=True)
class Discovery:
    """`topics` by flow id: as of the newest answer; a list stays valid until the next one is there."""

    target: ConnectionSettings
    connect: Callable[[str], ConnectionSettings]
    pool: Executor
    topics: dict[str, list[Mapped]] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)
    _asked: dict[str, Future[list[Mapped]]] = field(default_factory=dict)

    def step(self, flows: Mapping[str, FlowRecord]) -> None:
        """Take answers, and ask where it is time to; never waits."""
        now = time.monotonic()
        for flow_id, record in flows.items():
            future = self._asked.get(flow_id)
            if future is not None and future.done():
                del self._asked[flow_id]
                self._due[flow_id] = now + record.flow.discovery_ms / 1000
                try:
                    self.topics[flow_id] = future.result()
                except ClusterError as error:
                    log.warning("discovery failed", extra={"flow": flow_id, "reason": str(error)})
                    self._due[flow_id] = now + FAILED_AGAIN_S
            elif future is None and now >= self._due.get(flow_id, 0.0) and record.state == "running":
                self._asked[flow_id] = self.pool.submit(self._discovered, record)

    def _discovered(self, record: FlowRecord) -> list[Mapped]:
        with Admin(self.connect(record.flow.source)) as source, Admin(self.target) as target:
            source.check_identity()
            return mapped_topics(record.flow, source, target)
