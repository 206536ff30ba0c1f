"""SYC513 schema-ids-untranslated: records carry ids of one schema registry, and the target's applications ask another.

Why: a record of Avro, Protobuf or JSON Schema begins with an id that means something only in the registry that gave it.
Where the two clusters have different registries and schemas are not carried over, consumers at the target find no
schema, or a wrong one.

Source: Comcast/MirrorTool-for-Kafka-Connect#4, Apicurio/apicurio-registry#3683
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Problem
from watershed.topology.model import Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names

_WITH_IDS = ("avro", "json", "protobuf")


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    for flow, groups in context.facts.by_equal_facts if topology is not None else ():
        before, after = _registry(topology, flow.source), _registry(topology, flow.target)
        never = flow.settings.get("sync", "schemas", "mode", default="never") == "never"
        found = [topic for topics in groups if topics[0].source.schema in _WITH_IDS for topic in topics]
        # addresses are compared, never shown: they may hold a password
        if found and never and before is not None and after is not None and before[0] != after[0]:
            first = found[0]
            yield Problem(
                "SYC513",
                f"the schema ids in {render_some_names([topic.label for topic in found])} are those of the registry "
                f"of {flow.source}; {flow.target} has another one, and schemas are not carried over",
                build_labels(
                    (flow.settings.where("sync", "schemas"), "no schemas"),
                    (first.source.span, first.source.schema or ""),
                    (before[1], f"registry of {flow.source}"),
                    (after[1], f"registry of {flow.target}"),
                ),
                path=f"{flow.path}.sync.schemas",
                ids=(flow.id, first.label),
                help="say `sync: {schemas: {mode: continuous, ids: preserve}}` (or `translate`, where the target gives "
                "ids of its own), or use one registry on both sides",
            )


def _registry(topology: Topology | None, alias: str) -> tuple[str, FileSpan] | None:
    """Its address without a closing slash, and where it is declared."""
    declared = topology.root.at("clusters", alias, "schema_registry") if topology is not None else None
    url = declared.get("url") if declared is not None else None
    return None if declared is None or url is None else (url.rstrip("/"), declared.span)


RULE = Rule("SYC513", "schema-ids-untranslated", "error", __doc__, check)
