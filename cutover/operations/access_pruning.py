"""Remove rights and SCRAM users at a target that the sync brought and the source has taken away: `topology flow prune`
and the DAG `decide__<name>`. A person decides with each of them in view (decision 0123)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from watershed.clusters.budget_breaches import explain_breach, read_budget_breaches
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.clusters.synced_access_records import SyncedAcl, SyncedUser, read_synced_access
from watershed.cutover.operations.proposal import OperationRefused, Proposal
from watershed.replicator.sync.access_removal import (
    describe_revoked_acl,
    describe_revoked_user,
    remove_revoked_acls,
    remove_revoked_users,
)
from watershed.replicator.sync.acls import judge_acls_now
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.replicator.sync.users import judge_users_now
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.rounded_amounts import render_utc_minute

ABOVE_SHARE: Final = "above-share"


@dataclass(slots=True)
class _Found:
    """What may be removed, and what stays with the reason, each as a line."""

    acls: list[SyncedAcl] = field(default_factory=list)
    users: list[SyncedUser] = field(default_factory=list)
    stays: list[str] = field(default_factory=list)


def propose_pruning(plan: Plan, connect: SettingsLookup, flow_id: str, *, above_share: bool = False) -> Proposal:
    """Every right and user that would be removed, with when it was brought and since when it is gone. above_share: also
    where most of what the sync brought is gone at once.

    Raises ClusterError, NotInPlan; OperationRefused where the flow was never applied, does not run, prunes nothing by
    its file, or its source shows nothing that can be judged.
    """
    flow = plan.flow(flow_id)
    target = connect(flow.target)
    record = read_synced_access(target, flow_id).record
    if record is None:
        raise OperationRefused(f"flow {flow_id} was never applied to {target.alias}; run `topology apply` first")
    if record.state != "running":
        raise OperationRefused(
            f"flow {flow_id} is {record.state}: what its source has taken away since says nothing of {flow.target}. "
            "Nothing was changed"
        )
    if why := explain_breach(record, read_budget_breaches(target)):
        raise OperationRefused(f"{why}. What its source has taken away meanwhile is not known. Nothing was changed")
    running = tuple(each for each in plan.flows if each.target == flow.target and each.state == "running")
    source = connect(flow.source)
    source = replace(source, cluster_id=source.cluster_id or record.source_cluster_id)  # as workers ask it
    found = _find(record, flow, SyncClusters(source, target, running), above_share)
    lines = [*_list_lines(flow, found), *(f"stays: {why}" for why in found.stays)]
    names = [*map(describe_revoked_acl, found.acls), *map(describe_revoked_user, found.users)]
    question = f"remove {len(found.acls)} rights and {len(found.users)} users at {flow.target}?"

    def carry_out(actor: str) -> Iterator[str]:
        return _carry_out(target, record, found, actor)

    is_needed = bool(names)
    if not is_needed:
        lines.append(f"nothing is to be removed at {flow.target}")
    return Proposal(question, tuple(lines), f"{flow_id}: {'; '.join(names)}", carry_out, (), is_needed)


def _find(record: FlowRecord, flow: PlanFlow, sides: SyncClusters, above_share: bool) -> _Found:
    """As of now. A kind that the file does not prune is left out."""
    serving, found = record.serving, _Found()
    asked = [
        kind
        for kind, sync in (("acls", flow.sync.acls), ("users", flow.sync.users))
        if sync.mode != "never" and sync.prune.mode != "never"
    ]
    if not asked:
        raise OperationRefused(
            f"the file lets nothing be removed for flow {flow.id}. Write `prune: approve` under `sync.acls` or "
            "`sync.users`, with a `mode` that is not `never`, run `topology apply`, and ask again"
        )
    now_ms = time.time_ns() // 1_000_000
    if "acls" in asked:
        acls = judge_acls_now(serving, sides, now_ms)
        _require_sight(acls.blind, acls.bulk, above_share)
        found.acls = [each for each in acls.revoked if each.acl not in acls.kept]
        found.stays += [
            f"{describe_revoked_acl(each)}: {acls.kept[each.acl]}" for each in acls.revoked if each.acl in acls.kept
        ]
    if "users" in asked:
        users = judge_users_now(serving, sides, now_ms)
        _require_sight(users.blind, users.bulk, above_share)
        found.users = [each for each in users.revoked if each.user not in users.kept]
        found.stays += [
            f"{describe_revoked_user(each)}: {users.kept[each.user]}"
            for each in users.revoked
            if each.user in users.kept
        ]
    return found


def _require_sight(blind: str, bulk: str, above_share: bool) -> None:
    if blind:
        raise OperationRefused(blind)
    if bulk and not above_share:
        raise OperationRefused(bulk)


def _list_lines(flow: PlanFlow, found: _Found) -> Iterator[str]:
    for right in found.acls:
        yield (
            f"remove at {flow.target}: {describe_revoked_acl(right)}, given {render_utc_minute(right.given_ms)}, "
            f"revoked at {flow.source}, seen first {render_utc_minute(right.revoked_ms)}"
        )
    for user in found.users:
        yield (
            f"remove at {flow.target}: user {describe_revoked_user(user)}, seen on both sides "
            f"{render_utc_minute(user.made_ms)}, deleted at {flow.source}, seen first "
            f"{render_utc_minute(user.revoked_ms)}"
        )


def _carry_out(target: ConnectionSettings, record: FlowRecord, found: _Found, actor: str) -> Iterator[str]:
    """Raises OperationRefused when the target refuses one of them; the others are removed."""
    refused: list[str] = []
    acls = remove_revoked_acls(target, record, found.acls, actor)
    for right in found.acls:
        if right.acl in acls:
            refused.append(f"{describe_revoked_acl(right)}: {acls[right.acl]}")
        else:
            yield f"removed: {describe_revoked_acl(right)}"
    users = remove_revoked_users(target, record, found.users, actor)
    for user in found.users:
        if (user.user, user.mechanism) in users:
            refused.append(f"{describe_revoked_user(user)}: {users[user.user, user.mechanism]}")
        else:
            yield f"removed: user {describe_revoked_user(user)}"
    if refused:
        raise OperationRefused(f"{target.alias} refused to remove {'; '.join(refused)}")
