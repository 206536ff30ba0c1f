"""The real world's rights that wait for applications: read from the source while it lives, else from what its workers
wrote down at the target; given and taken away at the brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict

from clusters.everywhere import everywhere
from clusters.preflight import missing_rights
from clusters.rights import CLUSTER_NAME, Right
from clusters.settings import ConnectionSettings
from clusters.wire import readings
from clusters.wire.alterations import create_acls, delete_acls
from clusters.wire.inquiry import Inquiry, inquire
from clusters.withheld import Withheld, read_withheld
from cutover.actions import Action, GiveRights, Json, LookAtRights, Side, TakeRights
from cutover.observations import Observation, RightsSeen
from topology.bindings import about, carried, shown
from topology.inventory import InventoryAcl
from topology.plan import PlanFlow

_Acls = list[InventoryAcl]


class LiveRights:
    """Answers LookAtRights, GiveRights and TakeRights. Raises ClusterError."""

    def __init__(self, flow: PlanFlow, settings: Mapping[Side, ConnectionSettings], now: Callable[[], int]) -> None:
        self._flow, self._settings, self._now = flow, settings, now

    def answers(self) -> dict[type[Action], Callable[..., Observation]]:
        return {LookAtRights: self.look, GiveRights: self.give, TakeRights: self.take}

    def look(self, action: LookAtRights) -> RightsSeen:
        if not self._flow.sync.acls.holds_back:
            return RightsSeen(self._now(), asked=False)
        target = self._settings["target"]
        withheld = read_withheld(target, self._flow.id) if action.remembered else self._at_source()
        if withheld is None:
            return RightsSeen(self._now(), asked=True)
        wanted = [acl for acl in withheld.acls if not action.topics or about(acl, action.topics, action.groups)]
        with inquire(target) as inquiry:
            present = readings.acls(inquiry)
        if present is None:  # without an authorizer everybody may do everything
            return RightsSeen(self._now(), asked=True, known_ms=withheld.at_ms)
        missing = [acl for acl in wanted if acl not in present]
        there = [acl for acl in wanted if acl in present]
        unable = "; ".join(map(str, missing_rights(target, [_altering(target)]))) if missing else ""
        return RightsSeen(self._now(), True, _json(missing), _json(there), {}, unable, withheld.at_ms)

    def give(self, action: GiveRights) -> RightsSeen:
        """One that is there already is left as it is."""
        target, wanted = self._settings["target"], _acls(action.rights)
        with inquire(target) as inquiry:
            refused = create_acls(inquiry, wanted)
            given = set(wanted) - refused.keys()
            everywhere(target, inquiry, lambda broker: given <= _present(broker))
        return self._done([acl for acl in wanted if acl in refused], [acl for acl in wanted if acl in given], refused)

    def take(self, action: TakeRights) -> RightsSeen:
        """These very rights and no others; one that is gone already is done."""
        settings, wanted = self._settings[action.side], _acls(action.rights)
        with inquire(settings) as inquiry:
            refused = delete_acls(inquiry, wanted)
            gone = set(wanted) - refused.keys()
            everywhere(settings, inquiry, lambda broker: not gone & _present(broker))
        return self._done([acl for acl in wanted if acl in gone], [acl for acl in wanted if acl in refused], refused)

    def _at_source(self) -> Withheld:
        with inquire(self._settings["source"]) as inquiry:
            here = readings.acls(inquiry)
        return Withheld(self._flow.id, carried(self._flow, here or ()).withheld)

    def _done(self, missing: _Acls, there: _Acls, refused: Mapping[InventoryAcl, str]) -> RightsSeen:
        told = {shown(acl): why for acl, why in refused.items()}
        return RightsSeen(self._now(), True, _json(missing), _json(there), told)


def _altering(settings: ConnectionSettings) -> Right:
    return Right(settings.alias, "CLUSTER", CLUSTER_NAME, "LITERAL", "ALTER", "give the rights that were held back")


def _present(broker: Inquiry) -> set[InventoryAcl]:
    return set(readings.acls(broker) or ())


def _json(acls: Iterable[InventoryAcl]) -> tuple[Json, ...]:
    return tuple(asdict(acl) for acl in acls)


def _acls(rights: Iterable[Json]) -> _Acls:
    return [InventoryAcl(**each) for each in rights]
