"""MIG833 late-groups-without-way-back: producers move, groups stay at the source, and no flow brings them new records.

Why: from the switch on, producers write at the target. Groups that another wave moves last go on reading at the source:
without a flow back they read nothing more, and nobody tells them. Groups of one wave are fed by one flow back, so the
waves that move the producers of their topics must name the same one.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.migration_waves import Wave
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.mig.declared_waves import DeclaredWave, list_declared_waves


def check(context: RuleContext) -> Iterator[Problem]:
    waves = list_declared_waves(context.topology)
    for late in waves:
        if not late.wave.is_late:
            continue
        before = [move for move in waves if not move.wave.is_late and set(move.wave.topics) & set(late.wave.topics)]
        for move in before:
            if _name_way_back(move.wave) is None:
                yield _missing(late, move)
        ways = {way: move for move in before if (way := _name_way_back(move.wave)) is not None}
        if len(ways) > 1:
            names = sorted(ways)
            yield Problem(
                "MIG833",
                f"groups of wave `{late.name}` would be fed by several flows back: {render_some_names(names)}",
                build_labels(*((ways[name].value.where("rollback", "reverse"), "one of them") for name in names)),
                path=f"{late.path}.topics",
                ids=(late.name, *names),
                help="name one flow back in all these waves",
            )


def _missing(late: DeclaredWave, move: DeclaredWave) -> Problem:
    return Problem(
        "MIG833",
        f"wave `{move.name}` moves producers, wave `{late.name}` leaves groups at the source, and no flow leads back",
        build_labels((move.value.where("rollback"), "no `reverse`"), (late.span, "its groups would read nothing more")),
        path=f"{move.path}.rollback",
        ids=(move.name, late.name),
        help="say `rollback: {until: 24h, reverse: <flow back>}` in the wave that moves the producers",
    )


def _name_way_back(wave: Wave) -> str | None:
    return wave.rollback.reverse if wave.rollback is not None else None


RULE = Rule("MIG833", "late-groups-without-way-back", "error", __doc__, check)
