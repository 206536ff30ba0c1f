"""MIG810 no-straggler-watch: a wave stops producers and does not watch for those that were forgotten.

Why: one producer that nobody knew of goes on writing to the side that nobody reads any more. The watch holds the wave
until the source's log ends stand still. Watershed watches for 6 minutes in any case; the file should say how long is
right.

Source: confluentinc/kcp verify_fence
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.mig.declared_waves import list_declared_waves, lower_severity_in_lab


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    for move in list_declared_waves(topology):
        stops = bool(move.wave.producers) or move.wave.strategy == "fenced"
        if topology is not None and stops and not any(move.gates("stragglers")):
            yield Problem(
                "MIG810",
                f"wave `{move.name}` stops producers without a watch for stragglers",
                (Label(move.span),),
                path=f"{move.path}.gates.after",
                ids=(move.name,),
                help="say `gates: {after: [{stragglers: {watch: 6m}}]}`",
                severity=lower_severity_in_lab(topology, "warning"),
            )


RULE = Rule("MIG810", "no-straggler-watch", "warning", __doc__, check)
