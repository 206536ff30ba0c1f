"""The language `topology/v1alpha1`: every section and key, as shapes with their meaning. The loader, the JSON Schema
for editors and the reference manual come from here.

`{source}`-like words in templates, selectors and secret references are checked here; what needs two places of the file
(an undeclared cluster, a flow id) is checked by rules.
"""

from __future__ import annotations

from typing import Any

from watershed.topology.language.cluster import CLUSTER_SHAPE
from watershed.topology.language.external import EXTERNAL_FLOW_SHAPE
from watershed.topology.language.flow import DEFAULTS_SHAPE, FLOW_SHAPE
from watershed.topology.language.migration import MIGRATION_SHAPE
from watershed.topology.language.pattern import PATTERN_SHAPE
from watershed.topology.language.scalars import (
    NAME_REGEX,
    NAME_SHAPE,
    TEXT_SHAPE,
    build_enum_shape,
    build_regex_converter,
)
from watershed.topology.yaml_shapes import ListShape, MapShape, RecordShape, ShapeKey

TOPOLOGY_API_VERSION = "topology/v1alpha1"
TOPOLOGY_KIND = "Topology"
TOPOLOGY_SHAPE = RecordShape(
    {
        "apiVersion": ShapeKey(build_enum_shape(TOPOLOGY_API_VERSION), "The version of the language."),
        "kind": ShapeKey(build_enum_shape(TOPOLOGY_KIND), "What this document is."),
        "metadata": ShapeKey(
            RecordShape(
                {
                    "name": ShapeKey(
                        NAME_SHAPE, "The topology's name; files of one folder with one name form one topology."
                    ),
                    "owner": ShapeKey(TEXT_SHAPE, "Who is called when it breaks."),
                    "description": ShapeKey(TEXT_SHAPE, "One or two sentences."),
                    "labels": ShapeKey(MapShape(TEXT_SHAPE), "Your own words, for your own tools."),
                },
                required=("name",),
            ),
            "What the topology is called and whose it is.",
        ),
        "clusters": ShapeKey(
            MapShape(
                CLUSTER_SHAPE,
                build_regex_converter(NAME_REGEX, "an alias of lower-case letters, digits and `-`", 40),
                names={"pattern": f"^{NAME_REGEX.pattern}$", "maxLength": 40},
            ),
            "Every cluster once, under an alias that says what it is, not where it is seen from.",
        ),
        "defaults": ShapeKey(DEFAULTS_SHAPE, "Lies under every flow; key by key, lists replace."),
        "pattern": ShapeKey(PATTERN_SHAPE, "One shape that expands to flows."),
        "flows": ShapeKey(
            ListShape(FLOW_SHAPE), "Flows of their own, or changes to a pattern's flow with the same id."
        ),
        "external_flows": ShapeKey(
            ListShape(EXTERNAL_FLOW_SHAPE),
            "Copies that other tools make between these clusters. They are proven and shown with the flows, and never "
            "executed. See external-flows.md.",
        ),
        "migration": ShapeKey(MIGRATION_SHAPE, "Moving the applications."),
    },
    required=("apiVersion", "kind", "metadata", "clusters"),
)


def build_language_schema() -> dict[str, Any]:
    """The whole language as JSON Schema 2020-12."""
    defs: dict[str, Any] = {}
    body = TOPOLOGY_SHAPE.schema(defs)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://watershed.invalid/schema/topology-v1alpha1.json",
        "title": "Watershed topology",
        "description": f"apiVersion {TOPOLOGY_API_VERSION}",
        **body,
        "$defs": {name: defs[name] for name in sorted(defs)},
    }
