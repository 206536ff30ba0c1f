"""Access rights to topics and groups that are carried over: to the same principals and hosts, under the new names.

What the sync gives is written down first (`clusters.synced_access_records`). A right that is written down and revoked
at the source is shown with since when, and removed where `sync.acls.prune` says so. One that was given at the target
only is shown with the command that removes it. Rights to write wait for the applications (`include_write`). What
becomes of a right's name is decided by `topology/acl_translation.py`, without a cluster.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from watershed.clusters.protection_records import read_protections
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.synced_access_records import (
    SyncedAccess,
    SyncedAcl,
    confirm_given_acls,
    read_synced_access,
    write_synced_acls,
)
from watershed.clusters.wire import admin_reads
from watershed.clusters.wire.admin_writes import create_acls
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.withheld_rights_records import WithheldRights, write_withheld_rights
from watershed.replicator.sync import sync_kind
from watershed.replicator.sync.access_removal import remove_revoked_acls
from watershed.replicator.sync.revoked_access import (
    ClusterAcls,
    JudgedAcls,
    can_bring_acl,
    describe_pruning,
    find_acl_origins,
    is_due,
    judge_synced_acls,
)
from watershed.replicator.sync.sync_kind import DifferenceOutcome, SyncClusters
from watershed.topology.acl_translation import (
    ACL_RESOURCE_OPTIONS,
    find_surplus_acls,
    is_write_denial,
    render_acl,
    render_acl_resource,
    render_operation,
    translate_acls,
)
from watershed.topology.drift import DriftClass, FieldDrift
from watershed.topology.inventory import InventoryAcl
from watershed.topology.plan import PlanFlow
from watershed.topology.rounded_amounts import render_utc_minute
from watershed.topology.shell_command import render_shell_command
from watershed.topology.sync_settings import SyncMode

_KIND: Final = "acl"
_EXAMPLES: Final = 3
_HELD_BACK: Final = (
    "a right to write: held back until applications move there; `topology migrate` and `topology failover` give it, "
    "and so does `include_write: always` with `topology apply`"
)
_WORKER: Final = "sync.acls.prune: auto"  # the actor of a removal that nobody was asked about
_NOTHING_JUDGED: Final = JudgedAcls()
_PROTECTS: Final = "`protect: true` needs it until the switch, and takes it away then"


@dataclass(frozen=True, slots=True)
class AclKind:
    """See `replicator.sync.sync_kind.SyncKind`."""

    name: str = "acls"
    _told: dict[tuple[str, str], tuple[InventoryAcl, ...]] = field(default_factory=dict, compare=False, repr=False)

    def mode(self, flow: PlanFlow) -> SyncMode:
        """`sync.acls` of the flow."""
        return flow.sync.acls.mode

    def every_ms(self, flow: PlanFlow) -> int:
        """METADATA_INTERVAL_MS, for every flow."""
        return sync_kind.METADATA_INTERVAL_MS

    def compare(self, flow: PlanFlow, sides: SyncClusters) -> list[FieldDrift]:
        """ACLs that differ: missing at the target, withheld, not translatable, or without a source any more."""
        access = read_synced_access(sides.target, flow.id)
        here, there = _acls(sides.source), _acls(sides.target)
        judged = _judge(flow, sides, access, here, there, _now_ms())
        return find_acl_differences(flow, sides.flows, here, there, sides.target, judged)

    def carry(self, flow: PlanFlow, sides: SyncClusters, differences: Sequence[FieldDrift]) -> list[DifferenceOutcome]:
        """Create the missing ACLs, denials first, and remove the revoked ones whose time has come. If a denial is
        refused, no right is given. What is given is written down before; what has been revoked, at every call."""
        access = read_synced_access(sides.target, flow.id)  # first: whoever writes down a right gives it afterwards
        here, there = _acls(sides.source), _acls(sides.target)
        self._hold_back(flow, sides, here)
        judged = _judge(flow, sides, access, here, there, _now_ms())
        asked_for = {_place_of(each): each for each in differences}
        wanted = translate_acls(flow, here or ()).bindings
        asked = [(asked_for[place], acl) for acl in wanted if (place := _place_of(_missing(flow, acl))) in asked_for]
        origins = find_acl_origins(flow, here or ()) if asked else {}
        present = frozenset(there or ())  # somebody may have given it since it was compared: that is not ours
        given = [SyncedAcl(acl, origins.get(acl, ()), _now_ms()) for _, acl in asked if acl not in present]
        given += self._list_denials_of_both(flow, sides, here, wanted, access)
        known = {each.acl for each in given}
        entries = [*(each for each in judged.entries if each.acl not in known), *given]
        write_synced_acls(sides.target, flow.id, access, entries)
        refused = _give(sides.target, [acl for _, acl in asked])
        _confirm(sides.target, flow.id, given, refused)
        outcomes = [DifferenceOutcome(difference, refused.get(acl)) for difference, acl in asked]
        if refused:  # what replaces a revoked right may be among them
            return outcomes
        return [*outcomes, *_prune(flow, sides, access, judged, asked_for)]

    def _list_denials_of_both(
        self,
        flow: PlanFlow,
        sides: SyncClusters,
        here: ClusterAcls,
        wanted: Sequence[InventoryAcl],
        access: SyncedAccess,
    ) -> list[SyncedAcl]:
        """Denials of the source that `protect` made for its own reason: they stay when the protection is lifted."""
        known, denials = {each.acl for each in access.acls}, [acl for acl in wanted if is_write_denial(acl)]
        if not flow.protect or not denials:
            return []
        ours, origins = read_protections(sides.target).get(flow.id, frozenset()), find_acl_origins(flow, here or ())
        both = [acl for acl in denials if acl in ours and acl not in known]
        return [SyncedAcl(acl, origins.get(acl, ()), _now_ms()) for acl in both]

    def _hold_back(self, flow: PlanFlow, sides: SyncClusters, here: ClusterAcls) -> None:
        """What waits for a failover is written down at the target: then the source cannot be asked any more."""
        if flow.sync.acls.include_write != "on_failover":
            return
        withheld = () if here is None else translate_acls(flow, here).withheld
        place = (",".join(sides.target.bootstrap), flow.id)
        if self._told.get(place) != withheld:
            write_withheld_rights(sides.target, WithheldRights(flow.id, withheld))
            self._told[place] = withheld


def find_acl_differences(
    flow: PlanFlow,
    flows: Iterable[PlanFlow],
    here: ClusterAcls,
    there: ClusterAcls,
    target: ConnectionSettings,
    judged: JudgedAcls = _NOTHING_JUDGED,
) -> list[FieldDrift]:
    """here, there: all rights of a side, None without an authorizer. flows: all into the target. judged: what is known
    of rights that the sync gave. Pure."""
    if here is None or there is None:
        return _without_authorizer(flow, here, there)
    translated = translate_acls(flow, here)
    present = set(there)
    found = [_missing(flow, acl) for acl in translated.bindings if acl not in present]
    found += [
        _row(flow, acl, None, acl.permission, "unknown", _HELD_BACK)
        for acl in translated.withheld
        if acl not in present
    ]
    elsewhere: dict[str, list[InventoryAcl]] = defaultdict(list)
    for left in translated.left:
        if left.acl.resource not in ("TOPIC", "GROUP"):
            if left.acl not in present:
                elsewhere[left.acl.resource].append(left.acl)
            continue
        why = f"not carried over: {left.why}. Say it at {flow.target} as you mean it"
        found.append(_row(flow, left.acl, None, left.acl.permission, "unsupported", why))
    found += [_elsewhere(flow, what, acls) for what, acls in sorted(elsewhere.items())]
    others = [each for each in flows if each.id != flow.id and each.sync.acls.mode != "never"]
    own = f"User:{target.username}" if target.username else None
    found += _describe_revoked(flow, judged, target)
    synced = {each.acl for each in judged.entries}
    if any(each.protect for each in flows):  # its denials are not the source's
        there = tuple(acl for acl in there if not is_write_denial(acl))
    for acl in find_surplus_acls(flow, here, there):
        if acl not in synced and acl.principal != own and not any(can_bring_acl(each, acl) for each in others):
            why = (
                f"{flow.source} has no such right, and nothing shows that the sync gave it: it may have been given at "
                f"{flow.target} on purpose. Nothing takes it away by itself: {_removing(acl, target)}"
            )
            found.append(_row(flow, acl, acl.permission, None, "unknown", why))
    return found


def _describe_revoked(flow: PlanFlow, judged: JudgedAcls, target: ConnectionSettings) -> list[FieldDrift]:
    """Rights that the sync gave and the source has revoked, with since when and what becomes of them."""
    pruning, now_ms = flow.sync.acls.prune, _now_ms()
    found = []
    if judged.blind:
        name = f"revoked at {flow.source}"
        found.append(FieldDrift(flow.target, _KIND, name, "rights", None, None, "unknown", False, judged.blind))
    for each in judged.revoked:
        assert each.revoked_ms is not None
        obstacle = judged.kept.get(each.acl) or judged.bulk
        next_ = describe_pruning(flow, pruning, "acls", each.revoked_ms, now_ms, obstacle, _removing(each.acl, target))
        why = (
            f"revoked at {flow.source}, seen first at {render_utc_minute(each.revoked_ms)}; the sync gave it at "
            f"{render_utc_minute(each.given_ms)}; {next_}"
        )
        due = not obstacle and is_due(pruning, each.revoked_ms, now_ms)
        row = _row(flow, each.acl, each.acl.permission, None, "unsafe", why)
        found.append(replace(row, applied=due))
    return found


def judge_acls_now(flow: PlanFlow, sides: SyncClusters, now_ms: int) -> JudgedAcls:
    """What is known now of rights that the sync gave. flow: as it is served. Reads only. Raises ClusterError."""
    access = read_synced_access(sides.target, flow.id)
    return _judge(flow, sides, access, _acls(sides.source), _acls(sides.target), now_ms)


def _judge(
    flow: PlanFlow, sides: SyncClusters, access: SyncedAccess, here: ClusterAcls, there: ClusterAcls, now_ms: int
) -> JudgedAcls:
    flows = (*sides.flows, *access.beside)
    judged = judge_synced_acls(flow, flows, access.record, access.acls, here, there, sides.target.username, now_ms)
    denied = read_protections(sides.target).get(flow.id, frozenset()) if judged.revoked else frozenset()
    kept = {each.acl: _PROTECTS for each in judged.revoked if each.acl in denied}
    return replace(judged, kept={**judged.kept, **kept})


def _give(target: ConnectionSettings, acls: Sequence[InventoryAcl]) -> dict[InventoryAcl, str]:
    """Denials first. Right → why it was refused."""
    if not acls:
        return {}
    rights = [acl for acl in acls if acl.permission != "DENY"]
    with open_connection(target) as connection:
        refused = create_acls(connection, [acl for acl in acls if acl.permission == "DENY"])
        if not refused:
            return create_acls(connection, rights)
    # whoever is to be denied something is given nothing meanwhile
    why = f"not given, because a denial was refused: {next(iter(refused.values()))}"
    return refused | dict.fromkeys(rights, why)


def _confirm(
    target: ConnectionSettings, flow: str, given: Sequence[SyncedAcl], refused: Mapping[InventoryAcl, str]
) -> None:
    """Another writer may give meanwhile what was refused to us: then it stays written down."""
    if not given:
        return
    gone = refused.keys() - frozenset(_acls(target) or ()) if refused else frozenset()
    confirm_given_acls(target, flow, given, gone)
    if gone and (back := gone & frozenset(_acls(target) or ())):  # given, and confirmed by the record just deleted
        confirm_given_acls(target, flow, [each for each in given if each.acl in back], ())


def _prune(
    flow: PlanFlow,
    sides: SyncClusters,
    access: SyncedAccess,
    judged: JudgedAcls,
    asked_for: Mapping[tuple[str, str, str | None], FieldDrift],
) -> list[DifferenceOutcome]:
    """Remove what was revoked, its time has come, and a comparison has just shown."""
    due = {row: each for each, row in _find_due(flow, judged) if row in asked_for}
    if not due or access.record is None:
        return []
    refused = remove_revoked_acls(sides.target, access.record, list(due.values()), _WORKER)
    return [DifferenceOutcome(asked_for[row], refused.get(each.acl)) for row, each in due.items()]


def _find_due(flow: PlanFlow, judged: JudgedAcls) -> list[tuple[SyncedAcl, tuple[str, str, str | None]]]:
    """With the place of the difference that stands for each."""
    now_ms = _now_ms()
    return [
        (each, _place_of(_row(flow, each.acl, each.acl.permission, None, "unsafe", "")))
        for each in judged.revoked
        if not judged.bulk and each.acl not in judged.kept and is_due(flow.sync.acls.prune, each.revoked_ms, now_ms)
    ]


def _place_of(difference: FieldDrift) -> tuple[str, str, str | None]:
    return difference.name, difference.field, difference.wanted


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _acls(settings: ConnectionSettings) -> ClusterAcls:
    with open_connection(settings) as inquiry:
        return admin_reads.read_acls(inquiry)


def _missing(flow: PlanFlow, acl: InventoryAcl) -> FieldDrift:
    return _row(flow, acl, None, acl.permission, "safe", "")


def _row(
    flow: PlanFlow, acl: InventoryAcl, live: str | None, wanted: str | None, drift: DriftClass, why: str
) -> FieldDrift:
    host = "" if acl.host == "*" else f" from {acl.host}"
    field = f"{acl.principal} {acl.operation}{host}"
    return FieldDrift(flow.target, _KIND, render_acl_resource(acl), field, live, wanted, drift, drift == "safe", why)


def _elsewhere(flow: PlanFlow, what: str, acls: list[InventoryAcl]) -> FieldDrift:
    """Rights to other things than topics and groups: one line for each kind of thing."""
    translated = ", ".join(render_acl(acl) for acl in acls[:_EXAMPLES])
    more = f" and {len(acls) - _EXAMPLES} more" if len(acls) > _EXAMPLES else ""
    why = f"rights to other things than topics and groups stay with you; {flow.source} has {translated}{more}"
    name = f"{what.lower().replace('_', ' ')}s of {flow.source}"
    return FieldDrift(flow.target, _KIND, name, "rights", None, str(len(acls)), "unsupported", False, why)


def _without_authorizer(flow: PlanFlow, here: ClusterAcls, there: ClusterAcls) -> list[FieldDrift]:
    without = [alias for alias, acls in ((flow.source, here), (flow.target, there)) if acls is None]
    if here is None:
        why = f"{flow.source} has no authorizer, so it has no rights to carry over"
    else:
        why = f"{flow.target} has no authorizer, so it cannot keep rights and lets everybody do everything"
    why += "; set `authorizer.class.name` there, or `sync.acls.mode: never`"
    name = f"authorizer of {' and '.join(without)}"
    return [FieldDrift(flow.target, _KIND, name, "authorizer.class.name", None, None, "unsupported", False, why)]


def _removing(acl: InventoryAcl, target: ConnectionSettings) -> str:
    allow = "allow" if acl.permission == "ALLOW" else "deny"
    return render_shell_command(
        *("kafka-acls", "--bootstrap-server", ",".join(target.bootstrap), "--command-config", "admin.properties"),
        *("--remove", "--force", f"--{allow}-principal", acl.principal, f"--{allow}-host", acl.host),
        *("--operation", render_operation(acl.operation), ACL_RESOURCE_OPTIONS[acl.resource], acl.name),
        *("--resource-pattern-type", acl.pattern.lower()),
    )
