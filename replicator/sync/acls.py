"""Access rights to topics and groups that are carried over: to the same principals and hosts, under the new names.

Rights are only ever added. One that is gone at the source, or was given at the target only, is shown with the command
that removes it; rights to write wait for the applications (`include_write`). What becomes of a right's name is decided
by `topology/bindings.py`, without a cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from clusters.rights import RESOURCE_OPTION
from clusters.settings import ConnectionSettings
from clusters.wire import readings
from clusters.wire.alterations import create_acls
from clusters.wire.inquiry import inquire
from clusters.withheld import Withheld, remember_withheld
from replicator.sync import kind
from replicator.sync.kind import Done, Sides
from topology.bindings import carried, resource, shown, unmatched
from topology.command import command
from topology.drift import Class, Difference
from topology.inventory import InventoryAcl
from topology.plan import PlanFlow
from topology.sync import Mode

_KIND: Final = "acl"
_EXAMPLES: Final = 3
_HELD_BACK: Final = (
    "a right to write: held back until applications move there; `topology migrate` and `topology failover` give it, "
    "and so does `include_write: always` with `topology apply`"
)
_Acls = tuple[InventoryAcl, ...] | None


@dataclass(frozen=True, slots=True)
class AccessRights:
    """See `replicator.sync.kind.Kind`."""

    name: str = "acls"
    _told: dict[tuple[str, str], tuple[InventoryAcl, ...]] = field(default_factory=dict, compare=False, repr=False)

    def mode(self, flow: PlanFlow) -> Mode:
        return flow.sync.acls.mode

    def every_ms(self, flow: PlanFlow) -> int:
        return kind.METADATA_EVERY_MS

    def compare(self, flow: PlanFlow, sides: Sides) -> list[Difference]:
        here, there = _acls(sides.source), _acls(sides.target)
        return acl_differences(flow, sides.flows, here, there, sides.target)

    def carry(self, flow: PlanFlow, sides: Sides, differences: Sequence[Difference]) -> list[Done]:
        self._hold_back(flow, sides)
        if not differences:
            return []
        wanted = {_missing(flow, acl): acl for acl in carried(flow, _acls(sides.source) or ()).bindings}
        asked = [(each, wanted[each]) for each in differences if each in wanted]
        denials = [acl for _, acl in asked if acl.permission == "DENY"]
        with inquire(sides.target) as target:
            refused = create_acls(target, denials)
            if refused:  # whoever is to be denied something is given nothing meanwhile
                why = f"not given, because a denial was refused: {next(iter(refused.values()))}"
                refused |= {acl: why for _, acl in asked if acl.permission != "DENY"}
            else:
                refused = create_acls(target, [acl for _, acl in asked if acl.permission != "DENY"])
        return [Done(difference, refused.get(acl)) for difference, acl in asked]

    def _hold_back(self, flow: PlanFlow, sides: Sides) -> None:
        """What waits for a failover is written down at the target: then the source cannot be asked any more."""
        if flow.sync.acls.include_write != "on_failover":
            return
        here = _acls(sides.source)
        withheld = () if here is None else carried(flow, here).withheld
        place = (",".join(sides.target.bootstrap), flow.id)
        if self._told.get(place) != withheld:
            remember_withheld(sides.target, Withheld(flow.id, withheld))
            self._told[place] = withheld


def acl_differences(
    flow: PlanFlow, flows: Iterable[PlanFlow], here: _Acls, there: _Acls, target: ConnectionSettings
) -> list[Difference]:
    """here, there: all rights of a side, None without an authorizer. flows: all into the target. Pure."""
    if here is None or there is None:
        return _without_authorizer(flow, here, there)
    told = carried(flow, here)
    present = set(there)
    found = [_missing(flow, acl) for acl in told.bindings if acl not in present]
    found += [
        _row(flow, acl, None, acl.permission, "unknown", _HELD_BACK) for acl in told.withheld if acl not in present
    ]
    elsewhere: dict[str, list[InventoryAcl]] = defaultdict(list)
    for left in told.left:
        if left.acl.resource not in ("TOPIC", "GROUP"):
            if left.acl not in present:
                elsewhere[left.acl.resource].append(left.acl)
            continue
        why = f"not carried over: {left.why}. Say it at {flow.target} as you mean it"
        found.append(_row(flow, left.acl, None, left.acl.permission, "unsupported", why))
    found += [_elsewhere(flow, what, acls) for what, acls in sorted(elsewhere.items())]
    others = [each for each in flows if each.id != flow.id and each.sync.acls.mode != "never"]
    own = f"User:{target.username}" if target.username else None
    for acl in unmatched(flow, here, there):
        if acl.principal != own and not any(_may_bring(each, acl) for each in others):
            found.append(_row(flow, acl, acl.permission, None, "unknown", _removing(flow, acl, target)))
    return found


def _may_bring(flow: PlanFlow, acl: InventoryAcl) -> bool:
    """Whether another flow may have brought the right from another source."""
    return acl.resource == "GROUP" or acl.pattern == "PREFIXED" or flow.source_topic(acl.name) is not None


def _acls(settings: ConnectionSettings) -> _Acls:
    with inquire(settings) as inquiry:
        return readings.acls(inquiry)


def _missing(flow: PlanFlow, acl: InventoryAcl) -> Difference:
    return _row(flow, acl, None, acl.permission, "safe", "")


def _row(flow: PlanFlow, acl: InventoryAcl, live: str | None, wanted: str | None, drift: Class, why: str) -> Difference:
    host = "" if acl.host == "*" else f" from {acl.host}"
    field = f"{acl.principal} {acl.operation}{host}"
    return Difference(flow.target, _KIND, resource(acl), field, live, wanted, drift, drift == "safe", why)


def _elsewhere(flow: PlanFlow, what: str, acls: list[InventoryAcl]) -> Difference:
    """Rights to other things than topics and groups: one line for each kind of thing."""
    told = ", ".join(shown(acl) for acl in acls[:_EXAMPLES])
    more = f" and {len(acls) - _EXAMPLES} more" if len(acls) > _EXAMPLES else ""
    why = f"rights to other things than topics and groups stay with you; {flow.source} has {told}{more}"
    name = f"{what.lower().replace('_', ' ')}s of {flow.source}"
    return Difference(flow.target, _KIND, name, "rights", None, str(len(acls)), "unsupported", False, why)


def _without_authorizer(flow: PlanFlow, here: _Acls, there: _Acls) -> list[Difference]:
    without = [alias for alias, acls in ((flow.source, here), (flow.target, there)) if acls is None]
    if here is None:
        why = f"{flow.source} has no authorizer, so it has no rights to carry over"
    else:
        why = f"{flow.target} has no authorizer, so it cannot keep rights and lets everybody do everything"
    why += "; set `authorizer.class.name` there, or `sync.acls.mode: never`"
    name = f"authorizer of {' and '.join(without)}"
    return [Difference(flow.target, _KIND, name, "authorizer.class.name", None, None, "unsupported", False, why)]


def _removing(flow: PlanFlow, acl: InventoryAcl, target: ConnectionSettings) -> str:
    allow = "allow" if acl.permission == "ALLOW" else "deny"
    parts = [
        *("kafka-acls", "--bootstrap-server", ",".join(target.bootstrap), "--command-config", "admin.properties"),
        *("--remove", "--force", f"--{allow}-principal", acl.principal, f"--{allow}-host", acl.host),
        *("--operation", acl.operation, RESOURCE_OPTION[acl.resource], acl.name),
        *("--resource-pattern-type", acl.pattern.lower()),
    ]
    return (
        f"{flow.source} has no such right: it was taken away there, or given at {flow.target} only. Nothing takes it "
        f"away by itself: {command(*parts)}"
    )
