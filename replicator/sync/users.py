"""SCRAM users: which of the source's users the target lacks, by mechanism and iterations.

Brokers never hand out a credential, salted or not (KIP-554), so a user cannot be carried over: somebody who knows the
password, or gives a new one, types the command that is shown. Nothing is ever made up here.

A user that was named as missing, and was then found on both sides, counts as brought by the sync
(`clusters.synced_access_records`): it is shown when the source deletes it, and removed where `sync.users.prune` says
so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from watershed.clusters.errors import RequestUnsupported
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.synced_access_records import SyncedAccess, read_synced_access, write_synced_users
from watershed.clusters.wire.admin_reads import read_acls, read_scram_users
from watershed.clusters.wire.connection import open_connection
from watershed.replicator.sync import sync_kind
from watershed.replicator.sync.access_removal import remove_revoked_users
from watershed.replicator.sync.revoked_access import (
    ClusterUsers,
    JudgedUsers,
    TargetOwners,
    describe_pruning,
    is_due,
    judge_synced_users,
)
from watershed.replicator.sync.sync_kind import DifferenceOutcome, SyncClusters
from watershed.topology.drift import FieldDrift
from watershed.topology.plan import PlanFlow
from watershed.topology.rounded_amounts import render_utc_minute
from watershed.topology.shell_command import render_shell_command
from watershed.topology.sync_settings import SyncMode

_KIND: Final = "user"
_WORKER: Final = "sync.users.prune: auto"  # the actor of a removal that nobody was asked about
_NOTHING_JUDGED: Final = JudgedUsers()


@dataclass(frozen=True, slots=True)
class ScramUserKind:
    """See `replicator.sync.sync_kind.SyncKind`."""

    name: str = "users"

    def mode(self, flow: PlanFlow) -> SyncMode:
        """`sync.users` of the flow."""
        return flow.sync.users.mode

    def every_ms(self, flow: PlanFlow) -> int:
        """METADATA_INTERVAL_MS, for every flow."""
        return sync_kind.METADATA_INTERVAL_MS

    def compare(self, flow: PlanFlow, sides: SyncClusters) -> list[FieldDrift]:
        """SCRAM users of the source that the target lacks or keeps with fewer iterations, and those that it deleted.
        Kafka before 2.7 keeps them in ZooKeeper and tells nobody (KIP-554)."""
        try:
            here, there, owners = _read_users(sides)
        except RequestUnsupported as error:
            return [sync_kind.build_unsupported(flow, self.name, error, _carrying_by_hand(sides.target))]
        access = read_synced_access(sides.target, flow.id)
        judged = judge_synced_users(
            flow, (*sides.flows, *access.beside), access.record, access.users, here, there, owners, _now_ms()
        )
        return find_user_differences(flow, here, there, sides.target, judged)

    def carry(self, flow: PlanFlow, sides: SyncClusters, differences: Sequence[FieldDrift]) -> list[DifferenceOutcome]:
        """Write down who is missing, made and deleted, and remove the users whose time has come. No user is made."""
        try:
            here, there, owners = _read_users(sides)
        except RequestUnsupported:  # `compare` says so
            return []
        access = read_synced_access(sides.target, flow.id)
        judged = judge_synced_users(
            flow, (*sides.flows, *access.beside), access.record, access.users, here, there, owners, _now_ms()
        )
        write_synced_users(sides.target, access.users, judged.entries)
        return _prune(flow, sides, access, judged, differences)


def judge_users_now(flow: PlanFlow, sides: SyncClusters, now_ms: int) -> JudgedUsers:
    """What is known now of users that were made because the sync named them. flow: as it is served. Reads only. Raises
    ClusterError."""
    here, there, owners = _read_users(sides)
    access = read_synced_access(sides.target, flow.id)
    return judge_synced_users(
        flow, (*sides.flows, *access.beside), access.record, access.users, here, there, owners, now_ms
    )


def _read_users(sides: SyncClusters) -> tuple[ClusterUsers, ClusterUsers, TargetOwners]:
    """Of the source, of the target, and whose users are never removed there."""
    with open_connection(sides.source) as source, open_connection(sides.target) as target:
        here, there = read_scram_users(source), read_scram_users(target)
        return here, there, TargetOwners(sides.target.username, read_acls(target) or ())


def _prune(
    flow: PlanFlow, sides: SyncClusters, access: SyncedAccess, judged: JudgedUsers, differences: Sequence[FieldDrift]
) -> list[DifferenceOutcome]:
    """Remove the users that were deleted, whose time has come, and that a comparison has just shown."""
    shown = {(each.name, each.field): each for each in differences if each.wanted is None}
    pruning, now_ms = flow.sync.users.prune, _now_ms()
    due = [
        each
        for each in judged.revoked
        if (each.user, each.mechanism) in shown
        and not judged.bulk
        and each.user not in judged.kept
        and is_due(pruning, each.revoked_ms, now_ms)
    ]
    if not due or access.record is None:
        return []
    refused = remove_revoked_users(sides.target, access.record, due, _WORKER)
    keys = [(each.user, each.mechanism) for each in due]
    return [DifferenceOutcome(shown[key], refused.get(key)) for key in keys]


def find_user_differences(
    flow: PlanFlow,
    here: ClusterUsers,
    there: ClusterUsers,
    target: ConnectionSettings,
    judged: JudgedUsers = _NOTHING_JUDGED,
) -> list[FieldDrift]:
    """here, there: user → mechanism → iterations. judged: what is known of users that were made because the sync named
    them. Pure."""
    found = []
    for user in sorted(here):
        if not flow.sync.users.names.selects(user):
            continue
        for mechanism, iterations in sorted(here[user].items()):
            live = there.get(user, {}).get(mechanism)
            if live is not None and live >= iterations:
                continue
            lacking = f"{flow.target} has no such user" if live is None else f"{flow.target} stretches it less"
            why = (
                f"{lacking}, and brokers never hand out credentials (KIP-554); with the password: "
                f"{_making(user, mechanism, iterations, target)}"
            )
            found.append(
                FieldDrift(
                    flow.target,
                    _KIND,
                    user,
                    mechanism,
                    None if live is None else _iterations(live),
                    _iterations(iterations),
                    "unsupported",
                    False,
                    why,
                )
            )
    return found + _describe_deleted(flow, there, target, judged)


def _describe_deleted(
    flow: PlanFlow, there: ClusterUsers, target: ConnectionSettings, judged: JudgedUsers
) -> list[FieldDrift]:
    """Users that the source has deleted, with since when and what becomes of them."""
    pruning, now_ms = flow.sync.users.prune, _now_ms()
    found = []
    if judged.blind:
        name = f"deleted at {flow.source}"
        found.append(FieldDrift(flow.target, _KIND, name, "users", None, None, "unknown", False, judged.blind))
    for each in judged.revoked:
        assert each.revoked_ms is not None
        assert each.made_ms is not None
        obstacle = judged.kept.get(each.user) or judged.bulk
        by_hand = _removing(each.user, each.mechanism, target)
        next_ = describe_pruning(flow, pruning, "users", each.revoked_ms, now_ms, obstacle, by_hand)
        why = (
            f"deleted at {flow.source}, seen first at {render_utc_minute(each.revoked_ms)}; the sync named it, and it "
            f"was first seen on both sides at {render_utc_minute(each.made_ms)}; {next_}"
        )
        live = _iterations(there[each.user][each.mechanism])
        due = not obstacle and is_due(pruning, each.revoked_ms, now_ms)
        found.append(FieldDrift(flow.target, _KIND, each.user, each.mechanism, live, None, "unsafe", due, why))
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _iterations(number: int) -> str:
    return f"{number} iterations"


def _carrying_by_hand(target: ConnectionSettings) -> str:
    showing = ("kafka-configs", "--zookeeper", "ZOOKEEPER", "--describe", "--entity-type", "users")
    making = _making("USER", "SCRAM-SHA-512", 4096, target)
    return f"{render_shell_command(*showing)} shows who has one; with the password: {making}"


def _making(user: str, mechanism: str, iterations: int, target: ConnectionSettings) -> str:
    credential = f"{mechanism}=[iterations={iterations},password=PASSWORD]"
    return render_shell_command(
        *("kafka-configs", "--bootstrap-server", ",".join(target.bootstrap)),
        *("--command-config", "admin.properties", "--alter", "--entity-type", "users", "--entity-name", user),
        *("--add-config", credential),
    )


def _removing(user: str, mechanism: str, target: ConnectionSettings) -> str:
    return render_shell_command(
        *("kafka-configs", "--bootstrap-server", ",".join(target.bootstrap)),
        *("--command-config", "admin.properties", "--alter", "--entity-type", "users", "--entity-name", user),
        *("--delete-config", mechanism),
    )
