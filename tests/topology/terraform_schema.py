"""What Terraform's provider `Mongey/kafka` accepts, as JSON Schema of Terraform's JSON syntax.

The provider itself cannot be fetched here. Arguments, types and words are facts of its documentation and its schema
(docs/resources/*.md, kafka/resource_kafka_*.go and kafka/kafka_acls.go of Mongey/terraform-provider-kafka).
"""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string", "minLength": 1}
_OPERATIONS = [
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
]
_NUMBERS = {"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 1}


def _object(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    required = sorted(properties.keys() - set(optional))
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_RESOURCES = {
    "kafka_topic": _object(
        {
            "name": _TEXT,
            "partitions": {"type": "integer", "minimum": 1},
            "replication_factor": {"type": "integer", "minimum": 1},
            "config": {"type": "object", "additionalProperties": {"type": "string"}},
            "lifecycle": {"const": {"prevent_destroy": True}},
        },
        "config",
    ),
    "kafka_acl": _object(
        {
            "resource_name": _TEXT,
            "resource_type": {"enum": ["Topic", "Group", "Cluster", "TransactionalID"]},
            "resource_pattern_type_filter": {"enum": ["Literal", "Prefixed"]},
            "acl_principal": _TEXT,
            "acl_host": _TEXT,
            "acl_operation": {"enum": _OPERATIONS},
            "acl_permission_type": {"enum": ["Allow", "Deny"]},
        }
    ),
    "kafka_quota": _object(
        {"entity_type": {"enum": ["client-id", "user", "ip"]}, "entity_name": _TEXT, "config": _NUMBERS}, "entity_name"
    ),
    "kafka_quota_composite": _object(
        {
            "entity": {
                "type": "array",
                "minItems": 2,
                "maxItems": 2,
                "items": _object({"type": {"enum": ["client-id", "user"]}, "name": _TEXT}, "name"),
            },
            "config": _NUMBERS,
        }
    ),
    "kafka_user_scram_credential": _object(
        {
            "username": _TEXT,
            "scram_mechanism": {"enum": ["SCRAM-SHA-256", "SCRAM-SHA-512"]},
            "scram_iterations": {"type": "integer", "minimum": 4096},
            "password_wo": {"type": "string", "pattern": r"^\$\{var\.scram_passwords\[.*\]\}$"},
            "password_wo_version": _TEXT,
        }
    ),
}
_LABELS = {"pattern": "^[A-Za-z_][A-Za-z0-9_-]*$"}
_PROVIDER = _object(
    {
        "bootstrap_servers": {"const": "${var.bootstrap_servers}"},
        "tls_enabled": {"type": "boolean"},
        "sasl_mechanism": {"enum": ["plain", "scram-sha256", "scram-sha512"]},
    },
    "sasl_mechanism",
)
TERRAFORM_SCHEMA = _object(
    {
        "terraform": {"type": "object"},
        "provider": _object({"kafka": _PROVIDER}),
        "variable": {"type": "object", "propertyNames": _LABELS},
        "import": {"type": "array", "items": _object({"to": _TEXT, "id": _TEXT})},
        "resource": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                kind: {"type": "object", "propertyNames": _LABELS, "additionalProperties": each}
                for kind, each in _RESOURCES.items()
            },
        },
    },
    *("terraform", "provider", "variable", "import", "resource"),
)
