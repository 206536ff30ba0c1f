"""Ordering a flow to go on where applications have come back (`replicator.recovery.rejoin`), on real clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from watershed.clusters.alignment_records import read_alignments
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import Action, ClusterSide, Rejoin
from watershed.cutover.observations import Observation, RejoinResult
from watershed.replicator.adoption.decision_writer import write_decisions
from watershed.replicator.ledger.ledger import read_ledger
from watershed.replicator.recovery.rejoin import RejoinPoint, plan_rejoin
from watershed.topology.plan import Plan


class LiveRejoining:
    """Raises ClusterError and ReplicatorError. settings: by side of the run's own flow, which leads to `home`."""

    def __init__(
        self, plan: Plan, home: str, settings: Mapping[ClusterSide, ConnectionSettings], now: Callable[[], int]
    ) -> None:
        self._plan, self._home, self._settings, self._now = plan, home, settings, now

    def answers(self) -> dict[type[Action], Callable[..., Observation]]:
        """Action class → the method that answers it."""
        return {Rejoin: self.rejoin}

    def rejoin(self, action: Rejoin) -> RejoinResult:
        """Writes the operator decisions by which the flow's workers copy again from these offsets."""
        flow = self._plan.flow(action.flow)
        there, home = (self._at(alias) for alias in (flow.target, flow.source))
        returns = {
            TopicPartition(topic, int(number)): RejoinPoint(*offsets)
            for topic, each in action.returns.items()
            for number, offsets in each.items()
        }
        aligned = frozenset(
            topic for (of, topic), found in read_alignments(there).items() if of == flow.id and found.mode == "aligned"
        )
        found = plan_rejoin(
            flow.id,
            returns,
            (read_ledger(there, flow=flow.id), read_ledger(home, flow=action.back)),
            action.back,
            action.order,
            guarded=flow.guard != "none" or flow.forward == "local",
            aligned=aligned,
        )
        with ControlWriter(there, "watershed-cutover") as writer:
            write_decisions(writer, found.decisions, self._plan.topology)
        ordered = sorted({place.topic for place in returns} - found.left.keys())
        return RejoinResult(self._now(), tuple(ordered), found.left)

    def _at(self, alias: str) -> ConnectionSettings:
        return self._settings["target" if alias == self._home else "source"]
