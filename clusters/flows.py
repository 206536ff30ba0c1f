"""Desired state: which flows the workers of a target cluster serve, in the `watershed.flows` topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from clusters.control import FLOWS, ControlWriter, latest
from clusters.errors import ProtocolError, TopicMissing
from clusters.fleet import FLEET_PREFIX, PLACEMENT_PREFIX
from clusters.producers import PRODUCER_PREFIX
from clusters.settings import ConnectionSettings
from topology.plan import PlanFlow

FlowState = Literal["running", "paused", "stopped"]
SCHEMA = 1
ORDER_PREFIX = "order|"  # keys of decisions about single partitions (`replicator.orders`)


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """A flow as it should be now. `generation` grows with every order to restart; `producer_id` is the id that the
    target cluster issued for the flow's life; `source_cluster_id` is where its records come from, whatever this or
    another topology file calls that cluster.

    existed: only with `start: latest`, source topic → how many partitions it had when the flow was applied and first
    selected it. Those begin at their end; whatever came later began after the flow and is copied from its start.
    """

    flow: PlanFlow
    plan_hash: str
    topology: str
    generation: int = 1
    state: FlowState = "running"
    producer_id: int | None = None
    source_cluster_id: str | None = None
    existed: Mapping[str, int] | None = None

    @property
    def key(self) -> str:
        return str(self.flow.id)

    def start_of(self, topic: str, partition: int) -> Literal["earliest", "latest"]:
        """Where a source partition that nobody has copied yet begins."""
        if self.flow.start == "latest" and (self.existed is None or partition < self.existed.get(topic, 0)):
            return "latest"
        return "earliest"

    def with_state(self, state: FlowState) -> FlowRecord:
        return replace(self, state=state)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "flow": self.flow.to_json(),
            "plan_hash": self.plan_hash,
            "topology": self.topology,
            "generation": self.generation,
            "state": self.state,
            "producer_id": self.producer_id,
            "source_cluster_id": self.source_cluster_id,
            "existed": None if self.existed is None else dict(self.existed),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> FlowRecord:
        """Raises `ProtocolError` for a record of another schema or without its fields."""
        try:
            if value["schema"] != SCHEMA:
                raise ProtocolError(
                    f"{FLOWS} holds a record of schema {value['schema']}, this Watershed reads {SCHEMA}. "
                    "Use the version that wrote it, or a newer one.",
                    topic=FLOWS,
                )
            return cls(
                flow=PlanFlow.from_json(value["flow"]),
                plan_hash=value["plan_hash"],
                topology=value["topology"],
                generation=value["generation"],
                state=value["state"],
                producer_id=value["producer_id"],
                source_cluster_id=value["source_cluster_id"],
                existed=value.get("existed"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(
                f"{FLOWS} holds a flow record that cannot be read ({error!r}). Write it again with `topology apply`.",
                topic=FLOWS,
            ) from None


def read_flows(settings: ConnectionSettings) -> dict[str, FlowRecord]:
    """All flows into this cluster by id; empty when the cluster has no control topics yet."""
    try:
        view = latest(settings, FLOWS)
    except TopicMissing:
        return {}
    others = (FLEET_PREFIX, PLACEMENT_PREFIX, ORDER_PREFIX, PRODUCER_PREFIX)
    return {key: FlowRecord.from_json(value) for key, value in view.items() if not key.startswith(others)}


def write_flow(writer: ControlWriter, record: FlowRecord) -> int:
    """Write it and wait for the acknowledgement; the record's offset in `watershed.flows`."""
    return writer.put(FLOWS, record.key, record.to_json())
