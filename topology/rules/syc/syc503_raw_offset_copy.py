"""SYC503 raw-offset-copy: positions are taken over as equal (`offsets: aligned`) where offsets cannot be equal.

Why: with `aligned` a group's position is the same number on both sides. Where several flows write a topic, where
records are left out (`forward: local`, `start` in the middle) or where keys choose the partition anew, the number
points at another record: the group skips some or reads some again. `mapped` translates each position exactly.

Source: apache/kafka OffsetSyncStore.java: why offsets differ between clusters
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.syc.declared_group_sync import build_declared_group_sync

_REASONS = (
    (("merge", "allowed"), True, "several flows write the target's topics"),
    (("partitions", "mapping"), "key", "keys choose the partition at the target"),
    (("provenance", "forward"), "local", "records that other flows brought are left out"),
)


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        reasons = [(path, why) for path, value, why in _REASONS if flow.settings.get(*path) == value]
        if flow.plan.start != "earliest":
            reasons.append((("delivery", "start"), "the copy begins in the middle"))
        moves = context.topology is not None and _moved(context, flow)
        if flow.plan.offsets == "aligned" and reasons and (moves or build_declared_group_sync(flow).mode != "never"):
            yield _problem(flow, reasons)


def _moved(context: RuleContext, flow: Flow) -> bool:
    migration = context.topology.migration if context.topology is not None else None
    return migration is not None and migration.flow == flow.id


def _problem(flow: Flow, reasons: list[tuple[tuple[str, str], str]]) -> Problem:
    return Problem(
        "SYC503",
        f"flow {flow.id} takes positions over as they are (`offsets: aligned`), but "
        + ", and ".join(why for _, why in reasons),
        build_labels(
            (flow.settings.where("offsets"), "equal offsets"),
            *((flow.settings.where(*path), why) for path, why in reasons),
        ),
        path=f"{flow.path}.offsets",
        ids=(flow.id,),
        help="say `offsets: mapped`: positions are then translated, exactly",
    )


RULE = Rule("SYC503", "raw-offset-copy", "error", __doc__, check)
