"""The clients of clusters as one JSON document (`topology clients` writes it, `topology report --clients` reads it),
and its schema; both follow the dataclasses of `topology.client_inventory`, as an inventory follows its own."""

from __future__ import annotations

import json
from typing import Any

from watershed.topology.client_inventory import ClientInventory, ClusterClients
from watershed.topology.errors import UnreadableInventory
from watershed.topology.inventory_json import DamagedValue, build_object_reader, encode_value
from watershed.topology.inventory_schema import build_value_schema

CLIENTS_SCHEMA_VERSION = 1
CLIENTS_KIND = "clients"

_READ_CLUSTER = build_object_reader(ClusterClients)


def encode_client_inventory(inventory: ClientInventory) -> str:
    """Canonical: sorted keys, newline at the end; the same clients give the same bytes."""
    document = {
        "schema": CLIENTS_SCHEMA_VERSION,
        "kind": CLIENTS_KIND,
        "clusters": encode_value(inventory.clusters),
    }
    return json.dumps(document, sort_keys=True, indent=1) + "\n"


def decode_client_inventory(text: str) -> ClientInventory:
    """The clients from the text of `encode_client_inventory`. Raises UnreadableInventory, with the path of what is
    wrong."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("kind") != CLIENTS_KIND:
        raise UnreadableInventory(
            f'this is no list of clients (JSON with "kind": "{CLIENTS_KIND}"); `topology clients -o` writes one'
        )
    if document.get("schema") != CLIENTS_SCHEMA_VERSION:
        raise UnreadableInventory(
            f"the list of clients has schema {document.get('schema')!r}, this Watershed reads "
            f"{CLIENTS_SCHEMA_VERSION}; write it again with it"
        )
    clusters: dict[str, ClusterClients] = {}
    found = document.get("clusters")
    if not isinstance(found, dict):
        raise UnreadableInventory("the list of clients is damaged: `clusters` must be an object by alias")
    for alias, value in sorted(found.items()):
        try:
            clusters[alias] = _READ_CLUSTER(alias, value)
        except DamagedValue as wrong:
            path = ".".join(["clusters", alias, *wrong.path])
            raise UnreadableInventory(
                f"the list of clients is damaged at {path}: {wrong.what}; correct it there, or begin a new file"
            ) from None
    return ClientInventory(clusters)


def build_client_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of the document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Watershed clients",
        "description": "What `topology clients` saw of the clients of clusters. Times are ms since 1970.",
        "type": "object",
        "properties": {
            "schema": {"const": CLIENTS_SCHEMA_VERSION},
            "kind": {"const": CLIENTS_KIND},
            "clusters": {
                "type": "object",
                "description": "By alias.",
                "additionalProperties": build_value_schema(ClusterClients),
            },
        },
        "required": ["clusters", "kind", "schema"],
        "additionalProperties": False,
    }
