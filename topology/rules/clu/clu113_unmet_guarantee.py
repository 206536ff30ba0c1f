"""CLU113 unmet-guarantee: a cluster cannot do what a flow needs for the guarantee that its file asks for.

Why: A flow copies exactly once only if the brokers of its target check sequence numbers; in transactions they must take
transactions, too. Which requests brokers take, they say themselves, and a scan asks all of them. A flow never runs
below what its file asks for: `topology apply` and the workers refuse it as well. With `delivery.semantics:
at_least_once` it may copy without idempotence: records repeat after a crash, and a proof names each. Some settings
cannot hold then; the finding names them.

Source: KIP-98 (idempotent producers, transactions), KAFKA-7190 (producer state that outlives records, Kafka 2.4);
ApiVersions of each broker
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from watershed.topology.cluster_capabilities import ClusterCapabilities
from watershed.topology.delivery_guarantee import (
    Delivery,
    GuaranteeDecision,
    MissingCapability,
    decide_guarantee,
    explain_lower_guarantee,
    name_guarantee,
)
from watershed.topology.delivery_mode import choose_delivery_modes
from watershed.topology.egress_compression import CompressionCodec
from watershed.topology.finding import Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.repeat_obstacles import decide_flow_guarantee
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names

_DELIVERIES: Final[tuple[Delivery, ...]] = ("sequence", "transactions")
_Unmet = dict[tuple[MissingCapability, ...], list[tuple[Flow, GuaranteeDecision]]]


def check(context: RuleContext) -> Iterator[Problem]:
    topology, inventory = context.topology, context.inventory
    if topology is None or inventory is None:
        return

    def find(alias: str) -> ClusterCapabilities | None:
        seen = inventory.cluster(alias)
        return None if seen is None else seen.capabilities

    # How flows copy is worked out only where a cluster lacks something for one of the two ways.
    wanted = {(flow.source, flow.target, _get_codec(flow)) for flow in topology.flows}
    short = {
        (source, target, codec)
        for source, target, codec in wanted
        for delivery in _DELIVERIES
        if decide_guarantee(delivery, find(source), find(target), codec=codec).missing
    }
    if not short:
        return
    modes = choose_delivery_modes(topology)
    plans = [flow.plan for flow in topology.flows]
    unmet: _Unmet = defaultdict(list)
    for flow in topology.flows:
        if (flow.source, flow.target, _get_codec(flow)) in short:
            how = modes[flow.id]
            plan = replace(flow.plan, delivery=how.delivery, delivery_reason=how.reason)
            decision = decide_flow_guarantee(plan, find(flow.source), find(flow.target), plans)
            if not decision.is_executed:
                unmet[decision.missing].append((flow, decision))
    for missing, flows in unmet.items():
        yield _build_problem(topology, missing, flows)


def _get_codec(flow: Flow) -> CompressionCodec | None:
    return None if flow.plan.compression is None else flow.plan.compression.codec


def _build_problem(
    topology: Topology, missing: tuple[MissingCapability, ...], flows: list[tuple[Flow, GuaranteeDecision]]
) -> Problem:
    (flow, decision), first = flows[0], missing[0]
    cluster = topology.root.at("clusters", first.cluster)
    asked = {each.settings.get("delivery", "semantics", default="exactly_once") for each, _ in flows}
    notes = [each.problem for each in missing[1:]]
    notes.append(f"`delivery.semantics` of {'it' if len(flows) == 1 else 'them'}: {', '.join(sorted(asked))}")
    notes += dict.fromkeys(told for _, each in flows if (told := explain_lower_guarantee(each)))
    names = render_some_names([each.id for each, _ in flows])
    return Problem(
        "CLU113",
        f"{names} cannot have `{name_guarantee(decision.delivery)}`: {first.problem}",
        build_labels((None if cluster is None else cluster.span, first.what), (flow.declared, flow.id)),
        path=f"clusters.{first.cluster}",
        ids=(first.cluster, *(each.id for each, _ in flows)),
        help=first.remedy[0].lower() + first.remedy[1:],
        notes=tuple(notes),
    )


RULE = Rule("CLU113", "unmet-guarantee", "error", __doc__, check, needs="inventory")
