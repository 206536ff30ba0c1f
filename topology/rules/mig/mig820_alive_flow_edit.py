"""MIG820 alive-flow-edit: a wave that has started is another one in the file now.

Why: the run that is under way holds the plan that was approved; a changed file would resume it with other topics,
groups or producers than the ones that were stopped. A started wave keeps its topics, consumers, producers, strategy
and `after`; its gates, window and rollback may be tuned.

Source: confluentinc/kcp: migrations are snapshots, policies are not
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.migration_waves import compute_wave_hash
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import render_some_names
from watershed.topology.rules.mig.declared_waves import find_migration_flow, list_declared_waves


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    flow = find_migration_flow(topology) if topology is not None else None
    there = context.inventory.cluster(flow.target) if context.inventory is not None and flow is not None else None
    if topology is None or there is None:
        return
    mine = f"{topology.name}/"
    started = {
        name.removeprefix(mine): hash_ for name, hash_ in (there.started_waves or {}).items() if name.startswith(mine)
    }
    for move in list_declared_waves(topology):
        if started.pop(move.name, compute_wave_hash(move.wave)) != compute_wave_hash(move.wave):
            yield Problem(
                "MIG820",
                f"wave `{move.name}` has started, and the file says something else about what it moves now",
                (Label(move.span),),
                path=move.path,
                ids=(move.name,),
                help="restore the wave as it was started, and put what is new into another wave",
            )
    gone = sorted(started)
    if gone:
        yield Problem(
            "MIG820",
            f"the file lost {render_some_names(gone)}, which {'has' if len(gone) == 1 else 'have'} started",
            (Label(topology.root.where("migration", "waves"), "the waves that are left"),),
            path="migration.waves",
            ids=tuple(gone),
            help="restore what was started; waves that are finished stay in the file",
        )


RULE = Rule("MIG820", "alive-flow-edit", "error", __doc__, check, needs="live")
