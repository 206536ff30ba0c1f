"""OpenLineage's schema as JSON Schema, made of the classes that its Python client generates from the specification.

The client carries no JSON files. Its classes (`openlineage.client.generated`) are written by a generator from
spec/OpenLineage.json and spec/facets/*.json, and each names its definition there (`_get_schema`). An event in JSON is
held against what they say: which keys there must be, and of which type. More keys are allowed, as in the specification.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import types
from collections.abc import Iterator, Mapping
from enum import EnumMeta
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

import attr
import jsonschema
from openlineage.client import generated
from openlineage.client.generated.base import BaseFacet, RunEvent

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
Schema = dict[str, Any]


@cache
def list_classes() -> frozenset[type]:
    """All that the client generates."""
    inside = f"{generated.__name__}."
    modules = [importlib.import_module(inside + each.name) for each in pkgutil.iter_modules(generated.__path__)]
    found = (each for module in modules for each in vars(module).values() if isinstance(each, type) and attr.has(each))
    return frozenset(each for each in found if each.__module__.startswith(inside))


@cache
def list_definitions() -> dict[str, type]:
    """Class by the address of its definition, without the version: `BaseFacet.json#/$defs/BaseFacet`."""
    return {_address(kind._get_schema()): kind for kind in list_classes() if hasattr(kind, "_get_schema")}


def _address(url: str) -> str:
    return url.rpartition("/spec/")[2].rpartition(".json")[0].rpartition("/")[2] + url.partition(".json")[2]


def describe_type(kind: Any) -> Schema:
    """The schema of an annotation."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if origin in (Union, types.UnionType):
        return {"anyOf": [describe_type(each) for each in inner]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is list:
        return {"type": "array", "items": describe_type(inner[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": describe_type(inner[1])}
    if kind is type(None):
        return {"type": "null"}
    if isinstance(kind, EnumMeta):
        return {"enum": [each.value for each in kind]}  # type: ignore[var-annotated]
    return {"type": _PLAIN[kind]} if kind in _PLAIN else {"$ref": f"#/$defs/{kind.__module__}.{kind.__name__}"}


@cache
def build_definitions() -> dict[str, Schema]:
    """The schema of every class, by what a `$ref` calls it."""
    return {f"{kind.__module__}.{kind.__name__}": describe_class(kind) for kind in list_classes()}


@cache
def find_validator(kind: type) -> jsonschema.Draft202012Validator:
    """One for each class: to prepare it costs more than to use it."""
    return jsonschema.Draft202012Validator({**describe_type(kind), "$defs": build_definitions()})


def describe_class(kind: type) -> Schema:
    """The schema of a generated class. A field without a default is required, as are producer and schema of a facet."""
    attr.resolve_types(kind)
    fields = attr.fields(kind)
    required = [each.name for each in fields if each.default is attr.NOTHING]
    if issubclass(kind, BaseFacet):
        required += ["_producer", "_schemaURL"]
    return {
        "type": "object",
        "required": required,
        "properties": {each.name: describe_type(each.type) for each in fields},
    }


def check_event(event: Mapping[str, Any]) -> list[str]:
    """The names of the facets in an event, each held against its own definition. Raises ValidationError."""
    find_validator(RunEvent).validate(event)
    found = []
    for name, facet in list_facets(event):
        found.append(name)
        kind = list_definitions().get(
            _address(facet["_schemaURL"]), BaseFacet
        )  # Airflow's own facets are no part of it
        find_validator(kind).validate(facet)
    return found


def list_facets(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every facet of an event, by its key."""
    if isinstance(value, list):
        for each in value:
            yield from list_facets(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if isinstance(each, dict) and "_schemaURL" in each:
                yield key, each
            else:
                yield from list_facets(each)


def read_events(text: str) -> list[dict[str, Any]]:
    """What the file transport has written: an event a line."""
    return [json.loads(line) for line in text.splitlines()]
