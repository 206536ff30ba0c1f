"""The language `topology/v1alpha1`: every section and key, as shapes with their meaning. The loader, the JSON Schema
for editors and the reference manual come from here.

`{source}`-like words in templates, selectors and secret references are checked here; what needs two places of the file
(an undeclared cluster, a flow id) is checked by rules.
"""

from __future__ import annotations

from typing import Any

from topology.language.cluster import CLUSTER
from topology.language.flow import DEFAULTS, FLOW
from topology.language.migration import MIGRATION
from topology.language.pattern import PATTERN
from topology.language.scalars import NAME, NAME_TEXT, TEXT, matching, word
from topology.shapes import Key, ListOf, MapOf, Record

API_VERSION = "topology/v1alpha1"
KIND = "Topology"
TOPOLOGY = Record(
    {
        "apiVersion": Key(word(API_VERSION), "The version of the language."),
        "kind": Key(word(KIND), "What this document is."),
        "metadata": Key(
            Record(
                {
                    "name": Key(NAME, "The topology's name; files of one folder with one name form one topology."),
                    "owner": Key(TEXT, "Who is called when it breaks."),
                    "description": Key(TEXT, "One or two sentences."),
                    "labels": Key(MapOf(TEXT), "Your own words, for your own tools."),
                },
                required=("name",),
            ),
            "What the topology is called and whose it is.",
        ),
        "clusters": Key(
            MapOf(
                CLUSTER,
                matching(NAME_TEXT, "an alias of lower-case letters, digits and `-`", 40),
                names={"pattern": f"^{NAME_TEXT.pattern}$", "maxLength": 40},
            ),
            "Every cluster once, under an alias that says what it is, not where it is seen from.",
        ),
        "defaults": Key(DEFAULTS, "Lies under every flow; key by key, lists replace."),
        "pattern": Key(PATTERN, "One shape that expands to flows."),
        "flows": Key(ListOf(FLOW), "Flows of their own, or changes to a pattern's flow with the same id."),
        "migration": Key(MIGRATION, "Moving the applications."),
    },
    required=("apiVersion", "kind", "metadata", "clusters"),
)


def json_schema() -> dict[str, Any]:
    """The whole language as JSON Schema 2020-12."""
    defs: dict[str, Any] = {}
    body = TOPOLOGY.schema(defs)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://watershed.invalid/schema/topology-v1alpha1.json",
        "title": "Watershed topology",
        "description": f"apiVersion {API_VERSION}",
        **body,
        "$defs": {name: defs[name] for name in sorted(defs)},
    }
