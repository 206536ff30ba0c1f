"""SYC521 transform-without-registry: a flow opens records by their schemas, and the source has no schema registry.

Why: a record of `format: avro` or `protobuf` begins with the id of its schema, and only the registry of the source
knows what it means. Without its address every record would wait.

Source: own; docs/transform.md
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    for flow in topology.flows if topology is not None else ():
        transform = flow.plan.transform
        if (
            topology is None
            or transform is None
            or not transform.registry_sides
            or flow.source not in topology.clusters
        ):
            continue
        if topology.root.at("clusters", flow.source, "schema_registry") is not None:
            continue
        source = topology.root.at("clusters", flow.source)
        yield Problem(
            "SYC521",
            f"flow {flow.id} opens records by their schemas, and the file says no schema registry of {flow.source}",
            build_labels(
                (flow.settings.where("transform", "format"), "schemas stand in a registry"),
                *(((source.span, "no schema_registry"),) if source is not None else ()),
            ),
            path=f"{flow.path}.transform.format",
            ids=(flow.id, flow.source),
            help="add `schema_registry: {url: …}` to the cluster",
        )


RULE = Rule("SYC521", "transform-without-registry", "error", __doc__, check)
