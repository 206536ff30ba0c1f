"""MIG834 late-wave-with-producers: a wave that moves groups last says something about producers, or names no group.

Why: with `consumers_last` nothing but groups moves. Producers that it names would never be stopped, and would go on
writing at the source, where nobody carries their records any more. A fence, a hook for it, a watch for stragglers and a
proof behind the move would never be used: they belong to the wave that moves the producers. An application that reads
and writes moves with the producers.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.mig.declared_waves import AFTER, DeclaredWave, list_declared_waves


def check(context: RuleContext) -> Iterator[Problem]:
    for move in list_declared_waves(context.topology):
        for key, span, told, remedy in _find_wrong(move) if move.wave.is_late else ():
            yield Problem(
                "MIG834",
                f"wave `{move.name}` moves its groups last, and {told}",
                build_labels((span, "here"), (move.value.where("strategy"), "consumers last")),
                path=f"{move.path}.{key}",
                ids=(move.name, key),
                help=remedy,
            )


def _find_wrong(move: DeclaredWave) -> Iterator[tuple[str, FileSpan, str, str]]:
    """Each key that it cannot have: its path in the wave, its place, what is wrong, and what to do."""
    elsewhere = "say it in the wave that moves the producers"
    if move.wave.producers:
        remedy = "put them into the wave that moves their topics, with what they read"
        yield "producers", move.value.where("producers"), "names producers", remedy
    if not move.wave.consumers:
        remedy = "name the groups that stay at the source until this wave"
        yield "consumers", move.span, "names no group", remedy
    if move.value.at("fence") is not None:
        yield "fence", move.value.where("fence"), "declares a fence, which would never be raised", elsewhere
    if move.wave.hooks.fenced:
        where = move.value.where("hooks", "fenced")
        yield "hooks.fenced", where, "names hooks for a fence, which would never be called", elsewhere
    for gate in move.gates("stragglers"):
        yield "gates.stragglers", gate.span, "watches for stragglers, where nobody is fenced", elsewhere
    for gate in move.gates("verify", AFTER):
        remedy = "prove before the move (`gates.before`): records do not change when groups move"
        yield "gates.after.verify", gate.span, "asks for a proof that nothing would make", remedy


RULE = Rule("MIG834", "late-wave-with-producers", "error", __doc__, check)
