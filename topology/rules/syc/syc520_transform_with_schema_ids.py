"""SYC520 transform-with-schema-ids: a flow changes records in a format without schema ids, and is to write others.

Why: `sync.schemas.ids: translate` rewrites the ids in front of keys and values. A flow with `transform` can do so where
it opens values by their schemas (`format: {value: avro}` or `protobuf`). In any other format what an expression gives
is the value, and nobody can say whether an id stands in front of it; it would stay that of the source, which means
another schema at the target, or none.

Source: own; docs/transform.md
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.record_transform import REGISTRY_FORMATS
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        transform = flow.plan.transform
        if transform is None or transform.value_format in REGISTRY_FORMATS or not flow.plan.sync.schemas.translated:
            continue
        yield Problem(
            "SYC520",
            f"flow {flow.id} changes records of format {transform.value_format}, so schema ids in them cannot be "
            "translated",
            build_labels(
                (flow.settings.where("sync", "schemas", "ids"), "other ids at the target"),
                (flow.settings.where("transform"), "values are not opened by their schemas"),
            ),
            path=f"{flow.path}.sync.schemas.ids",
            ids=(flow.id,),
            help="say `format: {value: avro}` (or protobuf) where values are, or `sync: {schemas: {ids: preserve}}`, "
            "so that schemas keep their ids at the target",
        )


RULE = Rule("SYC520", "transform-with-schema-ids", "error", __doc__, check)
