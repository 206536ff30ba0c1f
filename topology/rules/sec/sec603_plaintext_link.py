"""SEC603 plaintext-link: a flow runs between regions, or between name spaces, and one of its ends speaks PLAINTEXT.

Why: what leaves a site passes networks that others can read and write, and every record is on it. Two clusters are
apart when both say a `region` and have none in common. Where they do not both say one, host names decide: clusters are
apart when the last two of at least three labels differ (`k1.example.internal`, `k1.example.org`). Name spaces of
Kubernetes (`x.orders.svc`) say nothing, nor do names of two labels. What is not declared is not guessed; addresses on
this machine are not looked at.

Source: own; apache/kafka docs/security.html for what PLAINTEXT leaves open
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.cluster_locations import (
    find_cluster_regions,
    find_host_domains,
    is_cross_region,
    is_loopback_cluster,
)
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.text_escaping import shorten_and_escape


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    open_ends = {
        alias
        for alias, cluster in topology.clusters.items()
        if cluster.security.protocol == "PLAINTEXT" and not is_loopback_cluster(cluster)
    }
    found: dict[str, list[tuple[Flow, str]]] = {}
    for flow in topology.flows:
        ends = sorted({flow.source, flow.target} & open_ends)
        because = _explain_distance(topology, flow) if ends else None
        if because is not None:
            for alias in ends:
                found.setdefault(alias, []).append((flow, because))
    for alias, flows in sorted(found.items()):
        yield _problem(topology, alias, flows)


def _problem(topology: Topology, alias: str, flows: list[tuple[Flow, str]]) -> Problem:
    first, because = flows[0]
    names = [flow.id for flow, _ in flows]
    cluster = topology.root.at("clusters", alias)
    undeclared = cluster is None or cluster.at("security", "protocol") is None
    speaks = "speaks PLAINTEXT (no `security` says otherwise)" if undeclared else "speaks PLAINTEXT"
    return Problem(
        "SEC603",
        f"{alias} {speaks}, and {render_some_names(names)} {'runs' if len(names) == 1 else 'run'} between "
        f"sites: {because}",
        build_labels(
            (cluster.where("security", "protocol") if cluster is not None else None, "no TLS"),
            (first.declared, because),
        ),
        path=f"clusters.{alias}.security.protocol",
        ids=(alias, *names),
        help=f"use `protocol: SSL` or `SASL_SSL` for {alias}",
    )


def _explain_distance(topology: Topology, flow: Flow) -> str | None:
    """Why the two clusters are not at one site; None if they are, or if nobody knows."""
    if is_cross_region(topology, flow.source, flow.target):
        one, two = (
            shorten_and_escape(", ".join(sorted(find_cluster_regions(topology, alias))))
            for alias in (flow.source, flow.target)
        )
        return f"{flow.source} is in {one}, {flow.target} in {two}"
    if all(find_cluster_regions(topology, alias) for alias in (flow.source, flow.target)):
        return None  # a common region: they say themselves that they are at one site
    source, target = topology.clusters.get(flow.source), topology.clusters.get(flow.target)
    if source is None or target is None:
        return None
    here, there = find_host_domains(source), find_host_domains(target)
    if here and there and not here & there:
        return f"{flow.source} is in {min(here)}, {flow.target} in {min(there)}"
    return None


RULE = Rule("SEC603", "plaintext-link", "error", __doc__, check, ignorable=False)
