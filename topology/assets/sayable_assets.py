"""Keeps what no tool can be told out of every file. An inventory is a document that anyone can write."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from watershed.topology.assets.asset_names import find_name_problem
from watershed.topology.assets.target_assets import (
    AssetKind,
    AssetQuota,
    AssetTopic,
    AssetUser,
    LeftOutAsset,
    TargetAssets,
    keep_acls,
    render_quota_key,
)
from watershed.topology.inventory import InventoryAcl

# Kafka's own rule for topics (org.apache.kafka.common.internals.Topic), and the letters of its config keys and limits.
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}", re.ASCII)
_KEY: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_MECHANISM: Final = re.compile(r"SCRAM-SHA-(256|512)")


def keep_sayable(assets: TargetAssets) -> TargetAssets:
    """The assets without those that Kafka itself would refuse or no command can hold; these are in `left_out`."""
    left: list[LeftOutAsset] = []
    topics = tuple(_keep_topics(assets.topics, left))
    users = tuple(_keep_users(assets.users, left))
    acls = keep_acls(assets.acls, _find_acl_text_problem, left)
    quotas = tuple(_keep_quotas(assets.quotas, left))
    return replace(assets, topics=topics, users=users, acls=acls, quotas=quotas).leave_out(left)


def _keep_topics(topics: tuple[AssetTopic, ...], left: list[LeftOutAsset]) -> Iterator[AssetTopic]:
    for topic in topics:
        if not _TOPIC.fullmatch(topic.name):
            left.append(LeftOutAsset("topics", f"topic {topic.name}", "Kafka takes no topic of this name"))
            continue
        kept = {}
        for key, value in topic.configs.items():
            if _KEY.fullmatch(key) and "\0" not in value and not (value and find_name_problem(value)):
                kept[key] = value
            else:
                what = f"{key} of topic {topic.name}"
                left.append(LeftOutAsset("topics", what, "this is no key of Kafka's, or its value is no text"))
        yield replace(topic, configs=kept)


def _keep_users(users: tuple[AssetUser, ...], left: list[LeftOutAsset]) -> Iterator[AssetUser]:
    for user in users:
        if not _is_kept("users", f"user {user.name}", (user.name,), left):
            continue
        kept = {}
        for mechanism, iterations in user.mechanisms.items():
            if _MECHANISM.fullmatch(mechanism) and iterations > 0:
                kept[mechanism] = iterations
            else:
                left.append(LeftOutAsset("users", f"{mechanism} of user {user.name}", "Kafka has no such credential"))
        if kept:
            yield replace(user, mechanisms=kept)


def _keep_quotas(quotas: tuple[AssetQuota, ...], left: list[LeftOutAsset]) -> Iterator[AssetQuota]:
    for quota in quotas:
        names = tuple(name for _, name in quota.entity if name is not None)
        if not _is_kept("quotas", render_quota_key(quota.entity), names, left):
            continue
        kept = {}
        for key, value in quota.limits.items():
            if _KEY.fullmatch(key) and math.isfinite(value):
                kept[key] = value
            else:
                what = f"{key} of {render_quota_key(quota.entity)}"
                left.append(LeftOutAsset("quotas", what, "this is no limit of Kafka's, or no number"))
        if kept:
            yield replace(quota, limits=kept)


def _find_acl_text_problem(acl: InventoryAcl) -> str:
    return next(filter(None, map(find_name_problem, (acl.principal, acl.host, acl.name))), "")


def _is_kept(kind: AssetKind, what: str, names: tuple[str, ...], left: list[LeftOutAsset]) -> bool:
    why = next(filter(None, map(find_name_problem, names)), "")
    if why:
        left.append(LeftOutAsset(kind, what, why))
    return not why
