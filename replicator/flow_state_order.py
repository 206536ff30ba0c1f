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

from watershed.clusters.budget_breaches import BudgetBreach, describe_breach
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter, encode_control_value
from watershed.clusters.control_values import ControlValue
from watershed.clusters.flow_records import JOURNALED_PREFIX, FlowRecord, FlowState, write_flow

FlowOrder = Literal["pause", "resume", "stop", "restart"]
FLOW_ORDERS: Final[dict[FlowOrder, FlowState]] = {
    "pause": "paused",
    "resume": "running",
    "stop": "stopped",
    "restart": "running",
}


def apply_flow_order(record: FlowRecord, order: FlowOrder, breach: BudgetBreach | None = None) -> FlowRecord:
    """The record that the order makes of it. `restart` also makes halted partitions inspect their logs again. breach:
    the flow's newest; an order to run answers it."""
    changed = record.with_state(FLOW_ORDERS[order])
    if changed.state == "running":
        changed = answer_breach(changed, breach)
    return replace(changed, generation=record.generation + 1) if order == "restart" else changed


def answer_breach(record: FlowRecord, breach: BudgetBreach | None) -> FlowRecord:
    """The record with the breach answered: the flow does not stand still by it any more."""
    if breach is None or not breach.is_open(record):
        return record
    return replace(record, answered_breaches=breach.number)


def write_breach_answer(
    writer: ControlWriter, before: FlowRecord, after: FlowRecord, breach: BudgetBreach | None
) -> None:
    """Marks the breach as answered, where the flow's next record answers it. To be called before that is written: from
    then on a worker may write the next breach, which this must not replace. Raises ClusterError."""
    if breach is not None and breach.is_open(before) and not breach.is_open(after):
        writer.put(FLOWS_TOPIC, breach.key, replace(breach, answered=True).to_json(), 0)


def write_flow_order(
    writer: ControlWriter,
    before: FlowRecord,
    after: FlowRecord,
    order: FlowOrder,
    actor: str,
    breach: BudgetBreach | None = None,
) -> str:
    """Writes down who ordered what, then the desired state. breach: the flow's newest, which the order may answer.
    Returns the order's id. Raises ClusterError."""
    told = {"before": before.state, "after": after.state, "generation": after.generation}
    order_id = write_flow_order_line(writer, after, order, actor, int(time.time() * 1000), told)
    write_breach_answer(writer, before, after, breach)
    write_flow(writer, after)
    return order_id


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
    order_id = secrets.token_hex(8)
    key, line = _build_order_line(flow, order_id, kind, actor, at_ms, told)
    writer.put(FLOWS_TOPIC, key, line, 0)
    return order_id


def build_breach_line(breach: BudgetBreach, flow: FlowRecord) -> tuple[str, ControlValue]:
    """Key and value of the line that says for good what a budget did, as if it were an order. A breach has one line,
    whoever writes it."""
    kind, after = ("pause", "paused") if breach.action == "pause" else ("fail", "stopped by its budget")
    told = {"before": flow.state, "after": after, "generation": flow.generation, "reason": describe_breach(breach)}
    actor = f"{breach.budget} (slo.on_breach: {breach.action})"
    return _build_order_line(flow, f"breach-{breach.number}", kind, actor, breach.at_ms, told)


def _build_order_line(
    flow: FlowRecord, order_id: str, kind: str, actor: str, at_ms: int, told: Mapping[str, Any]
) -> tuple[str, ControlValue]:
    line: ControlValue = {"record": "order", "of": flow.topology, "kind": kind, "flow": flow.key}
    line |= {"id": order_id, "at_ms": at_ms, "actor": actor, **told}
    line |= {"hash": "sha256:" + hashlib.sha256(encode_control_value(line)).hexdigest()}
    return f"{JOURNALED_PREFIX}order/{flow.key}/flow/{order_id}", line
