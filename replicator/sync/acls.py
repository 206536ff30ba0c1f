"""Access rights to topics and groups that are carried over: to the same principals and hosts, under the new names.

Rights are only ever added. One that is gone at the source, or was given at the target only, is shown with the command
that removes it; rights to write wait for the applications (`include_write`). What becomes of a right's name is decided
by `topology/acl_translation.py`, without a cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from clusters.settings import ConnectionSettings
from clusters.wire import admin_reads
from clusters.wire.admin_writes import create_acls
from clusters.wire.connection import open_connection
from clusters.withheld_rights_records import WithheldRights, write_withheld_rights
from replicator.sync import sync_kind
from replicator.sync.sync_kind import DifferenceOutcome, SyncClusters
from topology.acl_translation import (
    ACL_RESOURCE_OPTIONS,
    find_surplus_acls,
    render_acl,
    render_acl_resource,
    render_operation,
    translate_acls,
)
from topology.drift import DriftClass, FieldDrift
from topology.inventory import InventoryAcl
from topology.plan import PlanFlow
from topology.shell_command import render_shell_command
from topology.sync_settings import SyncMode

_KIND: Final = "acl"
_EXAMPLES: Final = 3
_HELD_BACK: Final = (
    "a right to write: held back until applications move there; `topology migrate` and `topology failover` give it, "
    "and so does `include_write: always` with `topology apply`"
)
_ClusterAcls = tuple[InventoryAcl, ...] | None


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
        here, there = _acls(sides.source), _acls(sides.target)
        return find_acl_differences(flow, sides.flows, here, there, sides.target)

    def carry(self, flow: PlanFlow, sides: SyncClusters, differences: Sequence[FieldDrift]) -> list[DifferenceOutcome]:
        """Create the missing ACLs, denials first. If a denial is refused, no right is given."""
        self._hold_back(flow, sides)
        if not differences:
            return []
        wanted = {_missing(flow, acl): acl for acl in translate_acls(flow, _acls(sides.source) or ()).bindings}
        asked = [(each, wanted[each]) for each in differences if each in wanted]
        denials = [acl for _, acl in asked if acl.permission == "DENY"]
        with open_connection(sides.target) as target:
            refused = create_acls(target, denials)
            if refused:  # whoever is to be denied something is given nothing meanwhile
                why = f"not given, because a denial was refused: {next(iter(refused.values()))}"
                refused |= {acl: why for _, acl in asked if acl.permission != "DENY"}
            else:
                refused = create_acls(target, [acl for _, acl in asked if acl.permission != "DENY"])
        return [DifferenceOutcome(difference, refused.get(acl)) for difference, acl in asked]

    def _hold_back(self, flow: PlanFlow, sides: SyncClusters) -> None:
        """What waits for a failover is written down at the target: then the source cannot be asked any more."""
        if flow.sync.acls.include_write != "on_failover":
            return
        here = _acls(sides.source)
        withheld = () if here is None else translate_acls(flow, here).withheld
        place = (",".join(sides.target.bootstrap), flow.id)
        if self._told.get(place) != withheld:
            write_withheld_rights(sides.target, WithheldRights(flow.id, withheld))
            self._told[place] = withheld


def find_acl_differences(
    flow: PlanFlow, flows: Iterable[PlanFlow], here: _ClusterAcls, there: _ClusterAcls, target: ConnectionSettings
) -> list[FieldDrift]:
    """here, there: all rights of a side, None without an authorizer. flows: all into the target. Pure."""
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
    for acl in find_surplus_acls(flow, here, there):
        if acl.principal != own and not any(_may_bring(each, acl) for each in others):
            found.append(_row(flow, acl, acl.permission, None, "unknown", _removing(flow, acl, target)))
    return found


def _may_bring(flow: PlanFlow, acl: InventoryAcl) -> bool:
    """Whether another flow may have brought the right from another source."""
    return acl.resource == "GROUP" or acl.pattern == "PREFIXED" or flow.source_topic(acl.name) is not None


def _acls(settings: ConnectionSettings) -> _ClusterAcls:
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


def _without_authorizer(flow: PlanFlow, here: _ClusterAcls, there: _ClusterAcls) -> list[FieldDrift]:
    without = [alias for alias, acls in ((flow.source, here), (flow.target, there)) if acls is None]
    if here is None:
        why = f"{flow.source} has no authorizer, so it has no rights to carry over"
    else:
        why = f"{flow.target} has no authorizer, so it cannot keep rights and lets everybody do everything"
    why += "; set `authorizer.class.name` there, or `sync.acls.mode: never`"
    name = f"authorizer of {' and '.join(without)}"
    return [FieldDrift(flow.target, _KIND, name, "authorizer.class.name", None, None, "unsupported", False, why)]


def _removing(flow: PlanFlow, acl: InventoryAcl, target: ConnectionSettings) -> str:
    allow = "allow" if acl.permission == "ALLOW" else "deny"
    parts = [
        *("kafka-acls", "--bootstrap-server", ",".join(target.bootstrap), "--command-config", "admin.properties"),
        *("--remove", "--force", f"--{allow}-principal", acl.principal, f"--{allow}-host", acl.host),
        *("--operation", render_operation(acl.operation), ACL_RESOURCE_OPTIONS[acl.resource], acl.name),
        *("--resource-pattern-type", acl.pattern.lower()),
    ]
    return (
        f"{flow.source} has no such right: it was taken away there, or given at {flow.target} only. Nothing takes it "
        f"away by itself: {render_shell_command(*parts)}"
    )
