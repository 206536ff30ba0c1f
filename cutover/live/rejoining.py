"""Ordering a flow to go on where applications have come back (`replicator.rejoining`), on real clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clusters.alignments import read_alignments
from clusters.control import ControlWriter
from clusters.names import TopicPartition
from clusters.settings import ConnectionSettings
from cutover.actions import Action, Rejoin, Side
from cutover.observations import Observation, RejoinSeen
from replicator.adoption.giving import give_all
from replicator.ledger import read_ledger
from replicator.rejoining import Return, orders
from topology.plan import Plan


class LiveRejoining:
    """Raises ClusterError and ReplicatorError. settings: by side of the run's own flow, which leads to `home`."""

    def __init__(
        self, plan: Plan, home: str, settings: Mapping[Side, ConnectionSettings], now: Callable[[], int]
    ) -> None:
        self._plan, self._home, self._settings, self._now = plan, home, settings, now

    def answers(self) -> dict[type[Action], Callable[..., Observation]]:
        return {Rejoin: self.rejoin}

    def rejoin(self, action: Rejoin) -> RejoinSeen:
        flow = self._plan.flow(action.flow)
        there, home = (self._at(alias) for alias in (flow.target, flow.source))
        returns = {
            TopicPartition(topic, int(number)): Return(*offsets)
            for topic, each in action.returns.items()
            for number, offsets in each.items()
        }
        aligned = frozenset(
            topic for (of, topic), found in read_alignments(there).items() if of == flow.id and found.mode == "aligned"
        )
        found = orders(
            flow.id,
            returns,
            (read_ledger(there, flow=flow.id), read_ledger(home, flow=action.back)),
            action.back,
            action.order,
            guarded=flow.guard != "none" or flow.forward == "local",
            aligned=aligned,
        )
        with ControlWriter(there, "watershed-cutover") as writer:
            give_all(writer, found.given, self._plan.topology)
        ordered = sorted({place.topic for place in returns} - found.left.keys())
        return RejoinSeen(self._now(), tuple(ordered), found.left)

    def _at(self, alias: str) -> ConnectionSettings:
        return self._settings["target" if alias == self._home else "source"]
