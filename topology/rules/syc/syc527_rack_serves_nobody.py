"""SYC527 rack-serves-nobody: readers stand in a rack of a cluster whose brokers serve no reader by its rack.

Why: `workers.near` and a cluster's `rack` are there to read over a short line. A rack that no broker names is met by
no replica, and without a rack-aware `replica.selector.class` every read goes to the leader: both look as if they
worked, and each byte crosses the long line.

Source: KIP-392; apache/kafka RackAwareReplicaSelector
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Label, Problem
from watershed.topology.inventory import InventoryCluster
from watershed.topology.model import Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import render_some_names
from watershed.topology.text_escaping import shorten_and_escape

_SELECTOR_CONFIG = "replica.selector.class"
_RACK_AWARE = "RackAwareReplicaSelector"


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None or context.inventory is None:
        return
    for (alias, rack), (span, path) in _find_readers(topology).items():
        seen = context.inventory.cluster(alias)
        fault = None if seen is None else _explain_unserved(seen, rack)
        if fault is not None:
            message = f"readers of {alias} stand in rack `{shorten_and_escape(rack)}`, and {fault}"
            help_ = f"name a rack of the brokers, and set their `{_SELECTOR_CONFIG}` to Kafka's {_RACK_AWARE}"
            yield Problem("SYC527", message, (Label(span),), path, ids=(alias,), help=help_)


def _find_readers(topology: Topology) -> dict[tuple[str, str], tuple[FileSpan, str]]:
    """(cluster, rack) → where the file says it first: of workers, then of proofs."""
    found: dict[tuple[str, str], tuple[FileSpan, str]] = {}
    for flow in topology.flows:
        if flow.plan.source_rack is not None:
            place = flow.settings.where("workers", "near"), f"{flow.path}.workers.near"
            found.setdefault((flow.source, flow.plan.source_rack), place)
    for alias, cluster in topology.clusters.items():
        if cluster.rack is not None:
            place = topology.root.where("clusters", alias, "rack"), f"clusters.{alias}.rack"
            found.setdefault((alias, cluster.rack), place)
    return found


def _explain_unserved(seen: InventoryCluster, rack: str) -> str | None:
    """Why no replica is chosen by this rack; None where one is, or the scan did not see it."""
    racks = sorted({broker.rack for broker in seen.brokers if broker.rack is not None})
    if rack not in racks:
        return f"its brokers name {render_some_names(racks)}" if racks else "its brokers name no racks"
    chosen = seen.configs.get(_SELECTOR_CONFIG) or "unset"
    if seen.configs and not chosen.endswith(_RACK_AWARE):
        return f"its brokers have `{_SELECTOR_CONFIG}` {shorten_and_escape(chosen)}: leaders serve all"
    return None


RULE = Rule("SYC527", "rack-serves-nobody", "warning", __doc__, check, "inventory")
