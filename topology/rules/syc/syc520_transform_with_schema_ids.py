"""SYC520 transform-with-schema-ids: a flow changes records, and is to write other schema ids into them.

Why: `sync.schemas.ids: translate` rewrites the ids in front of keys and values as they come. A flow with `transform`
hands records to Spark instead, and their ids stay those of the source, which mean other schemas at the target, or none.

Source: own; docs/transform.md
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Problem
from topology.rule import Rule, RuleContext
from topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        if flow.plan.transform is None or not flow.plan.sync.schemas.translated:
            continue
        yield Problem(
            "SYC520",
            f"flow {flow.id} changes records, so schema ids in them cannot be translated",
            build_labels(
                (flow.settings.where("sync", "schemas", "ids"), "other ids at the target"),
                (flow.settings.where("transform"), "records go through Spark"),
            ),
            path=f"{flow.path}.sync.schemas.ids",
            ids=(flow.id,),
            help="say `sync: {schemas: {ids: preserve}}`, so that schemas keep their ids at the target",
        )


RULE = Rule("SYC520", "transform-with-schema-ids", "error", __doc__, check)
