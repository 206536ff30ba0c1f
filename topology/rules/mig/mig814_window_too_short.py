"""MIG814 window-too-short: a wave's window is shorter than its own gates take.

Why: the window closes in the middle, with applications stopped, and the wave is taken back or goes on unplanned.
Added up are what the gates hold and watch, how long consumers may take to catch up, and, with a scan, the time to
read the topics for each proof (at the flow's quota, else 100 MiB/s). Waiting for a person is not counted.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.planning.copy_estimate import ASSUMED_COPY_RATE_BYTES
from watershed.topology.quantities import render_duration, render_rate
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.mig.declared_waves import (
    AFTER,
    BEFORE,
    DeclaredWave,
    find_migration_flow,
    list_declared_waves,
)


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    flow = find_migration_flow(topology) if topology is not None else None
    for move in list_declared_waves(topology):
        length = move.value.at("window", "length")
        parts = [*_gates(move), *_proofs(context, move, flow)] if length is not None else []
        needed = sum(ms for ms, _ in parts)
        if length is None or needed <= length.data:
            continue
        yield Problem(
            "MIG814",
            f"the window of wave `{move.name}` is {render_duration(length.data)}; its gates take up to "
            f"{render_duration(needed)}",
            build_labels((length.span, "too short"), (move.value.where("gates"), "take longer")),
            path=f"{move.path}.window.length",
            ids=(move.name,),
            notes=(
                " + ".join(f"{render_duration(ms)} {what}" for ms, what in parts) + f" = {render_duration(needed)}",
            ),
            help=f"open the window for {render_duration(needed)} and what people need, or move less in one wave",
        )


def _gates(move: DeclaredWave) -> Iterator[tuple[int, str]]:
    """ms and what for, as far as the file says it."""
    kinds = (
        ("lag", "hold", "lag held", (BEFORE,)),
        ("stragglers", "watch", "watching stragglers", ()),
        ("consumer_lag", "within", "consumers catching up", (AFTER,)),
    )
    for kind, name, what, when in kinds:
        for gate in move.gates(kind, *when):
            if gate.get(name):
                yield gate.get(name), what


def _proofs(context: RuleContext, move: DeclaredWave, flow: Flow | None) -> Iterator[tuple[int, str]]:
    """Reading the topics once a proof, from a scan's sizes, in whole minutes."""
    if flow is None or context.inventory is None:
        return
    seen = [context.facts.seen(flow.source, topic) for topic in move.wave.topics]
    size = sum(topic.size_bytes or 0 for topic in seen if topic is not None)
    rate = flow.plan.quota or ASSUMED_COPY_RATE_BYTES
    for gate in move.gates("verify"):
        minutes = round(size * gate.get("sample", default=1.0) / rate / 60)
        if gate.get("level") != "L0" and minutes:
            yield minutes * 60_000, f"reading at {render_rate(rate)}"


RULE = Rule("MIG814", "window-too-short", "warning", __doc__, check)
