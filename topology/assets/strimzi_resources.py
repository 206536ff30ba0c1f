"""Assets as Strimzi's custom resources: KafkaTopic and KafkaUser (kafka.strimzi.io/v1, Strimzi 0.49 and newer).

Which fields there are, and which values they take: Strimzi's CRDs of KafkaTopic and KafkaUser. A KafkaUser has no field
for a name that is not its own in 0.50, so users whose names Kubernetes does not take are left out, by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from watershed.topology.acl_translation import render_operation
from watershed.topology.assets.acl_grouping import group_acls
from watershed.topology.assets.asset_files import AssetFiles
from watershed.topology.assets.asset_names import build_resource_names, is_kubernetes_name
from watershed.topology.assets.target_assets import (
    AssetQuota,
    AssetTopic,
    LeftOutAsset,
    TargetAssets,
    keep_acls,
    render_quota_key,
)
from watershed.topology.interop.yaml_document import render_yaml_document
from watershed.topology.inventory import InventoryAcl

_API_VERSION: Final = "kafka.strimzi.io/v1"
_RESOURCES: Final = {"TOPIC": "topic", "GROUP": "group", "CLUSTER": "cluster", "TRANSACTIONAL_ID": "transactionalId"}
_OPERATIONS: Final = frozenset(
    {
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
    }
)
_PATTERNS: Final = {"LITERAL": "literal", "PREFIXED": "prefix"}
_LIMITS: Final = {
    "producer_byte_rate": "producerByteRate",
    "consumer_byte_rate": "consumerByteRate",
    "request_percentage": "requestPercentage",
    "controller_mutation_rate": "controllerMutationRate",
}
_FRACTIONS: Final = frozenset({"controllerMutationRate"})  # the other limits are whole numbers there
_SCRAM: Final = "SCRAM-SHA-512"
_HOLDER: Final = "watershed-passwords"  # of the secret with all passwords
_USER: Final = "User:"
_CERTIFICATE: Final = "CN="
_UNTOUCHED: Final = ("*", "ANONYMOUS")  # names that the User Operator leaves to kafka-acls (Strimzi 0.13)


@dataclass(slots=True)
class _User:
    """What one KafkaUser says."""

    authentication: dict[str, Any] = field(default_factory=dict)
    acls: list[InventoryAcl] = field(default_factory=list)
    quotas: dict[str, float | int] = field(default_factory=dict)


def write_strimzi_resources(assets: TargetAssets, kafka: str) -> AssetFiles:
    """kafka: the name of the Kafka resource, which is the label `strimzi.io/cluster`."""
    left: list[LeftOutAsset] = []
    names = build_resource_names((topic.name for topic in assets.topics), "kubernetes")
    topics = [_build_topic(topic, names[topic.name], kafka) for topic in assets.topics]
    users = _collect_users(assets, left)
    resources = [_build_user(name, user, kafka) for name, user in sorted(users.items())]
    files = {}
    if topics:
        files["1-topics.yaml"] = _render_documents(topics)
    if resources:
        files["2-users.yaml"] = _render_documents(resources)
    held = [name for name, user in sorted(users.items()) if "password" in user.authentication]
    secret = _name_secret(assets)
    to_fill = [f"secret `{secret}`, key `{name}`: the password of user {name}" for name in held]
    return AssetFiles(files, tuple(_list_steps(files, secret if held else "")), tuple(to_fill), tuple(left))


def _render_documents(resources: Iterable[dict[str, Any]]) -> str:
    return "".join(f"---\n{render_yaml_document(each)}" for each in resources)


def _build_resource(kind: str, name: str, kafka: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"strimzi.io/cluster": kafka}}
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _build_topic(topic: AssetTopic, name: str, kafka: str) -> dict[str, Any]:
    spec: dict[str, Any] = {} if name == topic.name else {"topicName": topic.name}
    spec |= {"partitions": topic.partitions, "replicas": topic.replicas}
    if topic.configs:
        spec["config"] = dict(sorted(topic.configs.items()))
    return _build_resource("KafkaTopic", name, kafka, spec)


def _collect_users(assets: TargetAssets, left: list[LeftOutAsset]) -> dict[str, _User]:
    """By the name of the resource."""
    found: dict[str, _User] = {}
    secret = _name_secret(assets)
    for user in assets.users:
        what = f"user {user.name}"
        for mechanism in user.mechanisms:
            if mechanism != _SCRAM:
                left.append(LeftOutAsset("users", f"{mechanism} of {what}", f"Strimzi makes {_SCRAM} only"))
        if _SCRAM not in user.mechanisms:
            continue
        if why := _find_user_problem(user.name):
            left.append(LeftOutAsset("users", what, why))
            continue
        held = {"name": secret, "key": user.name}
        password = {"valueFrom": {"secretKeyRef": held}}
        found.setdefault(user.name, _User()).authentication = {"type": "scram-sha-512", "password": password}
    plain = _list_plain_names(assets)
    for acl in keep_acls(assets.acls, lambda each: _find_acl_problem(each, plain), left):
        user_of_acl = acl.principal.removeprefix(_USER)
        _find_or_add_user(found, _name_user(user_of_acl, plain)[0], user_of_acl).acls.append(acl)
    for quota in assets.quotas:
        _add_quota(quota, found, left, plain)
    for name in [name for name, user in found.items() if not user.authentication and name in assets.with_password]:
        del found[name]
        why = (
            f"{assets.cluster.alias} has this user with a password, and a KafkaUser without it would take it away; "
            "carry the user, too (`sync.users`), or `--as scripts`"
        )
        left.append(LeftOutAsset("acls", f"rights and limits of user {name}", why))
    return found


def _list_plain_names(assets: TargetAssets) -> frozenset[str]:
    """Users who are known by these names themselves, not by a certificate."""
    names = {user.name for user in assets.users}
    names |= {acl.principal.removeprefix(_USER) for acl in assets.acls if acl.principal.startswith(_USER)}
    names |= {name for quota in assets.quotas for kind, name in quota.entity if kind == "user" and name is not None}
    return frozenset(names)


def _find_acl_problem(acl: InventoryAcl, plain: frozenset[str]) -> str:
    if not acl.principal.startswith(_USER):
        return "a KafkaUser is a principal `User:…`"
    if why := _name_user(acl.principal.removeprefix(_USER), plain)[1]:
        return why
    if acl.resource not in _RESOURCES or acl.pattern not in _PATTERNS:
        return "a KafkaUser has no rule for this kind of resource or pattern"
    if render_operation(acl.operation) not in _OPERATIONS:
        return f"a KafkaUser has no operation {render_operation(acl.operation)}"
    return ""


def _add_quota(quota: AssetQuota, found: dict[str, _User], left: list[LeftOutAsset], plain: frozenset[str]) -> None:
    what = render_quota_key(quota.entity)
    [kind, user], *more = quota.entity
    if more or kind != "user" or user is None:
        why = "a KafkaUser limits one user only; `--as scripts` says it"
        left.append(LeftOutAsset("quotas", what, why))
        return
    name, problem = _name_user(user, plain)
    for key, value in sorted(quota.limits.items()):
        why = problem
        limit = _LIMITS.get(key, "")
        if not why and not limit:
            why = "a KafkaUser has no such limit"
        elif not why and limit not in _FRACTIONS and not value.is_integer():
            why = f"a KafkaUser takes whole numbers, this one is {value}"
        if why:
            left.append(LeftOutAsset("quotas", f"{key} of {what}", why))
        else:
            number = int(value) if value.is_integer() else value
            _find_or_add_user(found, name, user).quotas[limit] = number


def _find_or_add_user(found: dict[str, _User], name: str, user: str) -> _User:
    """A user that is known by a certificate gets `tls-external`: its rights are given to `CN=name`."""
    known = found.setdefault(name, _User())
    if user != name:
        known.authentication = {"type": "tls-external"}
    return known


def _name_user(user: str, plain: frozenset[str]) -> tuple[str, str]:
    """The resource's name, and why there is none (empty: there is one)."""
    if user.startswith(_CERTIFICATE) and is_kubernetes_name(user.removeprefix(_CERTIFICATE)):
        name = user.removeprefix(_CERTIFICATE)
        return name, f"user {name} and certificate {user} would be one KafkaUser" if name in plain else ""
    return user, _find_user_problem(user)


