"""SYC519 one-registry-for-both: schemas are to be carried over, and both clusters have the same schema registry.

Why: a registry that both sides use has every schema already: there is nothing to carry over, and ids stay valid. Where
two registries are meant, one of the addresses is wrong, and records at the target would point to schemas that are not
there when the source's registry is switched off.

Source: own; seen in our own docker-compose.yaml
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import CheckedValue
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    for flow in topology.flows if topology is not None else ():
        schemas = flow.settings.at("sync", "schemas")
        if topology is None or schemas is None or flow.plan.sync.schemas.mode == "never":
            continue
        if flow.plan.naming.policy != "identity" and schemas.get("subjects", default="keep") == "follow_topic":
            continue  # the registry gets subjects of the new names (SYC514 asks for it)
        source, target = (topology.root.at("clusters", each, "schema_registry") for each in (flow.source, flow.target))
        if source is not None and target is not None and _read_address(source) == _read_address(target):
            yield Problem(
                "SYC519",
                f"flow {flow.id} carries schemas over, and {flow.source} and {flow.target} have one schema registry",
                build_labels(
                    (schemas.where("mode"), "carries schemas over"), (target.where("url"), "the same address")
                ),
                path=f"{flow.path}.sync.schemas",
                ids=(flow.id,),
                help="correct the address, or say `sync: {schemas: {mode: never}}`: both sides read the same schemas",
            )


def _read_address(registry: CheckedValue) -> str:
    return str(registry.get("url")).rstrip("/").lower()


RULE = Rule("SYC519", "one-registry-for-both", "warning", __doc__, check)
