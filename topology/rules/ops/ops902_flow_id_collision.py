"""OPS902 flow-id-collision: one flow id stands for two routes, or a live flow of this id belongs to another topology.

Why: workers, ledger, proofs and Airflow know a flow by its id alone. `a-to-b-to-c` may go from `a` to `b-to-c` or from
`a-to-b` to `c`; where both exist one silently replaces the other. Two topologies with one id on one target overwrite
each other's orders in turn.

Source: own; MirrorMaker 2 processes that share one configuration topic (apache/kafka docs/ops.html, Preventing
Configuration Conflicts)
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import CheckedValue, Flow, Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.same_cluster import is_same_cluster
from watershed.topology.text_escaping import shorten_and_escape

_BETWEEN = "-to-"


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    for flow in topology.flows if topology is not None else ():
        if topology is not None:
            for source, target in _other_routes(topology, flow):
                yield _ambiguous(topology, flow, source, target)
            yield from _taken(context, topology, flow)
    for other in context.others if topology is not None else ():
        assert topology is not None, "asked above"
        yield from _shared(topology, other)


def _other_routes(topology: Topology, flow: Flow) -> Iterator[tuple[str, str]]:
    """Other pairs of declared clusters whose flow would have this very id."""
    at = flow.id.find(_BETWEEN)
    while at >= 0:
        source, target = flow.id[:at], flow.id[at + len(_BETWEEN) :]
        if (source, target) != (flow.source, flow.target) and {source, target} <= topology.clusters.keys():
            yield source, target
        at = flow.id.find(_BETWEEN, at + 1)


def _ambiguous(topology: Topology, flow: Flow, source: str, target: str) -> Problem:
    keys = [(cluster.key, f"`{alias}`") for alias in (source, target) if (cluster := _declared(topology, alias))]
    return Problem(
        "OPS902",
        f"the id {flow.id} of {flow.source} -> {flow.target} is also that of {source} -> {target}",
        build_labels((flow.declared, f"{flow.source} -> {flow.target}"), *keys),
        path=flow.path,
        ids=(flow.id,),
        help=f"rename an alias so that none holds `{_BETWEEN}`, or give this flow a `suffix`",
    )


def _taken(context: RuleContext, topology: Topology, flow: Flow) -> Iterator[Problem]:
    """Whether the target has orders for this id from somebody else, as far as a scan saw them."""
    cluster = context.inventory.cluster(flow.target) if context.inventory is not None else None
    order = cluster.flows.get(flow.id) if cluster is not None else None
    if order is not None and order.topology != topology.name:
        yield Problem(
            "OPS902",
            f"flow {flow.id} at {flow.target} belongs to topology {shorten_and_escape(order.topology)} already",
            build_labels((flow.declared, "declared here, too")),
            path=flow.path,
            ids=(flow.id, flow.target),
            help="give this flow a `suffix`, or remove it from one of the two topologies and stop it there first",
        )


def _shared(topology: Topology, other: Topology) -> Iterator[Problem]:
    """Flows of two files of one run that would share their state at one target cluster."""
    theirs = {flow.id: flow for flow in other.flows}
    for flow in topology.flows:
        twin = theirs.get(flow.id)
        if twin is not None and is_same_cluster(topology, flow.target, other, twin.target):
            yield Problem(
                "OPS902",
                f"flow {flow.id} into this cluster is also in the topology {shorten_and_escape(other.name)} "
                f"({shorten_and_escape(other.file)})",
                build_labels((flow.declared, "declared here, too")),
                path=flow.path,
                ids=(flow.id, other.name),
                help="give one of the two a `suffix`, or remove it from one of the files",
            )


def _declared(topology: Topology, alias: str) -> CheckedValue | None:
    return topology.root.at("clusters", alias)


RULE = Rule("OPS902", "flow-id-collision", "error", __doc__, check)
