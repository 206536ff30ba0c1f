"""Objects of Kubernetes judged by the descriptions of its releases, without a key that they do not have; and what a
NetworkPolicy lets through."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jsonschema import Draft202012Validator

from watershed.lab.kubernetes_documents import KubernetesDocuments

_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_KINDS = "x-kubernetes-group-version-kind"


def list_problems(documents: KubernetesDocuments, release: str, item: Mapping[str, Any]) -> list[str]:
    """Where an object is not what this release, or its custom resource's definition, takes. So is an unknown kind."""
    schema = find_schema(documents, release, item["apiVersion"], item["kind"])
    if schema is None:
        return [f"{item['apiVersion']} {item['kind']}: {release} does not know it"]
    where = f"{item['kind']} {item['metadata']['name']}"
    return [f"{where}: {each.json_path}: {each.message}" for each in Draft202012Validator(schema).iter_errors(item)]


def find_schema(documents: KubernetesDocuments, release: str, version: str, kind: str) -> dict[str, Any] | None:
    group, _, short = version.rpartition("/")
    for definition in documents.definitions:
        spec = definition["spec"]
        if (spec["group"], spec["names"]["kind"]) == (group, kind):
            served = next(each for each in spec["versions"] if each["name"] == short)
            return dict(close(served["schema"]["openAPIV3Schema"]))
    known = documents.releases[release]["definitions"]
    for name, each in known.items():
        if {"group": group, "version": short, "kind": kind} in each.get(_KINDS, []):
            quantity = {_QUANTITY: {"type": ["string", "number"]}}
            return {"$ref": f"#/definitions/{name}", "definitions": close(known) | quantity}
    return None


def close(schema: Any) -> Any:
    """A schema that takes no key that it does not name, as an API server with strict validation."""
    if isinstance(schema, list):
        return [close(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: close(value) for key, value in schema.items()}
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string") is True:
        return {"type": ["integer", "string"]}
    if isinstance(schema.get("properties"), dict) and schema.get("type", "object") == "object":
        found.setdefault("additionalProperties", False)
    return found


@dataclass(frozen=True)
class Place:
    """Who is at the other end: a pod (namespace and labels), or an address."""

    address: str = "192.0.2.1"
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)


def can_pass(
    policies: list[dict[str, Any]],
    pod: Mapping[str, str],
    direction: str,
    other: Place,
    port: Any,
    protocol: str = "TCP",
) -> bool:
    """Whether the policies let a pod with these labels reach the other end (`egress`), or be reached by it (`ingress`);
    by the specification of networking.k8s.io/v1. port: a number, or the name of the pod's own."""
    selecting = [
        each["spec"] for each in policies
        if is_selected(each["spec"]["podSelector"], pod) and direction.capitalize() in each["spec"]["policyTypes"]
    ]  # fmt: skip
    if not selecting:
        return True
    return any(
        _has_port(rule, port, protocol) and any(_is_peer(peer, other) for peer in peers)
        for spec in selecting
        for rule, peers in _list_rules(spec, direction)
    )


def is_selected(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    assert not selector.keys() - {"matchLabels"}, selector
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def _list_rules(spec: Mapping[str, Any], direction: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    for rule in spec.get(direction, []):
        assert rule["ports"], "a rule without ports opens all"
        peers = rule["to" if direction == "egress" else "from"]
        assert peers, "a rule without peers opens to all"
        yield rule, peers


def _has_port(rule: Mapping[str, Any], port: Any, protocol: str) -> bool:
    return any(each["port"] == port and each.get("protocol", "TCP") == protocol for each in rule["ports"])


def _is_peer(peer: Mapping[str, Any], other: Place) -> bool:
    if "ipBlock" in peer:
        network = ipaddress.ip_network(peer["ipBlock"]["cidr"])
        return not other.namespace and ipaddress.ip_address(other.address) in network
    named = peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": other.namespace}
    return named and is_selected(peer.get("podSelector", {}), other.labels)
