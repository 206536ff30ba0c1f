"""MIG809 producers-first-without-reverse: producers move first, and no flow leads back.

Why: consumers that are still at the source read what is left there and then wait for records that never come, and the
point of no return lies behind them. When they cannot be moved then, only a flow back brings the new records to them.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.mig.declared_waves import find_migration_flow, list_declared_waves


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    flow = find_migration_flow(topology) if topology is not None else None
    if topology is None or flow is None:
        return
    if any((each.source, each.target) == (flow.target, flow.source) for each in topology.flows):
        return
    for move in list_declared_waves(topology):
        if move.wave.strategy == "producers_first":
            own = move.value.at("strategy")
            said = own.span if own is not None else topology.root.where("migration", "strategy")
            yield Problem(
                "MIG809",
                f"wave `{move.name}` moves producers first, but no flow leads from {flow.target} back to {flow.source}",
                build_labels((said, "producers first"), (move.span, "this wave")),
                path=f"{move.path}.strategy",
                ids=(move.name, flow.id),
                help=f"declare a flow {flow.target} to {flow.source} with `state: paused`, or use `consumers_first`",
            )


RULE = Rule("MIG809", "producers-first-without-reverse", "error", __doc__, check)
