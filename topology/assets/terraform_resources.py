"""Assets as Terraform's JSON configuration, for the community provider `Mongey/kafka`, which speaks to any Kafka.

Which arguments there are: the provider's documentation (kafka_topic, kafka_acl, kafka_quota, kafka_quota_composite,
kafka_user_scram_credential). In JSON, too, texts are templates: `${` and `%{` are doubled (Terraform, "JSON
Configuration Syntax", Expression Mapping).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from watershed.topology.acl_translation import render_operation
from watershed.topology.assets.asset_files import AssetFiles
from watershed.topology.assets.asset_names import build_resource_names
from watershed.topology.assets.target_assets import (
    AssetQuota,
    AssetTopic,
    AssetUser,
    LeftOutAsset,
    TargetAssets,
    keep_acls,
)
from watershed.topology.inventory import InventoryAcl
from watershed.topology.plan import PlanCluster

_PROVIDER: Final = "Mongey/kafka"
_RESOURCES: Final = {"TOPIC": "Topic", "GROUP": "Group", "CLUSTER": "Cluster", "TRANSACTIONAL_ID": "TransactionalID"}
_PATTERNS: Final = {"LITERAL": "Literal", "PREFIXED": "Prefixed"}
_PERMISSIONS: Final = {"ALLOW": "Allow", "DENY": "Deny"}
_OPERATIONS: Final = frozenset(
    {
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
    }
)
_MECHANISMS: Final = {"PLAIN": "plain", "SCRAM-SHA-256": "scram-sha256", "SCRAM-SHA-512": "scram-sha512"}
_LEAST_ITERATIONS: Final = 4096  # the provider refuses less
_PASSWORDS: Final = "scram_passwords"


def write_terraform_resources(assets: TargetAssets) -> AssetFiles:
    """One file a kind, and one with the provider. Topics that are there get an import block, and none is destroyed."""
    left: list[LeftOutAsset] = []
    labels = build_resource_names((topic.name for topic in assets.topics), "identifier")
    users = [user for user in assets.users if user.mechanisms.keys() - user.existing]
    blocks: dict[str, dict[str, Any]] = {
        "topics.tf.json": _wrap("kafka_topic", {labels[each.name]: _build_topic(each) for each in assets.topics}),
        "users.tf.json": _wrap("kafka_user_scram_credential", _build_users(assets, left)),
        "acls.tf.json": _wrap("kafka_acl", _build_acls(assets, left)),
        "quotas.tf.json": _build_quotas(assets.quotas),
        "imports.tf.json": _build_imports(assets.topics, labels),
    }
    files = {"provider.tf.json": _build_provider(assets.cluster, with_passwords="resource" in blocks["users.tf.json"])}
    files |= {name: block for name, block in blocks.items() if block}
    return AssetFiles(
        {name: json.dumps(block, indent=2, ensure_ascii=False) + "\n" for name, block in files.items()},
        tuple(_list_steps(blocks)),
        tuple(_list_blanks(assets.cluster, users)),
        tuple(left),
    )


def escape_template(text: str) -> str:
    """The text as a template that gives exactly it."""
    return text.replace("${", "$${").replace("%{", "%%{")


def _wrap(kind: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    return {"resource": {kind: dict(resources)}} if resources else {}


def _build_provider(cluster: PlanCluster, *, with_passwords: bool) -> dict[str, Any]:
    security = cluster.security
    provider: dict[str, Any] = {
        "bootstrap_servers": "${var.bootstrap_servers}",
        "tls_enabled": security.protocol.endswith("SSL"),
    }
    if security.mechanism in _MECHANISMS:
        provider["sasl_mechanism"] = _MECHANISMS[security.mechanism]
    default = [escape_template(each) for each in cluster.bootstrap]
    variables: dict[str, Any] = {"bootstrap_servers": {"type": "list(string)", "default": default}}
    if with_passwords:
        described = "User name → password. Ephemeral: it is in no plan and in no state."
        variables[_PASSWORDS] = {
            "type": "map(string)", "sensitive": True, "ephemeral": True, "description": described,
        }  # fmt: skip
    # Ephemeral variables came with 1.10, write-only arguments and `import` with plans before.
    terraform = {"required_version": ">= 1.11", "required_providers": {"kafka": {"source": _PROVIDER}}}
    return {"terraform": terraform, "provider": {"kafka": provider}, "variable": variables}


def _build_topic(topic: AssetTopic) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": escape_template(topic.name),
        "partitions": topic.partitions,
        "replication_factor": topic.replicas,
    }
    if topic.configs:
        configs = sorted(topic.configs.items())
        found["config"] = {escape_template(key): escape_template(value) for key, value in configs}
    # A change that the provider cannot make in place would delete the topic with its records.
    return found | {"lifecycle": {"prevent_destroy": True}}


def _build_users(assets: TargetAssets, left: list[LeftOutAsset]) -> dict[str, Any]:
    wanted = []
    for user in assets.users:
        for mechanism, iterations in user.mechanisms.items():
            if mechanism in user.existing:
                why = f"{assets.cluster.alias} has this user: its password stays as it is"
                left.append(LeftOutAsset("users", f"{mechanism} of user {user.name}", why))
            else:
                wanted.append((user.name, mechanism, iterations))
    labels = build_resource_names((f"{name}_{mechanism}" for name, mechanism, _ in wanted), "identifier")
    return {
        labels[f"{name}_{mechanism}"]: {
            "username": escape_template(name),
            "scram_mechanism": mechanism,
            "scram_iterations": max(iterations, _LEAST_ITERATIONS),
            "password_wo": f"${{var.{_PASSWORDS}[{_quote_text(name)}]}}",
            "password_wo_version": "1",
        }
        for name, mechanism, iterations in wanted
    }


def _quote_text(text: str) -> str:
    """A text inside an expression, whose quotes JSON escapes again. HCL's escapes are JSON's."""
    return json.dumps(escape_template(text), ensure_ascii=False)


def _build_acls(assets: TargetAssets, left: list[LeftOutAsset]) -> dict[str, Any]:
    found = {}
    for acl in keep_acls(assets.acls, _find_acl_problem, left):
        found[_label_acl(acl)] = {
            "resource_name": escape_template(acl.name),
            "resource_type": _RESOURCES[acl.resource],
            "resource_pattern_type_filter": _PATTERNS[acl.pattern],
            "acl_principal": escape_template(acl.principal),
            "acl_host": escape_template(acl.host),
            "acl_operation": render_operation(acl.operation),
            "acl_permission_type": _PERMISSIONS[acl.permission],
        }
    labels = build_resource_names(found, "identifier")
    return {labels[key]: each for key, each in found.items()}


def _find_acl_problem(acl: InventoryAcl) -> str:
    if acl.resource not in _RESOURCES or acl.pattern not in _PATTERNS or acl.permission not in _PERMISSIONS:
        return "the provider has no such kind of resource, pattern or permission"
    if render_operation(acl.operation) not in _OPERATIONS:
        return f"the provider has no operation {render_operation(acl.operation)}"
    return ""


def _label_acl(acl: InventoryAcl) -> str:
    """Every field, so that two ACLs never share a label; readable from the left."""
    pattern = "prefix" if acl.pattern == "PREFIXED" else acl.pattern.lower()
    return "|".join((acl.principal, acl.operation, acl.resource, acl.name, pattern, acl.permission, acl.host))


def _build_quotas(quotas: tuple[AssetQuota, ...]) -> dict[str, Any]:
    single: dict[str, Any] = {}
    composite: dict[str, Any] = {}
    for quota in quotas:
        key = json.dumps(quota.entity)
        config = dict(sorted(quota.limits.items()))
        parts = [
            {"type": kind} | ({} if name is None else {"name": escape_template(name)}) for kind, name in quota.entity
        ]
        if len(parts) > 1:
            composite[key] = {"entity": parts, "config": config}
        else:
            entity = {f"entity_{field}": value for field, value in parts[0].items()}
            single[key] = entity | {"config": config}
    resources: dict[str, Any] = {}
    for kind, found in (("kafka_quota", single), ("kafka_quota_composite", composite)):
        if found:
            labels = build_resource_names(found, "identifier")
            resources[kind] = {labels[key]: each for key, each in found.items()}
    return {"resource": resources} if resources else {}


def _build_imports(topics: tuple[AssetTopic, ...], labels: Mapping[str, str]) -> dict[str, Any]:
    there = [topic for topic in topics if topic.exists]
    blocks = [{"to": f"kafka_topic.{labels[each.name]}", "id": escape_template(each.name)} for each in there]
    return {"import": blocks} if blocks else {}


def _list_steps(blocks: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "Have Terraform 1.11 or newer. Keep this folder where your state is kept."
    yield "`terraform init`"
    yield "`terraform plan -out=assets.tfplan`, and read it: nothing may be destroyed or replaced."
    yield "`terraform apply -parallelism=1 assets.tfplan`"
    if blocks["acls.tf.json"]:
        yield (
            "Terraform keeps no order among ACLs. If the cluster serves clients already, apply the denials first: "
            "`--as scripts` does so."
        )
    if "kafka_quota_composite" in blocks["quotas.tf.json"].get("resource", {}):
        yield "Limits of a user together with a client id need a release of the provider with `kafka_quota_composite`."


def _list_blanks(cluster: PlanCluster, users: list[AssetUser]) -> Iterator[str]:
    security = cluster.security
    if security.mechanism is not None:
        yield "`KAFKA_SASL_USERNAME` and `KAFKA_SASL_PASSWORD` in the environment: an administrator's account"
        if security.mechanism not in _MECHANISMS:
            yield f"`sasl_mechanism` in `provider.tf.json`: how the provider calls {security.mechanism}"
    if security.protocol.endswith("SSL"):
        yield "`KAFKA_CA_CERT` in the environment, unless a public authority signed the brokers' certificates"
    for user in users:
        yield f"variable `{_PASSWORDS}` (by `TF_VAR_{_PASSWORDS}`, as JSON): the password of user {user.name}"
