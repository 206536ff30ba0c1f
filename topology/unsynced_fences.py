"""Marks ACLs and quotas that fence a migration or protect a target, so that no flow syncs them.

A fence denies or slows an application at one cluster on purpose. At the other cluster it would block the application
after it has moved. A broker does not store why an ACL or a quota exists, so the fences come from the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from watershed.topology.migration_waves import PlanMigration
from watershed.topology.plan import PlanFlow


def mark_migration_fences(flows: Iterable[PlanFlow], migration: PlanMigration | None) -> tuple[PlanFlow, ...]:
    """The flows, with the fences of the migration at their sources told (`AclSync.fences`, `QuotaSync.fences`).

    Fences stand at the source of the migration's flow, and at its target while a rollback goes the other way.
    """
    flows = tuple(flows)
    moving = next((flow for flow in flows if migration is not None and flow.id == migration.flow), None)
    if migration is None or moving is None:
        return flows
    denied, slowed = _collect_fences(migration)

    def at(flow: PlanFlow) -> PlanFlow:
        if flow.source not in (moving.source, moving.target):
            return flow
        there = flow.source == moving.target
        rights = {(principal, moving.target_topic(topic) if there else topic) for principal, topic in denied}
        sync = flow.sync
        if rights and sync.acls.mode != "never":
            sync = replace(sync, acls=replace(sync.acls, fences=tuple(sorted(rights))))
        if slowed and sync.quotas.mode != "never":
            sync = replace(sync, quotas=replace(sync.quotas, fences=tuple(sorted(slowed, key=str))))
        return flow if sync is flow.sync else replace(flow, sync=sync)

    return tuple(map(at, flows))


def mark_protected_sources(flows: Iterable[PlanFlow]) -> tuple[PlanFlow, ...]:
    """The flows, with `AclSync.leaves_denials` for those that read from the target of a protected flow: its denials
    would keep producers out of the cluster on which they still are."""
    flows = tuple(flows)
    protected = {flow.target for flow in flows if flow.protect}

    def at(flow: PlanFlow) -> PlanFlow:
        acls = flow.sync.acls
        if flow.source not in protected or acls.mode == "never":
            return flow
        return replace(flow, sync=replace(flow.sync, acls=replace(acls, leaves_denials=True)))

    return tuple(map(at, flows))


def _collect_fences(migration: PlanMigration) -> tuple[set[tuple[str, str]], set[tuple[str | None, str | None]]]:
    """(principal, topic) that an ACL denies, (user, client id) that a quota slows, of all waves."""
    denied: set[tuple[str, str]] = set()
    slowed: set[tuple[str | None, str | None]] = set()
    for wave in migration.waves:
        for application in filter(None, map(migration.applications.get, wave.producers)):
            if wave.fence.kind == "acl" and application.principal is not None:
                denied |= {(application.principal, topic) for topic in wave.topics}
            elif wave.fence.kind == "quota" and (application.principal or application.client_id):
                user = application.principal.partition(":")[2] if application.principal is not None else None
                slowed.add((user or None, application.client_id))
    return denied, slowed
