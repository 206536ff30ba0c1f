"""The real world: answers a migration's actions from real clusters, their control topics and the applications.

Every answer is read from the clusters at the moment of the question. Only the ledger is followed from one look to the
next, because it is a log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka.admin import AdminClient

from clusters.admin import Admin
from clusters.control import SLOTS, ControlWriter
from clusters.errors import ClusterError, RequestRefused, TopicMissing, Unreachable
from clusters.flows import read_flows, write_flow
from clusters.names import TopicPartition
from clusters.settings import ConnectionSettings
from clusters.status import read_status
from cutover.actions import (
    Action,
    CommitOffsets,
    ForgetGroup,
    LookAtApplication,
    LookAtCluster,
    LookAtCopies,
    LookAtFlow,
    LookAtGroup,
    LookAtLogs,
    LookAtRecords,
    LookAtTopics,
    Side,
    StartApplication,
    StopApplication,
    StopFlow,
)
from cutover.applications import ApplicationFailed, Applications, ApplicationState
from cutover.ledger_tail import LedgerTail
from cutover.observations import (
    ApplicationSeen,
    ClusterSeen,
    CopiesSeen,
    Failed,
    FlowSeen,
    GroupSeen,
    LogsSeen,
    Observation,
    RecordsSeen,
    TopicsSeen,
)
from cutover.offsets import CopiedPartition
from cutover.records import first_records
from replicator.errors import NoLedger, ReplicatorError
from replicator.states import REMEDIES
from topology.plan import Plan, PlanFlow

_ASK_AGAIN = (Unreachable, RequestRefused, TopicMissing)


class LiveWorld:
    """`clock` gives seconds that only grow. `settings` by cluster alias, for the flow's two clusters."""

    def __init__(
        self,
        plan: Plan,
        flow: PlanFlow,
        settings: Mapping[str, ConnectionSettings],
        applications: Applications,
        clock: Callable[[], float],
    ) -> None:
        self.plan, self.flow, self.applications = plan, flow, applications
        self.settings: dict[Side, ConnectionSettings] = {
            "source": settings[flow.source],
            "target": settings[flow.target],
        }
        self._admin = {side: Admin(found) for side, found in self.settings.items()}
        self._clock = clock
        self._ledger: LedgerTail | None = None
        self._answers: dict[type[Action], Callable[[Any], Observation]] = {
            LookAtCluster: self._cluster,
            LookAtTopics: self._topics,
            LookAtFlow: self._flow_seen,
            LookAtGroup: self._group,
            LookAtLogs: self._logs,
            LookAtCopies: self._copies,
            LookAtRecords: self._records,
            LookAtApplication: self._application,
            StopApplication: self._stop,
            StartApplication: self._start,
            CommitOffsets: self._commit,
            ForgetGroup: self._forget,
            StopFlow: self._stop_flow,
        }

    def answer(self, action: Action) -> Observation:
        """The observation that the action names, or Failed; other errors than those of clusters are bugs."""
        try:
            return self._answers[type(action)](action)
        except ClusterError as error:
            return Failed(self._now(), str(error), isinstance(error, _ASK_AGAIN))
        except ReplicatorError as error:
            return Failed(self._now(), str(error), transient=False)
        except ApplicationFailed as error:
            return Failed(self._now(), str(error), error.transient)

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _cluster(self, action: LookAtCluster) -> ClusterSeen:
        settings, admin = self.settings[action.side], self._admin[action.side]
        return ClusterSeen(self._now(), settings.alias, admin.cluster_id(), settings.cluster_id, admin.brokers())

    def _topics(self, action: LookAtTopics) -> TopicsSeen:
        topics = self._admin[action.side].topics()
        return TopicsSeen(self._now(), {name: topic.partitions for name, topic in topics.items()})

    def _flow_seen(self, action: LookAtFlow | StopFlow) -> FlowSeen:
        record = read_flows(self.settings["target"]).get(self.flow.id)
        if record is None:
            return FlowSeen(self._now(), "missing", same_plan=False)
        loud: dict[str, str] = {}
        for report in read_status(self.settings["target"]):
            if report.flow == self.flow.id and report.state in REMEDIES:
                loud[report.topic] = f"partition {report.partition} is {report.state}: {report.error}"
        same = (record.flow.topics, record.flow.naming, record.flow.source, record.flow.target) == (
            self.flow.topics,
            self.flow.naming,
            self.flow.source,
            self.flow.target,
        )
        return FlowSeen(self._now(), record.state, same, loud)

    def _stop_flow(self, action: StopFlow) -> FlowSeen:
        record = read_flows(self.settings["target"]).get(self.flow.id)
        if record is not None and record.state != "stopped":
            with ControlWriter(self.settings["target"], "watershed-cutover") as writer:
                write_flow(writer, record.with_state("stopped"))
        return self._flow_seen(action)

    def _group(self, action: LookAtGroup) -> GroupSeen:
        return self._group_seen(action.side, action.group)

    def _group_seen(self, side: Side, name: str) -> GroupSeen:
        group = self._admin[side].group(name)
        return GroupSeen(self._now(), name, group.state, group.members, dict(group.offsets))

    def _logs(self, action: LookAtLogs) -> LogsSeen:
        admin = self._admin[action.side]
        stable = admin.offsets(action.places, "read_committed")
        ends = admin.offsets(action.places, "read_uncommitted")
        return LogsSeen(
            self._now(),
            {place: span.start for place, span in ends.items()},
            {place: span.end for place, span in stable.items()},
            {place: span.end for place, span in ends.items()},
        )

    def _copies(self, action: LookAtCopies) -> CopiesSeen:
        there = {place: TopicPartition(self.flow.target_topic(place.topic), place.partition) for place in action.places}
        # Log ends first: runs are announced before their batches are written, so the map covers these ends.
        ends = self._admin["target"].offsets(there.values(), "read_uncommitted")
        if self._ledger is None:
            self._ledger = LedgerTail(self.settings["target"], self.flow.id, range(SLOTS))
        ledger = self._ledger.read()
        copies: dict[TopicPartition, CopiedPartition] = {}
        for place, target in there.items():
            try:
                found = ledger.map(self.flow.id, place.topic, place.partition)
            except NoLedger:
                continue
            copies[place] = CopiedPartition(found, ends[target].end)
        return CopiesSeen(self._now(), copies)

    def _records(self, action: LookAtRecords) -> RecordsSeen:
        records = first_records(self.settings[action.side], self._admin[action.side], action.at)
        return RecordsSeen(self._now(), records)

    def _application(self, action: LookAtApplication) -> ApplicationSeen:
        return self._state_seen(action.name, self.applications.look(action.name))

    def _stop(self, action: StopApplication) -> ApplicationSeen:
        alias = f"{self.flow.source} or {self.flow.target}"
        return self._state_seen(action.name, self.applications.stop(action.name, action.role, alias))

    def _start(self, action: StartApplication) -> ApplicationSeen:
        settings = self.settings[action.side]
        state = self.applications.start(action.name, action.role, settings.alias, settings.bootstrap)
        return self._state_seen(action.name, state)

    def _state_seen(self, name: str, state: ApplicationState) -> ApplicationSeen:
        return ApplicationSeen(self._now(), name, state.state, state.cluster, state.by)

    def _commit(self, action: CommitOffsets) -> GroupSeen:
        self._admin[action.side].commit_offsets(action.group, action.offsets)
        return self._group_seen(action.side, action.group)

    def _forget(self, action: ForgetGroup) -> Observation:
        """Removes an empty group with its offsets; the broker itself refuses a live one (NON_EMPTY_GROUP)."""
        seen = self._group_seen(action.side, action.group)
        if seen.members:
            return Failed(self._now(), f"group {action.group} is alive; its offsets stay", transient=False)
        if not seen.offsets and seen.state == "Dead":
            return seen
        client = AdminClient(self.settings[action.side].librdkafka())
        delete = partial(client.delete_consumer_groups, [action.group], request_timeout=15)
        failure = delete()[action.group].exception(20)
        if failure is not None:
            return Failed(self._now(), f"removing group {action.group}: {failure}")
        return self._group_seen(action.side, action.group)
