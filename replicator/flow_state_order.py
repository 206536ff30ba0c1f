"""Orders about a whole flow: pause, resume, stop, restart; written down for good with who gave them. Orders about
single partitions (`replicator.partition_control`) are written down in the same way.

Whoever may write the desired state may not write to watershed.journal. So the line stands beside the flows, under a key
that nothing overwrites, as lines of workers do (`topology journal --orders` shows both).
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter, encode_control_value
from watershed.clusters.flow_records import JOURNALED_PREFIX, FlowRecord, FlowState, write_flow

FlowOrder = Literal["pause", "resume", "stop", "restart"]
FLOW_ORDERS: Final[dict[FlowOrder, FlowState]] = {
    "pause": "paused",
    "resume": "running",
    "stop": "stopped",
    "restart": "running",
}


def apply_flow_order(record: FlowRecord, order: FlowOrder) -> FlowRecord:
    """The record that the order makes of it. `restart` also makes halted partitions inspect their logs again."""
    changed = record.with_state(FLOW_ORDERS[order])
    return replace(changed, generation=record.generation + 1) if order == "restart" else changed


def write_flow_order(writer: ControlWriter, before: FlowRecord, after: FlowRecord, order: FlowOrder, actor: str) -> str:
    """Writes down who ordered what, then the desired state. Returns the order's id. Raises ClusterError."""
    told = {"before": before.state, "after": after.state, "generation": after.generation}
    return write_ordered_flow(writer, after, order, actor, int(time.time() * 1000), told)


def write_ordered_flow(
    writer: ControlWriter, after: FlowRecord, kind: str, actor: str, at_ms: int, told: Mapping[str, Any]
) -> str:
    """Writes down who ordered what (`told`: the particulars), then the flow's record as the order makes it. at_ms:
    milliseconds since 1970. Returns the order's id. Raises ClusterError."""
    order_id = write_flow_order_line(writer, after, kind, actor, at_ms, told)
    write_flow(writer, after)
    return order_id


def write_flow_order_line(
    writer: ControlWriter, flow: FlowRecord, kind: str, actor: str, at_ms: int, told: Mapping[str, Any]
) -> str:
    """Writes down who ordered what, for good. The parameters are those of `write_ordered_flow`. Returns the order's id.
    Raises ClusterError."""
    line: dict[str, Any] = {"record": "order", "of": flow.topology, "kind": kind, "flow": flow.key}
    line |= {"id": secrets.token_hex(8), "at_ms": at_ms, "actor": actor, **told}
    line |= {"hash": "sha256:" + hashlib.sha256(encode_control_value(line)).hexdigest()}
    writer.put(FLOWS_TOPIC, f"{JOURNALED_PREFIX}order/{flow.key}/flow/{line['id']}", line, 0)
    return str(line["id"])
