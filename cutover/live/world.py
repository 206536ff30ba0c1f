"""The real world: answers a migration's actions from real clusters, their control topics and the applications.

Every answer is read from the clusters at the moment of the question. Only the ledger is followed from one look to the
next, because it is a log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from clusters.admin import Admin
from clusters.control import SLOTS, ControlWriter
from clusters.errors import ClusterError, RequestRefused, TopicMissing, Unreachable
from clusters.flows import FlowRecord, read_flows, write_flow
from clusters.names import TopicPartition
from clusters.registry.translation import ask_topic_ids
from clusters.settings import ConnectionSettings
from clusters.status import read_status
from cutover.actions import (
    Action,
    CallHook,
    CommitOffsets,
    ForgetGroup,
    LookAtApplication,
    LookAtCluster,
    LookAtCopies,
    LookAtFlow,
    LookAtGroup,
    LookAtGroupConfigs,
    LookAtHooks,
    LookAtLogs,
    LookAtReaders,
    LookAtRecords,
    LookAtTime,
    LookAtTopics,
    RetireTopics,
    ServeTopics,
    Side,
    StartApplication,
    StartFlow,
    StopApplication,
    StopFlow,
)
from cutover.hooks.calling import NO_HOOKS, Hooks
from cutover.live.applications import ApplicationFailed, ApplicationState, Switches
from cutover.live.failover import LiveFailover
from cutover.live.fences import LiveFences
from cutover.live.groups import LiveGroups
from cutover.live.records import first_records
from cutover.live.rejoining import LiveRejoining
from cutover.live.rights import LiveRights
from cutover.observations import (
    ApplicationSeen,
    ClusterSeen,
    CopiesSeen,
    Failed,
    FlowSeen,
    HooksSeen,
    LogsSeen,
    Observation,
    RecordsSeen,
    TimeSeen,
    TopicsSeen,
)
from replicator.errors import NoLedger, ReplicatorError
from replicator.ledger_tail import LedgerTail
from replicator.states import REMEDIES
from replicator.translation import CopiedPartition
from topology.plan import Plan, PlanFlow

_ASK_AGAIN = (Unreachable, RequestRefused, TopicMissing)


class LiveWorld:
    """`clock` gives seconds that only grow. `settings` by cluster alias, for the flow's two clusters."""

    def __init__(
        self,
        plan: Plan,
        flow: PlanFlow,
        settings: Mapping[str, ConnectionSettings],
        applications: Switches,
        clock: Callable[[], float],
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        self.plan, self.flow, self.applications, self.hooks = plan, flow, applications, hooks
        self.settings: dict[Side, ConnectionSettings] = {
            "source": settings[flow.source],
            "target": settings[flow.target],
        }
        self._admin = {side: Admin(found) for side, found in self.settings.items()}
        self._clock = clock
        self._ledgers: dict[str, LedgerTail] = {}  # by flow
        self._groups = LiveGroups(flow, self.settings, self._now, _there(plan, flow))
        self._answers: dict[type[Action], Callable[[Any], Observation]] = {
            LookAtCluster: self._cluster,
            LookAtTopics: self._topics,
            LookAtFlow: self._flow_seen,
            LookAtGroup: self._groups.look,
            LookAtGroupConfigs: self._groups.configs,
            LookAtReaders: self._groups.readers,
            LookAtLogs: self._logs,
            LookAtCopies: self._copies,
            LookAtRecords: self._records,
            LookAtApplication: self._application,
            StopApplication: self._stop,
            StartApplication: self._start,
            CommitOffsets: self._groups.commit,
            ForgetGroup: self._groups.forget,
            StopFlow: lambda action: self._change_flow(action.flow, lambda record: record.with_state("stopped")),
            StartFlow: self._start_flow,
            RetireTopics: lambda action: self._change_flow(action.flow, lambda record: record.without(action.topics)),
            ServeTopics: lambda action: self._change_flow(action.flow, lambda record: record.again_with(action.topics)),
            LookAtHooks: lambda action: HooksSeen(self._now(), self.hooks.problems(action.names)),
            CallHook: lambda action: self.hooks.call(action.name, action.point, action.key, action.body),
            LookAtTime: lambda _action: TimeSeen(self._now(), int(time.time() * 1000)),
        }
        self._answers |= LiveFences(plan, self.settings, self._now).answers()
        self._answers |= LiveRights(flow, self.settings, self._now).answers()
        self._answers |= LiveFailover(flow, self.settings, self._now).answers()
        self._answers |= LiveRejoining(plan, flow.target, self.settings, self._now).answers()

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

    def _flow_seen(self, action: LookAtFlow) -> FlowSeen:
        flow = self._flow(action.flow)
        there = self._settings_of(flow.target)
        record = read_flows(there).get(flow.id)
        if record is None:
            return FlowSeen(self._now(), "missing", same_plan=False)
        loud: dict[str, str] = {}
        for report in read_status(there):
            if report.flow == flow.id and report.state in REMEDIES:
                loud[report.topic] = f"partition {report.partition} is {report.state}: {report.error}"
        same = (record.flow.topics, record.flow.naming, record.flow.source, record.flow.target) == (
            flow.topics,
            flow.naming,
            flow.source,
            flow.target,
        )
        return FlowSeen(self._now(), record.state, same, loud, record.retired)

    def _start_flow(self, action: StartFlow) -> FlowSeen:
        begins = {topic: {int(at): offset for at, offset in each.items()} for topic, each in action.begin.items()}
        return self._change_flow(action.flow, lambda record: record.begun_at(begins).with_state("running"))

    def _change_flow(self, name: str | None, change: Callable[[FlowRecord], FlowRecord]) -> FlowSeen:
        flow = self._flow(name)
        there = self._settings_of(flow.target)
        record = read_flows(there).get(flow.id)
        if record is not None and change(record) != record:
            with ControlWriter(there, "watershed-cutover") as writer:
                write_flow(writer, change(record))
        return self._flow_seen(LookAtFlow(flow.id))

    def _flow(self, name: str | None) -> PlanFlow:
        return self.flow if name is None else self.plan.flow(name)

    def _settings_of(self, alias: str) -> ConnectionSettings:
        return self.settings["target" if alias == self.flow.target else "source"]

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
        flow = self._flow(action.flow)
        there = {place: TopicPartition(flow.target_topic(place.topic), place.partition) for place in action.places}
        # Log ends first: runs are announced before their batches are written, so the map covers these ends.
        side: Side = "target" if flow.target == self.flow.target else "source"
        ends = self._admin[side].offsets(there.values(), "read_uncommitted")
        if flow.id not in self._ledgers:
            self._ledgers[flow.id] = LedgerTail(self.settings[side], flow.id, range(SLOTS))
        ledger = self._ledgers[flow.id].read()
        copies: dict[TopicPartition, CopiedPartition] = {}
        for place, target in there.items():
            try:
                found = ledger.map(flow.id, place.topic, place.partition)
            except NoLedger:
                continue
            copies[place] = CopiedPartition(found, ends[target].end)
        return CopiesSeen(self._now(), copies)

    def _records(self, action: LookAtRecords) -> RecordsSeen:
        ids = None
        if action.side == "source" and self.flow.sync.schemas.translated:
            topics = sorted({place.topic for place in action.at})
            ids = ask_topic_ids(self.flow, self.settings["source"], self.settings["target"], topics)
        records = first_records(self.settings[action.side], self._admin[action.side], action.at, ids=ids)
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


def _there(plan: Plan, flow: PlanFlow) -> PlanFlow | None:
    """The migration's flow, where `flow` is the way back."""
    forward = plan.flow(plan.migration.flow) if plan.migration is not None else flow
    return forward if (forward.source, forward.target) == (flow.target, flow.source) else None
