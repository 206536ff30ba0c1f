"""SYC518 schemas-without-registry: schemas are to be carried over, and the file says of a cluster no schema registry.

Why: `sync.schemas` copies between two registries. Without the address of either nothing can be carried over, and with
`ids: translate` no record would ever pass: each waits for its schema at the target.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    for flow in topology.flows if topology is not None else ():
        schemas = flow.settings.at("sync", "schemas")
        if topology is None or schemas is None or flow.plan.sync.schemas.mode == "never":
            continue
        without = [
            alias
            for alias in dict.fromkeys((flow.source, flow.target))
            if alias in topology.clusters and topology.root.at("clusters", alias, "schema_registry") is None
        ]
        if without:
            clusters = [topology.root.at("clusters", alias) for alias in without]
            yield Problem(
                "SYC518",
                f"flow {flow.id} carries schemas over, and the file says no schema registry of {' and '.join(without)}",
                build_labels(
                    (schemas.where("mode"), "carries schemas over"),
                    *((each.span, "no schema_registry") for each in clusters if each is not None),
                ),
                path=f"{flow.path}.sync.schemas",
                ids=(flow.id, *without),
                help="add `schema_registry: {url: …}` to the cluster, or say `sync: {schemas: {mode: never}}`",
            )


RULE = Rule("SYC518", "schemas-without-registry", "error", __doc__, check)
