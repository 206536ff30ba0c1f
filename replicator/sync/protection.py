"""`protect: true`: topics of a flow's target refuse everybody's writes but Watershed's until applications move there.

Kafka has no ACL for "everybody but one": a denial for `User:*` denies us, too, and wins over every right. So rights to
write are held back (`sync.acls`), and whoever has one at the target already is denied WRITE by name on each topic, as
fences do it. Which denials are ours is written down first. A topic is open again when its flow is stopped, or when a
run lifts its protection (`FlowRecord.unprotected`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from watershed.clusters.admin import Admin
from watershed.clusters.broker_propagation import wait_for_every_broker
from watershed.clusters.control_topics import FLOWS_TOPIC
from watershed.clusters.flow_records import FlowRecord, read_flows
from watershed.clusters.protection_records import read_protections, write_protection
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.sync_reports import SyncReport
from watershed.clusters.synced_access_records import read_synced_access
from watershed.clusters.wire.admin_reads import read_acls
from watershed.clusters.wire.admin_writes import create_acls, delete_acls
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.replicator.sync import sync_kind
from watershed.replicator.sync.revoked_access import ClusterAcls, TargetOwners
from watershed.replicator.sync.sync_kind import DifferenceOutcome, SyncClusters
from watershed.topology.acl_translation import is_acl_about, render_acl
from watershed.topology.drift import FieldDrift
from watershed.topology.inventory import InventoryAcl
from watershed.topology.plan import PlanFlow
from watershed.topology.sync_settings import SyncMode

_KIND: Final = "protection"
_NAME: Final = "topics"
_OPEN: Final = "allow.everyone.if.no.acl.found"
_EVERYBODY: Final = "User:*"
_NAMED: Final = 5
_NOT_THERE: Final = (
    "the topic is not at the target, or its protection was lifted meanwhile. A worker of the flow denies it once the "
    "topic is there"
)


@dataclass(frozen=True, slots=True)
class Protection:
    """How a flow's target stands. topics: of the target, to be protected now. denials: what that takes. present: all
    rights of the target. ours: written down as made by us. problems: why it cannot be done, or not wholly."""

    topics: tuple[str, ...] = ()
    denials: frozenset[InventoryAcl] = frozenset()
    present: frozenset[InventoryAcl] = frozenset()
    ours: frozenset[InventoryAcl] = frozenset()
    problems: tuple[str, ...] = ()

    @property
    def missing(self) -> frozenset[InventoryAcl]:
        """Denials that are still to be made."""
        return self.denials - self.present

    @property
    def surplus(self) -> frozenset[InventoryAcl]:
        """Denials of ours on topics that are not protected any more."""
        return frozenset(each for each in self.ours if each.name not in self.topics)


@dataclass(frozen=True, slots=True)
class ProtectionKind:
    """See `replicator.sync.sync_kind.SyncKind`."""

    name: str = _KIND

    def mode(self, flow: PlanFlow) -> SyncMode:
        """As long as the file says `protect: true`."""
        return "continuous" if flow.protect else "never"

    def every_ms(self, flow: PlanFlow) -> int:
        """METADATA_INTERVAL_MS, for every flow."""
        return sync_kind.METADATA_INTERVAL_MS

    def compare(self, flow: PlanFlow, sides: SyncClusters) -> list[FieldDrift]:
        """Denials that are missing or are over, and why topics cannot be protected. Topics that the flow is about to
        create count, so that a person sees all denials before the first `topology apply`."""
        with Admin(sides.source) as admin:
            coming = [flow.target_topic(name) for name in admin.topics() if flow.selects(name)]
        return find_protection_differences(flow, inspect_protection(sides.target, flow, coming))

    def carry(self, flow: PlanFlow, sides: SyncClusters, differences: Sequence[FieldDrift]) -> list[DifferenceOutcome]:
        """Make and take away what differs now. A topic that was about to be created may not be there yet."""
        refused = keep_protection(sides.target, flow)
        why = {(f"topic {acl.name}", acl.principal): reason for acl, reason in refused.items()}
        if made := [each for each in differences if each.wanted == "DENY"]:
            topics = {f"topic {name}" for name in inspect_protection(sides.target, flow).topics}
            why |= {(each.name, each.field): _NOT_THERE for each in made if each.name not in topics}
        return [DifferenceOutcome(each, why.get((each.name, each.field))) for each in differences]

    def keep(self, flow: PlanFlow, sides: SyncClusters) -> list[SyncReport]:
        """One round of a worker, with what is protected and by what."""
        return self.keep_stopped(flow, sides.target)

    def keep_stopped(self, flow: PlanFlow, target: ConnectionSettings) -> list[SyncReport]:
        """The same. Takes denials away that a worker made while the flow was being stopped, and died behind."""
        refused = keep_protection(target, flow)
        return [build_protection_report(flow, inspect_protection(target, flow), refused)]


def find_protection(
    record: FlowRecord | None,
    flow: PlanFlow,
    topics: Iterable[str],
    acls: ClusterAcls,
    ours: Collection[InventoryAcl],
    username: str | None,
    *,
    is_open: bool,
) -> Protection:
    """record: of the flow at its target; None before it is applied. topics: all of the target. acls: all rights there,
    None without an authorizer. username: our own. is_open: `allow.everyone.if.no.acl.found`. Pure."""
    names = ((topic, flow.source_topic(topic)) for topic in topics)
    chosen = tuple(sorted(name for name, at in names if at is not None and _is_protected(record, flow, at)))
    if acls is None:
        why = f"{flow.target} has no authorizer, so everybody may write there: set `authorizer.class.name`"
        return Protection(chosen, ours=frozenset(ours), problems=(why,))
    known = frozenset(acls)
    if is_open:
        why = (
            f"{flow.target} has {_OPEN}=true, so whoever has no right may write to a topic without any. Set it to false"
        )
        return Protection(chosen, frozenset(), known, frozenset(ours), (why,))
    owners = TargetOwners(username, acls).list_principals()
    rights = [acl for acl in acls if _is_write_right(acl) and acl.principal not in owners]
    writers = {(acl.principal, topic): acl for topic in chosen for acl in rights if is_acl_about(acl, (topic,), ())}
    for_all = sorted({render_acl(acl) for (who, _), acl in writers.items() if who == _EVERYBODY})
    problems = tuple(
        f"{right} lets everybody write at {flow.target}, and a denial for everybody denies Watershed, too. Replace it "
        "by rights of single principals"
        for right in for_all
    )
    # A worker of ours may hold its rights by `*` or a prefix, and the one that asks may be another user of ours.
    maybe_ours = {acl.principal for acl in rights if is_acl_about(acl, (FLOWS_TOPIC,), ())} - {_EVERYBODY}
    problems += tuple(
        f"{who} may write to {FLOWS_TOPIC}, too, so it may be Watershed's own, and is not denied at {flow.target}. "
        "Give it rights to its own topics, by name or by a prefix of their own"
        for who in sorted(maybe_ours & {who for who, _ in writers})
    )
    denials = {build_write_denial(who, topic) for who, topic in writers if who not in (_EVERYBODY, *maybe_ours)}
    return Protection(chosen, frozenset(denials), known, frozenset(ours), problems)


def find_protection_differences(flow: PlanFlow, found: Protection) -> list[FieldDrift]:
    """As `topology plan` shows them. Pure."""
    rows = [
        FieldDrift(flow.target, _KIND, f"of flow {flow.id}", "protect", None, "true", "unsupported", False, why)
        for why in found.problems
    ]
    rows += [_row(flow, acl, "DENY", "") for acl in _sorted(found.missing)]
    return rows + [_row(flow, acl, None, "not protected any more") for acl in _sorted(found.surplus & found.present)]


def build_protection_report(
    flow: PlanFlow, found: Protection, refused: dict[InventoryAcl, str] | None = None
) -> SyncReport:
    """What the status shows: how many topics are protected by which denials, and why others are not."""
    denied = sorted({each.principal for each in found.denials})
    told = f"protected: {', '.join(found.topics[:_NAMED]) or 'no topic'}"
    told += f" and {len(found.topics) - _NAMED} more" if len(found.topics) > _NAMED else ""
    told += f"; denied WRITE by name: {', '.join(denied) or 'nobody has the right'}"
    if refused:
        first = next(iter(refused.items()))
        return SyncReport(flow.id, _KIND, _NAME, "refused", f"unprotected: {render_acl(first[0])}: {first[1]}")
    if found.problems:
        return SyncReport(flow.id, _KIND, _NAME, "different", f"unprotected: {'; '.join(found.problems)}")
    if found.missing:
        return SyncReport(flow.id, _KIND, _NAME, "waiting", f"unprotected: {len(found.missing)} denials are missing")
    return SyncReport(flow.id, _KIND, _NAME, "equal", told)


def build_write_denial(principal: str, topic: str) -> InventoryAcl:
    """The denial that keeps one principal from writing to one topic."""
    return InventoryAcl(principal, "WRITE", "DENY", "TOPIC", topic, "LITERAL")


def inspect_protection(target: ConnectionSettings, flow: PlanFlow, coming: Iterable[str] = ()) -> Protection:
    """As it is now; reads only. coming: topics that the target may not have yet. Raises ClusterError."""
    record = read_flows(target).get(flow.id)
    ours = read_protections(target).get(flow.id, frozenset())
    with Admin(target) as admin:
        topics, is_open = admin.topics(), (admin.broker_config(_OPEN) or "false").lower() == "true"
    with open_connection(target) as connection:
        acls = read_acls(connection)
    names = {*topics, *coming}
    return find_protection(record, flow, names, acls, ours, target.username, is_open=is_open)


def keep_protection(target: ConnectionSettings, flow: PlanFlow) -> dict[InventoryAcl, str]:
    """Deny and let go of what `inspect_protection` finds, and wait until every broker shows it. Returns denial → why it
    was refused.

    A run may lift a topic's protection meanwhile. So what stands is compared with the flow's record again afterwards,
    until both agree: a denial that came too late is taken away by its own maker, or by the next round.
    """
    refused: dict[InventoryAcl, str] = {}
    made: frozenset[InventoryAcl] = frozenset()
    for _ in range(3):  # a second change within a round is rare, a third is the next round's
        found = inspect_protection(target, flow)
        if lost := (made & found.present) - found.ours:  # struck out by a run before it was made: it is still ours
            write_protection(target, flow.id, _sorted(lost))
            found = replace(found, ours=found.ours | lost)
        wanted = found.missing - refused.keys()
        made |= wanted
        if not wanted and not found.surplus:
            break
        refused |= _change(target, flow.id, found, wanted)
    return refused


def remove_protection(
    target: ConnectionSettings, flow: str, is_lifted: Callable[[InventoryAcl], bool] = lambda _denial: True
) -> tuple[list[InventoryAcl], dict[InventoryAcl, str]]:
    """Take away the denials that are written down for the flow; and wait until no broker shows them. Doing it twice
    does no harm. Returns those that were written down, and denial → why it was refused. Raises ClusterError."""
    lifted = _sorted(filter(is_lifted, read_protections(target).get(flow, ())))
    if not lifted:
        return [], {}
    stays = _read_denials_of_source(target, flow)
    with open_connection(target) as connection:
        refused = delete_acls(connection, [each for each in lifted if each not in stays])
        gone = frozenset(lifted) - refused.keys()
        wait_for_every_broker(target, connection, lambda broker: (gone - stays).isdisjoint(read_acls(broker) or ()))
    write_protection(target, flow, (), gone)
    return lifted, refused


def _change(
    target: ConnectionSettings, flow: str, found: Protection, wanted: frozenset[InventoryAcl]
) -> dict[InventoryAcl, str]:
    write_protection(target, flow, _sorted(wanted))
    stays = _read_denials_of_source(target, flow) if found.surplus else frozenset()
    deleted = found.surplus - stays  # the others are denials of the source as well
    with open_connection(target) as connection:
        refused = create_acls(connection, _sorted(wanted)) | delete_acls(connection, _sorted(deleted))
        made, gone = wanted - refused.keys(), deleted - refused.keys()

        def is_done(broker: Connection) -> bool:
            there = frozenset(read_acls(broker) or ())
            return made <= there and gone.isdisjoint(there)

        wait_for_every_broker(target, connection, is_done)
        there = frozenset(read_acls(connection) or ())
    over = gone - there  # one that was made again meanwhile keeps its record
    write_protection(target, flow, (), (wanted & refused.keys()) | over | (found.surplus & stays))
    return refused


def _read_denials_of_source(target: ConnectionSettings, flow: str) -> frozenset[InventoryAcl]:
    """What the sync of rights brought and the source still has: it stays where a protection ends."""
    return frozenset(each.acl for each in read_synced_access(target, flow).acls if each.revoked_ms is None)


def _is_protected(record: FlowRecord | None, flow: PlanFlow, topic: str) -> bool:
    return record.protects(topic) if record is not None else flow.protect


def _is_write_right(acl: InventoryAcl) -> bool:
    return (acl.permission, acl.resource) == ("ALLOW", "TOPIC") and acl.operation in ("WRITE", "ALL")


def _row(flow: PlanFlow, acl: InventoryAcl, wanted: str | None, why: str) -> FieldDrift:
    live = None if wanted else "DENY"
    return FieldDrift(flow.target, _KIND, f"topic {acl.name}", acl.principal, live, wanted, "safe", True, why)


def _sorted(acls: Iterable[InventoryAcl]) -> list[InventoryAcl]:
    return sorted(acls, key=lambda each: (each.name, each.principal))
