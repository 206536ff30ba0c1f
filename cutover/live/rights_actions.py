"""Answers for rights that the flow holds back: read from the source while it lives, else from what its workers
wrote down at the target; given and taken away at the brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict

from watershed.clusters.broker_propagation import wait_for_every_broker
from watershed.clusters.missing_rights import find_missing_rights
from watershed.clusters.required_role_acls import CLUSTER_RESOURCE_NAME, RequiredRight
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import admin_reads
from watershed.clusters.wire.admin_writes import create_acls, delete_acls
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.withheld_rights_records import WithheldRights, read_withheld_rights
from watershed.cutover.actions import Action, ClusterSide, GiveRights, JsonObject, ReadRights, TakeRights
from watershed.cutover.observations import Observation, ObservedRights
from watershed.replicator.sync.protection import inspect_protection, keep_protection, remove_protection
from watershed.topology.acl_translation import is_acl_about, render_acl, translate_acls
from watershed.topology.inventory import InventoryAcl
from watershed.topology.plan import PlanFlow

_Acls = list[InventoryAcl]


class LiveRights:
    """Answers ReadRights, GiveRights and TakeRights. Raises ClusterError."""

    def __init__(
        self, flow: PlanFlow, settings: Mapping[ClusterSide, ConnectionSettings], now: Callable[[], int]
    ) -> None:
        self._flow, self._settings, self._now = flow, settings, now

    def answers(self) -> dict[type[Action], Callable[..., Observation]]:
        """Action class → the method that answers it."""
        return {ReadRights: self.look, GiveRights: self.give, TakeRights: self.take}

    def look(self, action: ReadRights) -> ObservedRights:
        """Which of the rights that the flow holds back are missing at the target, and which are there."""
        if not self._flow.sync.acls.holds_back:
            return ObservedRights(self._now(), asked=False)
        target = self._settings["target"]
        withheld = read_withheld_rights(target, self._flow.id) if action.remembered else self._at_source()
        if withheld is None:
            return ObservedRights(self._now(), asked=True)
        wanted = [acl for acl in withheld.acls if not action.topics or is_acl_about(acl, action.topics, action.groups)]
        with open_connection(target) as inquiry:
            present = admin_reads.read_acls(inquiry)
        if present is None:  # without an authorizer everybody may do everything
            return ObservedRights(self._now(), asked=True, known_ms=withheld.at_ms)
        missing = [acl for acl in wanted if acl not in present]
        there = [acl for acl in wanted if acl in present]
        unable = "; ".join(map(str, find_missing_rights(target, [_altering(target)]))) if missing else ""
        return ObservedRights(self._now(), True, _json(missing), _json(there), {}, unable, withheld.at_ms)

    def give(self, action: GiveRights) -> ObservedRights:
        """One that is there already is left as it is."""
        target, wanted = self._settings["target"], _acls(action.rights)
        with open_connection(target) as inquiry:
            refused = create_acls(inquiry, wanted)
            given = set(wanted) - refused.keys()
            wait_for_every_broker(target, inquiry, lambda broker: given <= _present(broker))
        return self._done([acl for acl in wanted if acl in refused], [acl for acl in wanted if acl in given], refused)

    def take(self, action: TakeRights) -> ObservedRights:
        """These very rights and no others; one that is gone already is done."""
        settings, wanted = self._settings[action.side], _acls(action.rights)
        with open_connection(settings) as inquiry:
            refused = delete_acls(inquiry, wanted)
            gone = set(wanted) - refused.keys()
            wait_for_every_broker(settings, inquiry, lambda broker: not gone & _present(broker))
        return self._done([acl for acl in wanted if acl in gone], [acl for acl in wanted if acl in refused], refused)

    def _at_source(self) -> WithheldRights:
        with open_connection(self._settings["source"]) as inquiry:
            here = admin_reads.read_acls(inquiry)
        return WithheldRights(self._flow.id, translate_acls(self._flow, here or ()).withheld)

    def _done(self, missing: _Acls, there: _Acls, refused: Mapping[InventoryAcl, str]) -> ObservedRights:
        reasons = {render_acl(acl): why for acl, why in refused.items()}
        return ObservedRights(self._now(), True, _json(missing), _json(there), reasons)


def open_protected_topics(
    target: ConnectionSettings, flow: PlanFlow, topics: Iterable[str] | None, now: int
) -> ObservedRights:
    """Take away the denials that protect what these source topics are called at the target; None: all of the flow.
    Raises ClusterError."""
    names = None if topics is None else {flow.target_topic(topic) for topic in topics}
    lifted, refused = remove_protection(target, flow.id, lambda denial: names is None or denial.name in names)
    reasons = {render_acl(acl): why for acl, why in refused.items()}
    return ObservedRights(now, True, _json(each for each in lifted if each not in refused), _json(refused), reasons)


def protect_topics_again(target: ConnectionSettings, flow: PlanFlow, now: int) -> ObservedRights:
    """Deny again what the flow's record says is to be protected. Raises ClusterError."""
    refused = keep_protection(target, flow)
    found = inspect_protection(target, flow)
    reasons = {render_acl(acl): why for acl, why in refused.items()}
    return ObservedRights(now, True, _json(found.missing), _json(found.denials & found.present), reasons)


def _altering(settings: ConnectionSettings) -> RequiredRight:
    return RequiredRight(
        settings.alias, "CLUSTER", CLUSTER_RESOURCE_NAME, "LITERAL", "ALTER", "give the rights that were held back"
    )


def _present(broker: Connection) -> set[InventoryAcl]:
    return set(admin_reads.read_acls(broker) or ())


def _json(acls: Iterable[InventoryAcl]) -> tuple[JsonObject, ...]:
    return tuple(asdict(acl) for acl in acls)


def _acls(rights: Iterable[JsonObject]) -> _Acls:
    return [InventoryAcl(**each) for each in rights]
