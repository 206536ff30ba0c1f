"""What Strimzi's CRDs of KafkaTopic and KafkaUser (kafka.strimzi.io/v1) accept, as far as `topology assets` writes it.

Strimzi publishes the CRDs as install files only, in no package that can be fetched here. Names, types, required fields
and words are facts of those files: 043-Crd-kafkatopic.yaml and 044-Crd-kafkauser.yaml in
packaging/install/cluster-operator of strimzi/strimzi-kafka-operator. Fields that we never write are left out, so that a
misspelt one is refused.
"""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 1}
_AMOUNT = {"type": "integer", "minimum": 0}
_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)} if required else {
        "type": "object",
        "properties": properties,
    }  # fmt: skip


TOPIC_SPEC = _object(
    {
        "topicName": _TEXT,
        "partitions": _COUNT,
        "replicas": _COUNT | {"maximum": 32767},
        "config": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
)
_SECRET_KEY = _object({"name": _TEXT, "key": _TEXT, "optional": {"type": "boolean"}})
_AUTHENTICATION = _object(
    {
        "type": {"type": "string", "enum": ["tls", "tls-external", "scram-sha-512"]},
        "password": _object({"valueFrom": _object({"secretKeyRef": _SECRET_KEY})}, "valueFrom"),
    },
    "type",
)
_OPERATIONS = [
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "AlterConfigs",
    "DescribeConfigs",
    "IdempotentWrite",
    "All",
]
_RULE = _object(
    {
        "type": {"type": "string", "enum": ["allow", "deny"]},
        "resource": _object(
            {
                "type": {"type": "string", "enum": ["topic", "group", "cluster", "transactionalId"]},
                "name": _TEXT,
                "patternType": {"type": "string", "enum": ["literal", "prefix"]},
            },
            "type",
        ),
        "host": _TEXT,
        "operations": {"type": "array", "items": {"type": "string", "enum": _OPERATIONS}},
    },
    "resource",
    "operations",
)
USER_SPEC = _object(
    {
        "authentication": _AUTHENTICATION,
        "authorization": _object(
            {"type": {"type": "string", "enum": ["simple"]}, "acls": {"type": "array", "items": _RULE}}, "acls", "type"
        ),
        "quotas": _object(
            {
                "producerByteRate": _AMOUNT,
                "consumerByteRate": _AMOUNT,
                "requestPercentage": _AMOUNT,
                "controllerMutationRate": {"type": "number", "minimum": 0},
            }
        ),
    }
)
SPECS = {"KafkaTopic": TOPIC_SPEC, "KafkaUser": USER_SPEC}


def build_resource_schema(kind: str) -> dict[str, Any]:
    """JSON Schema of a whole resource, which knows no other fields than those above."""
    metadata = _object(
        {
            "name": {"type": "string", "maxLength": 253, "pattern": _SUBDOMAIN},
            "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}},
        },
        "name",
    )
    whole = {
        "apiVersion": {"const": "kafka.strimzi.io/v1"},
        "kind": {"const": kind},
        "metadata": metadata,
        "spec": SPECS[kind],
    }
    closed: dict[str, Any] = _close(_object(whole, *whole))
    return closed


def build_crd(kind: str) -> dict[str, Any]:
    """The CustomResourceDefinition, for a real API server."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": _object({"spec": SPECS[kind]}, "spec")}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.kafka.strimzi.io"},
        "spec": {
            "group": "kafka.strimzi.io",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def _close(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_close(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _close(value) for key, value in schema.items()}
    if "properties" in schema and isinstance(schema["properties"], dict):
        closed["additionalProperties"] = False
    return closed
