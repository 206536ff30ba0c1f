"""SYC522 transform-changes-keys: a flow gives its records other keys, and they keep their partitions.

Why: readers of a topic rely on two things that keys give. All records of one key stand in one partition, in order; and
a compacted topic keeps the last record of each key. A flow with `transform` keeps each record in its partition and in
its order there, whatever becomes of its key. So where two keys become one, their records may lie in two partitions, and
no order is promised between them; a compacted target may keep a last record for each, or only one of both where
they share a partition. A new key for each old one (a hash of the whole key) changes none of this within a partition,
but a producer that writes the new key at the target chooses another partition for it.

Source: own; docs/transform.md
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        transform = flow.plan.transform
        places = () if transform is None else transform.key_changes
        if not places or flow.settings.get("partitions", "mapping", default="preserve") != "key":
            continue  # without `mapping: key` it is SYN015
        key, _, name = places[0].partition(".")
        yield Problem(
            "SYC522",
            f"flow {flow.id} changes keys, and each record keeps its partition: no order is promised among records "
            "whose new keys are equal",
            build_labels(
                (flow.settings.where("partitions", "mapping"), "said to be meant"),
                (flow.settings.where("transform", key, *([name] if key == "set" else [])), "keys change here"),
            ),
            path=f"{flow.path}.partitions.mapping",
            ids=(flow.id,),
            help="make sure that readers of the target need no order by key and no one partition a key, and that "
            "nobody else writes such keys there; `# lint: ignore[SYC522] REASON` on this line ends the warning",
        )


RULE = Rule("SYC522", "transform-changes-keys", "warning", __doc__, check)
