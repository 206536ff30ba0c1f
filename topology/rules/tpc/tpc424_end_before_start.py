"""TPC424 end-before-start: a flow ends where it begins, or in front of that, so it copies nothing.

Why: an empty copy is `complete` at once, which looks like success. Instants and offsets are compared where both ends of
the copy are said in the same way.

Source: own; two instants or offsets that were swapped
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.copy_bounds import CopyBound
from watershed.topology.finding import Problem
from watershed.topology.plan import PlanFlow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        why = _explain_empty(flow.plan)
        if why:
            yield Problem(
                "TPC424",
                f"flow {flow.id} copies nothing: {why}",
                build_labels(
                    (flow.settings.where("delivery", "start"), "begins here"),
                    (flow.settings.where("delivery", "end"), "ends here"),
                ),
                path=f"{flow.path}.delivery.end",
                ids=(flow.id,),
                help="let the end be behind the start",
            )


def _explain_empty(flow: PlanFlow) -> str:
    """Why nothing lies between start and end; empty where something may."""
    start, end = flow.start, flow.end
    if start == "latest" and end == "latest":
        return "it begins and ends at the log's end"
    if not isinstance(start, CopyBound) or not isinstance(end, CopyBound):
        return ""
    if start.timestamp_ms is not None and end.timestamp_ms is not None and end.timestamp_ms <= start.timestamp_ms:
        return f"it begins at {start} and ends at {end}"
    swapped = [
        f"{topic}-{partition}"
        for topic, partitions in end.offsets
        for partition, offset in partitions
        if (first := start.find_offset(topic, partition)) is not None and offset <= first
    ]
    return f"{render_some_names(swapped)} would end where the copy begins, or in front of it" if swapped else ""


RULE = Rule("TPC424", "end-before-start", "error", __doc__, check)
