"""JSON Schema of an inventory, made from the dataclasses of `topology.inventory` as the document itself is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

from watershed.topology.inventory import InventoryCluster
from watershed.topology.inventory_json import (
    INVENTORY_KEY_FIELDS,
    INVENTORY_KIND,
    INVENTORY_LATER_FIELDS,
    INVENTORY_SCHEMA_VERSION,
)

_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def build_inventory_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of the document."""
    cluster = build_value_schema(InventoryCluster)
    topic = cluster["properties"]["topics"]["additionalProperties"]
    topic["properties"]["configs"] = {
        "type": "object",
        "description": "What differs from the cluster's topic_configs; null: the topic does not have that key.",
        "additionalProperties": {"type": ["string", "null"]},
    }
    cluster["properties"]["topic_configs"] = {
        "type": "object",
        "description": "The value of each topic config that most topics of the cluster have.",
        "additionalProperties": {"type": "string"},
    }
    cluster["required"] = sorted([*cluster["required"], "topic_configs"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Watershed inventory",
        "description": "What `topology scan` saw of clusters. Times are ms since 1970, sizes bytes, rates B/s.",
        "type": "object",
        "properties": {
            "schema": {"const": INVENTORY_SCHEMA_VERSION},
            "kind": {"const": INVENTORY_KIND},
            "taken": {"type": ["string", "null"], "description": "When the first cluster was looked at, RFC 3339."},
            "clusters": {"type": "object", "description": "By alias.", "additionalProperties": cluster},
            "missing": {
                "type": "object",
                "description": "Why the last scan could not read other clusters, by alias.",
                "additionalProperties": {"type": "string"},
            },
        },
        "required": ["clusters", "kind", "schema", "taken"],
        "additionalProperties": False,
    }


def build_value_schema(kind: Any) -> dict[str, Any]:
    """The schema of what `topology.inventory_json.encode_value` makes of a value of this type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _TYPES:
        return {"type": _TYPES[kind]}
    if origin is tuple:
        return {"type": "array", "items": build_value_schema(arguments[0])}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        names = {"propertyNames": {"pattern": "^[0-9]+$"}} if arguments[0] is int else {}
        return {"type": "object", "additionalProperties": build_value_schema(arguments[1]), **names}
    if type(None) in arguments:
        [inner] = [build_value_schema(each) for each in arguments if each is not type(None)]
        if set(inner) == {"type"}:
            return {"type": [inner["type"], "null"]}
        return {"anyOf": [inner, {"type": "null"}]}
    hints, keyed = get_type_hints(kind), INVENTORY_KEY_FIELDS.get(kind.__name__)
    properties = {each.name: build_value_schema(hints[each.name]) for each in fields(kind) if each.name != keyed}
    return {
        "type": "object",
        "description": " ".join((kind.__doc__ or "").split()),
        "properties": properties,
        "required": sorted(properties.keys() - INVENTORY_LATER_FIELDS.get(kind.__name__, frozenset())),
        "additionalProperties": False,
    }
