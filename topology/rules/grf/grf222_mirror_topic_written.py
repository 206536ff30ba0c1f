"""GRF222 mirror-topic-written: one of our flows writes a topic that a cluster link mirrors.

Why: a mirror topic refuses every writer but its link, so the flow would halt at its first batch. `merge` does not help.

Source: Confluent's documentation of Cluster Linking, "mirror topics are read-only"
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.collisions import find_shared_topics
from watershed.topology.finding import Label, Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext


def check(context: RuleContext) -> Iterator[Problem]:
    if context.graph is None:
        return
    for cluster, name, link, flow in find_shared_topics(context.graph, _is_running_link):
        if flow.external is not None:
            continue
        yield Problem(
            "GRF222",
            f"{flow.id} writes `{cluster}/{name}`, a mirror topic of {link.id}",
            (Label(flow.declared, flow.id), Label(link.declared, link.id)),
            path=flow.path,
            ids=tuple(sorted((flow.id, link.id))),
            help=f"exclude the topic from one of the two, rename it, or promote the mirror topic and exclude it from "
            f"{link.id}",
        )


def _is_running_link(flow: Flow) -> bool:
    return flow.external is not None and flow.external.tool == "cluster_link" and flow.external.enabled


RULE = Rule("GRF222", "mirror-topic-written", "error", __doc__, check)
