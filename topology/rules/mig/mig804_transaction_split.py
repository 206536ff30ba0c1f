"""MIG804 transaction-split: an application produces in one wave and consumes in another.

Why: what it reads and what it writes lie at two clusters between the waves. A transaction cannot span both, so
exactly-once is lost, and without transactions every restart reads or writes twice. Found where a wave's `producers`
and another wave's `consumers` say the same name.

Source: confluentinc/kcp: the topics of a group flip together; KIP-98
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import CheckedValue
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.mig.declared_waves import DeclaredWave, list_declared_waves
from watershed.topology.text_escaping import shorten_and_escape


def check(context: RuleContext) -> Iterator[Problem]:
    waves = list_declared_waves(context.topology)
    reads: dict[str, list[tuple[DeclaredWave, CheckedValue]]] = {}
    for move in waves:
        for group in move.value.list("consumers"):
            reads.setdefault(group.data, []).append((move, group))
    for move in waves:
        for producer in move.value.list("producers"):
            found = reads.get(producer.data, [])
            if found and all(each.index != move.index for each, _ in found):
                reader, group = min(found, key=lambda each: each[0].name)
                yield Problem(
                    "MIG804",
                    f"`{shorten_and_escape(producer.data)}` produces in wave `{move.name}` and consumes in wave "
                    f"`{reader.name}`",
                    build_labels((producer.span, "writes here"), (group.span, "reads here")),
                    path=f"{move.path}.producers",
                    ids=(producer.data, move.name, reader.name),
                    help="put what it reads and what it writes into one wave",
                )


RULE = Rule("MIG804", "transaction-split", "error", __doc__, check)
