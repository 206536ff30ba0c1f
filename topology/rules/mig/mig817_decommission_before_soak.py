"""MIG817 decommission-before-soak: the source is gone, or its records are, before the last wave can no longer be taken
back.

Why: a rollback needs the cluster that it goes back to, and there the records from before the switch. Compared are the
longest `rollback.until` with `decommission.not_before`, and each wave's with the retention of its topics at the
source (declared or scanned; compacted topics are not looked at).

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Topology
from watershed.topology.quantities import render_duration
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.mig.declared_waves import DeclaredWave, find_migration_flow, list_declared_waves


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    waves = [move for move in list_declared_waves(topology) if _until(move)]
    if topology is None or not waves:
        return
    yield from _taken_down(topology, min(waves, key=lambda move: (-_until(move), move.name)))
    for move in waves:
        yield from _expired(context, topology, move)


def _until(move: DeclaredWave) -> int:
    return (move.wave.rollback.until_ms or 0) if move.wave.rollback is not None else 0


def _taken_down(topology: Topology, longest: DeclaredWave) -> Iterator[Problem]:
    not_before = topology.root.at("migration", "decommission", "not_before")
    if not_before is not None and not_before.data < _until(longest):
        said, until = render_duration(not_before.data), render_duration(_until(longest))
        yield Problem(
            "MIG817",
            f"the source may be taken down after {said}, but wave `{longest.name}` can be taken back for {until}",
            build_labels(
                (not_before.span, "too early"), (longest.value.where("rollback", "until"), "needs the source")
            ),
            path="migration.decommission.not_before",
            ids=(longest.name,),
            help=f"say `not_before: {until}` or longer",
        )


def _expired(context: RuleContext, topology: Topology, move: DeclaredWave) -> Iterator[Problem]:
    flow = find_migration_flow(topology)
    if flow is None:
        return
    known = [(context.facts.topic(flow.source, topic), topic) for topic in move.wave.topics]
    short = [
        (facts.retention_ms, topic, facts.span)
        for facts, topic in known
        if facts.retention_ms is not None and facts.cleanup != "compact" and facts.retention_ms < _until(move)
    ]
    if short:
        least, _, span = min(short, key=lambda each: (each[0], each[1]))
        names = sorted(topic for _, topic, _ in short)
        until = render_duration(_until(move))
        yield Problem(
            "MIG817",
            f"wave `{move.name}` can be taken back for {until}, but {flow.source} keeps {render_some_names(names)} for "
            f"{render_duration(least)}",
            build_labels((move.value.where("rollback", "until"), "needs the records"), (span, "gone by then")),
            path=f"{move.path}.rollback.until",
            ids=(move.name, *names),
            help=f"raise the retention at {flow.source} to {until} for the time of the migration, or shorten `until`",
        )


RULE = Rule("MIG817", "decommission-before-soak", "error", __doc__, check)
