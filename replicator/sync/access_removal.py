"""Removing access at a target that the sync brought and the source has revoked: by itself, or as a person decided.

What is removed, for whom and since when is written down for good before it is removed (`topology journal --orders`).
Doing it twice does no harm.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from watershed.clusters.broker_propagation import wait_for_every_broker
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.synced_access_records import SyncedAcl, SyncedUser, strike_out_acls, write_synced_users
from watershed.clusters.wire.admin_reads import read_acls, read_scram_users
from watershed.clusters.wire.admin_writes import delete_acls, delete_scram_users
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.replicator.flow_state_order import write_flow_order_line
from watershed.topology.acl_translation import render_acl
from watershed.topology.inventory import InventoryAcl

PRUNE: Final = "prune"  # kind of the line


def remove_revoked_acls(
    target: ConnectionSettings, record: FlowRecord, revoked: Sequence[SyncedAcl], actor: str
) -> dict[InventoryAcl, str]:
    """These very rights, and waits until no broker shows them. Returns right → why it was refused. Raises
    ClusterError."""
    acls = [each.acl for each in revoked]
    if not acls:
        return {}
    _write_down(target, record, actor, rights=[describe_revoked_acl(each) for each in revoked])
    with open_connection(target) as connection:
        refused = delete_acls(connection, acls)
        gone = set(acls) - refused.keys()
        wait_for_every_broker(target, connection, lambda broker: gone.isdisjoint(read_acls(broker) or ()))
    strike_out_acls(target, record.flow.id, [each for each in revoked if each.acl in gone])
    return refused


def remove_revoked_users(
    target: ConnectionSettings, record: FlowRecord, revoked: Sequence[SyncedUser], actor: str
) -> dict[tuple[str, str], str]:
    """The credentials of these users, and waits until no broker shows them. Connections that stand stay until they
    end or authenticate again (KIP-368). Returns (user, mechanism) → why it was refused. Raises ClusterError."""
    credentials = [(each.user, each.mechanism) for each in revoked]
    if not credentials:
        return {}
    _write_down(target, record, actor, users=[describe_revoked_user(each) for each in revoked])
    with open_connection(target) as connection:
        refused = delete_scram_users(connection, credentials)
        gone = [each for each in credentials if each not in refused]

        def is_gone(broker: Connection) -> bool:
            there = read_scram_users(broker)
            return not any(mechanism in there.get(user, {}) for user, mechanism in gone)

        wait_for_every_broker(target, connection, is_gone)
    write_synced_users(target, [each for each in revoked if (each.user, each.mechanism) in gone], ())
    return refused


def describe_revoked_acl(entry: SyncedAcl) -> str:
    """For people: `User:ann READ topic orders`, with the names of its origins where they are others."""
    origins = [render_acl(each) for each in entry.origins if each != entry.acl]
    return render_acl(entry.acl) + (f" (from {', '.join(origins)})" if origins else "")


def describe_revoked_user(entry: SyncedUser) -> str:
    """For people: `ann SCRAM-SHA-512`."""
    return f"{entry.user} {entry.mechanism}"


def _write_down(target: ConnectionSettings, record: FlowRecord, actor: str, **removed: Any) -> None:
    with ControlWriter(target, "watershed-access") as writer:
        write_flow_order_line(writer, record, PRUNE, actor, time.time_ns() // 1_000_000, removed)
