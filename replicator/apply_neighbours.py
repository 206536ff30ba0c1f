"""Flows that other topology files have applied to the same clusters. A file knows nothing of them, yet they write to
the same partitions and may close a loop: `topology apply` asks how each flow has to copy with all of them together.

Clusters go by their ids here, since files may call one cluster by other names. Only flows into clusters of this plan
can be seen; whoever applies the file that closes a loop sees the rest of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from watershed.clusters.flow_records import FlowRecord
from watershed.replicator.apply_refusals import CannotApply
from watershed.topology.delivery_mode import choose_delivery_modes
from watershed.topology.finding import FileSpan
from watershed.topology.model import CheckedValue, Flow, Topology
from watershed.topology.plan import PlanFlow
from watershed.topology.related_flows import find_related_flows

_NOWHERE = CheckedValue(FileSpan("", 0, 0, 0, 0))


def adapt_to_neighbours(
    name: str,
    flows: list[PlanFlow],
    ids: Mapping[str, str],
    applied: Mapping[str, Mapping[str, FlowRecord]],
) -> list[PlanFlow]:
    """The flows of topology `name` as they have to copy beside the others. ids: alias → cluster id; applied: alias of a
    cluster → the flows into it.

    Raises CannotApply where another topology's flow that shares a topic with these, or with one that does, would not be
    exact beside them as it was applied.
    """
    others = {
        (record.topology, flow_id, ids[alias]): record
        for alias, records in applied.items()
        for flow_id, record in records.items()
        if record.topology != name and record.source_cluster_id is not None
    }
    if not others:
        return flows
    ours = [_known_as(flow.id, flow, ids[flow.source], ids[flow.target]) for flow in flows]
    theirs = {
        key: _known_as(f"{key[1]} of topology {key[0]}", replace(record.serving, state=_state(record)), source, key[2])
        for key, record in others.items()
        if (source := record.source_cluster_id) is not None
    }
    together = sorted((*ours, *theirs.values()), key=lambda flow: flow.id)
    topology = Topology("", name, _NOWHERE, {}, tuple(together), None)
    found = choose_delivery_modes(topology)
    meeting = find_related_flows(topology, [flow.id for flow in ours])
    for key, flow in theirs.items():
        if flow.id not in meeting:
            continue  # how it copies beside others is theirs to know
        applied_as, needed = others[key].flow, found[flow.id]
        if (needed.delivery, applied_as.delivery) == ("transactions", "sequence") or needed.paths > applied_as.paths:
            raise CannotApply(
                f"flow {flow.id} copies {_told(applied_as)} so far, and would not be exact beside this topology: "
                f"{needed.reason}. Stop it (`topology flow stop`) if nobody needs it; else keep their topics apart"
            )
    return [_strengthened(flow, found[flow.id].delivery, found[flow.id].reason, found[flow.id].paths) for flow in flows]


def _strengthened(flow: PlanFlow, delivery: str, reason: str, paths: bool) -> PlanFlow:
    if delivery == "transactions" and flow.delivery == "sequence":
        flow = replace(flow, delivery="transactions", delivery_reason=reason)
    return replace(flow, paths=flow.paths or paths)


def _known_as(name: str, flow: PlanFlow, source: str, target: str) -> Flow:
    return Flow(replace(flow, id=name, source=source, target=target), _NOWHERE, _NOWHERE.span, "")


def _state(record: FlowRecord) -> Literal["running", "paused"]:
    return "running" if record.state == "running" else "paused"


def _told(flow: PlanFlow) -> str:
    return "alone, by sequence numbers" if flow.delivery == "sequence" else "without telling the way of its records"