def _find_user_problem(user: str) -> str:
    if user in _UNTOUCHED:
        return "the User Operator leaves this name to kafka-acls; `--as scripts` says it"
    if not is_kubernetes_name(user):
        return "a KafkaUser is called like its user, and Kubernetes does not take this name; `--as scripts` says it"
    return ""


def _build_user(name: str, user: _User, kafka: str) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if user.authentication:
        spec["authentication"] = user.authentication
    if user.acls:
        spec["authorization"] = {"type": "simple", "acls": list(_build_rules(user.acls))}
    if user.quotas:
        spec["quotas"] = user.quotas
    return _build_resource("KafkaUser", name, kafka, spec)


def _build_rules(acls: list[InventoryAcl]) -> Iterator[dict[str, Any]]:
    for each in group_acls(acls):
        resource = {"type": _RESOURCES[each.resource]}
        if each.resource != "CLUSTER":
            resource |= {"name": each.name, "patternType": _PATTERNS[each.pattern]}
        rule = {"type": each.permission.lower(), "resource": resource, "operations": list(each.operations)}
        yield rule if each.host == "*" else rule | {"host": each.host}


def _name_secret(assets: TargetAssets) -> str:
    """The one secret that holds all passwords. The User Operator makes a secret called like each user: not that one."""
    name, users = _HOLDER, {user.name for user in assets.users} | {acl.principal for acl in assets.acls}
    while name in users or f"{_USER}{name}" in users:
        name = f"{name}-given"
    return name


def _list_steps(files: Iterable[str], secret: str) -> Iterator[str]:
    if secret:
        yield (
            "Write each user's password to a file of its name, in a folder `passwords`. Then `kubectl create secret "
            f"generic {secret} -n NAMESPACE --from-file=passwords/`. Users that are there keep theirs: give it."
        )
    for file in files:
        yield f"`kubectl apply --server-side -n NAMESPACE -f {file}`"
    yield (
        "The User Operator makes each user's rights, limits and password exactly as its KafkaUser says, and takes away "
        "those of users that have none. Look at `kafka-acls.sh --list` before the first apply."
    )
    yield "Deleting a KafkaTopic deletes the topic with its records."
