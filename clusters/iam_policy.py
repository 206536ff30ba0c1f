"""The rights of a role as an IAM policy for Amazon MSK.

Actions, what each needs beside it, and resources: Amazon MSK Developer Guide, "Semantics of IAM authorization policy
actions and resources". An action stands for one of Kafka's operations on one kind of resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from watershed.clusters.required_role_acls import RequiredRight
from watershed.topology.msk_arn import MskArn

POLICY_LIMIT = 6144  # characters of a managed policy, white space not counted (IAM and STS quotas)
_KINDS = {"TOPIC": "topic", "GROUP": "group", "CLUSTER": "cluster", "TRANSACTIONAL_ID": "transactional-id"}
# each with those that it needs on the same resource; all need Connect on the cluster
_ACTIONS: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        ("TOPIC", "READ"): ("DescribeTopic", "ReadData"),
        ("TOPIC", "WRITE"): ("DescribeTopic", "WriteData"),
        ("TOPIC", "CREATE"): ("CreateTopic",),
        ("TOPIC", "DELETE"): ("DeleteTopic", "DescribeTopic"),
        ("TOPIC", "DESCRIBE"): ("DescribeTopic",),
        ("TOPIC", "ALTER"): ("AlterTopic", "DescribeTopic"),
        ("TOPIC", "DESCRIBE_CONFIGS"): ("DescribeTopicDynamicConfiguration",),
        ("TOPIC", "ALTER_CONFIGS"): ("AlterTopicDynamicConfiguration", "DescribeTopicDynamicConfiguration"),
        ("GROUP", "READ"): ("AlterGroup", "DescribeGroup"),
        ("GROUP", "DELETE"): ("DeleteGroup", "DescribeGroup"),
        ("GROUP", "DESCRIBE"): ("DescribeGroup",),
        ("CLUSTER", "DESCRIBE"): ("DescribeCluster",),
        ("CLUSTER", "ALTER"): ("AlterCluster", "DescribeCluster"),
        ("CLUSTER", "DESCRIBE_CONFIGS"): ("DescribeClusterDynamicConfiguration",),
        ("CLUSTER", "ALTER_CONFIGS"): ("AlterClusterDynamicConfiguration", "DescribeClusterDynamicConfiguration"),
        ("TRANSACTIONAL_ID", "WRITE"): ("AlterTransactionalId", "DescribeTransactionalId"),
        ("TRANSACTIONAL_ID", "DESCRIBE"): ("DescribeTransactionalId",),
    }
)
_IDEMPOTENT_WRITERS = ("WriteData", "AlterTransactionalId")


@dataclass(frozen=True, slots=True)
class IamPolicy:
    """document: the policy, as IAM takes it. left_out: rights for which IAM has no action. optional: rights that are
    not in it, for there is another way without them. wider: rights in it that cover more than the file selects."""

    document: dict[str, Any]
    left_out: tuple[RequiredRight, ...] = ()
    optional: tuple[RequiredRight, ...] = ()
    wider: tuple[RequiredRight, ...] = ()


def build_iam_policy(needed: Iterable[RequiredRight], arns: Mapping[str, MskArn]) -> IamPolicy:
    """Of the rights on these clusters (ARN by alias); rights on others are not looked at.

    Optional rights are left out: ALTER on the cluster, say, lets a role write ACLs for anybody.
    """
    actions: dict[str, set[str]] = {}
    left_out, here = [], [right for right in needed if right.cluster in arns]
    for right in here:
        if right.optional:
            continue
        arn = arns[right.cluster]
        cluster = actions.setdefault(arn.name_resource("cluster"), {"Connect"})
        allowed = _ACTIONS.get((right.resource, right.operation))
        if allowed is None:
            left_out.append(right)
            continue
        actions.setdefault(_name(arn, right), set()).update(allowed)
        if any(each in _IDEMPOTENT_WRITERS for each in allowed):
            cluster.add("WriteDataIdempotently")
    return IamPolicy(
        {"Version": "2012-10-17", "Statement": _group_statements(actions)},
        tuple(left_out),
        tuple(right for right in here if right.optional),
        tuple(right for right in here if right.wider and not right.optional),
    )


def _name(arn: MskArn, right: RequiredRight) -> str:
    kind = _KINDS[right.resource]
    if right.resource == "CLUSTER":
        return arn.name_resource(kind)
    if right.name == "*" and right.pattern == "LITERAL":
        return arn.name_resource(kind, "*")
    return arn.name_resource(kind, _escape(right.name) + ("*" if right.pattern == "PREFIXED" else ""))


def _escape(name: str) -> str:
    """IAM's wildcards in a name, as themselves (IAM User Guide, "Policy variables", special characters)."""
    return "".join(f"${{{each}}}" if each in "*?$" else each for each in name)


def _group_statements(actions: Mapping[str, set[str]]) -> list[dict[str, Any]]:
    """One statement for all resources with the same actions, for a policy has a limit."""
    resources: dict[tuple[str, ...], list[str]] = {}
    for resource, allowed in sorted(actions.items()):
        resources.setdefault(tuple(sorted(allowed)), []).append(resource)
    return [
        {
            "Sid": f"Watershed{number}",
            "Effect": "Allow",
            "Action": [f"kafka-cluster:{each}" for each in allowed],
            "Resource": names,
        }
        for number, (allowed, names) in enumerate(sorted(resources.items(), key=lambda each: each[1]), 1)
    ]
