"""OPS905 plan-stale: what runs is not one plan: an apply stopped half way, or a flow runs that the file does not know.

Why: every order to the workers carries the hash of the plan that somebody looked at. Two hashes at once mean that some
flows follow the old plan and some the new one; a flow that is no longer in the file goes on copying, and no rule looks
at it (a warning). That the file itself changed since is only told: that is what an apply is for.

Source: devshawn/kafka-gitops, which applies a plan file as it was reviewed; own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.inventory import InventoryFlow
from watershed.topology.model import Flow, Topology
from watershed.topology.plan_builder import build_plan
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import render_plural, render_some_names
from watershed.topology.shell_command import render_shell_command
from watershed.topology.text_escaping import shorten_and_escape

_SHOWN = len("sha256:") + 13


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    ordered = _ordered(context, topology)
    declared = {flow.id: flow for flow in topology.flows}
    live = [(declared[name], order) for (_, name), order in ordered.items() if name in declared]
    plans = sorted({order.plan_hash for _, order in live})
    if len(plans) > 1:
        yield _two_plans(live, plans)
    elif plans and context.graph is not None:
        compiled = build_plan(topology, context.graph.proofs()).hash
        if compiled != plans[0]:
            yield _changed([flow for flow, _ in live], plans[0], compiled)
    for (cluster, name), order in ordered.items():
        if name not in declared and order.state != "stopped":
            yield _left_over(topology, cluster, name)


def _ordered(context: RuleContext, topology: Topology) -> dict[tuple[str, str], InventoryFlow]:
    """Orders of this very topology by cluster and flow id, in order."""
    clusters = context.inventory.clusters if context.inventory is not None else {}
    return {
        (alias, name): order
        for alias, cluster in sorted(clusters.items())
        if alias in topology.clusters
        for name, order in sorted(cluster.flows.items())
        if order.topology == topology.name
    }


def _two_plans(live: list[tuple[Flow, InventoryFlow]], plans: list[str]) -> Problem:
    by_plan = {plan: sorted(flow.id for flow, order in live if order.plan_hash == plan) for plan in plans}
    first = [next(flow for flow, order in live if order.plan_hash == plan) for plan in plans]
    return Problem(
        "OPS905",
        f"flows follow {len(plans)} plans at once: "
        f"{'; '.join(f'{_short(p)} {render_some_names(by_plan[p])}' for p in plans)}",
        tuple(
            Label(flow.declared, f"{flow.id} follows {_short(plan)}") for flow, plan in zip(first, plans, strict=True)
        ),
        path=first[0].path,
        ids=tuple(flow.id for flow in first),
        help="`topology apply` again: it goes on where it stopped",
    )


def _changed(flows: list[Flow], running: str, compiled: str) -> Problem:
    return Problem(
        "OPS905",
        f"{render_plural(len(flows), 'flow')} of this topology follow the plan {_short(running)}, and the file gives "
        f"{_short(compiled)}",
        (Label(flows[0].declared),),
        path=flows[0].path,
        ids=(flows[0].id,),
        help="`topology apply` makes them follow the file",
        severity="info",
    )


def _left_over(topology: Topology, cluster: str, name: str) -> Problem:
    declared = topology.root.at("clusters", cluster)
    assert declared is not None, "only declared clusters are looked at"
    stop = render_shell_command("topology", "flow", "stop", name, "FILE")
    return Problem(
        "OPS905",
        f"flow {name} of this topology is still ordered at {cluster}, and the file does not declare it",
        (Label(declared.key or declared.span),),
        path=f"clusters.{cluster}",
        ids=(name, cluster),
        help=f"declare it again; where it shall end, `{stop}` before it leaves the file",
        severity="warning",
    )


def _short(plan: str) -> str:
    return shorten_and_escape(plan, _SHOWN)


RULE = Rule("OPS905", "plan-stale", "error", __doc__, check, needs="live")
