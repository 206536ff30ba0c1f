"""CLU111 stretch-as-flow: a flow is asked for what only a stretch cluster can do: `rpo: 0s` within one region, or a
copy between two aliases that are stretched over the same regions.

Why: a flow copies after the source has acknowledged, so the last records are always at risk. Within one region one
cluster over several zones loses nothing and needs no flow; a cluster that is stretched over two regions already holds
every record in both.

Source: Confluent, Multi-Region Architectures; own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.text_escaping import shorten_and_escape


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    for flow in topology.flows if topology is not None else ():
        if topology is None or flow.source == flow.target:
            continue
        ours, theirs = _regions(topology, flow.source), _regions(topology, flow.target)
        if ours != theirs or not ours:
            continue
        where = ", ".join(shorten_and_escape(region) for region in sorted(ours))
        if len(ours) > 1:
            yield _problem(topology, flow, f"copies between two clusters that are both stretched over {where}")
        elif flow.settings.get("slo", "rpo") == 0:
            yield _problem(topology, flow, f"promises `rpo: 0s` between two clusters in {where}")


def _regions(topology: Topology, alias: str) -> frozenset[str]:
    cluster = topology.root.at("clusters", alias)
    if cluster is None:
        return frozenset()
    one = cluster.get("region")
    return frozenset(cluster.texts("regions") or ((one,) if one is not None else ()))


def _problem(topology: Topology, flow: Flow, what: str) -> Problem:
    places = [
        (topology.root.where("clusters", alias, key), alias)
        for alias in (flow.source, flow.target)
        for key in ("region", "regions")
        if topology.root.at("clusters", alias, key) is not None
    ]
    rpo = flow.settings.at("slo", "rpo")
    promised = None if rpo is None or rpo.data else rpo.span
    return Problem(
        "CLU111",
        f"flow {flow.id} {what}; an asynchronous copy cannot give that",
        build_labels(
            (None if rpo is None or rpo.data else rpo.span, "nothing may be lost"),
            (flow.declared, "this flow"),
            *places,
        ),
        path=f"{flow.path}.slo.rpo" if promised is not None else flow.path,
        ids=(flow.id, flow.source, flow.target),
        help="make one cluster of both, with `regions:` and `stretch:`; or say how much may be lost",
    )


RULE = Rule("CLU111", "stretch-as-flow", "warning", __doc__, check)
