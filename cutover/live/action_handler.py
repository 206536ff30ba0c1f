"""The real action handler: answers a run's actions from real clusters, their control topics and the applications.

Every answer is read from the clusters at the moment of the question. Only the ledger is followed from one look to the
next, because it is a log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from watershed.clusters.admin import Admin
from watershed.clusters.budget_breaches import BudgetBreach, explain_breach, read_budget_breaches
from watershed.clusters.control_topics import SLOT_COUNT, ControlWriter
from watershed.clusters.errors import ClusterError, RequestRefused, TopicMissing, Unreachable
from watershed.clusters.flow_records import FlowRecord, read_flow_to_change, write_flow
from watershed.clusters.partition_orders import describe_topic_pauses
from watershed.clusters.partition_status_records import read_partition_statuses
from watershed.clusters.registry.schema_id_translation import read_schema_ids
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    Action,
    CallHook,
    CheckHooks,
    ClusterSide,
    CommitOffsets,
    FindReaders,
    ForgetGroup,
    LiftProtection,
    ReadApplication,
    ReadClock,
    ReadCluster,
    ReadCopies,
    ReadFlow,
    ReadGroup,
    ReadGroupConfigs,
    ReadLogs,
    ReadRecords,
    ReadTopics,
    RestoreProtection,
    RetireTopics,
    ServeTopics,
    StartApplication,
    StartFlow,
    StopApplication,
    StopFlow,
)
from watershed.cutover.hooks.hook_caller import NO_HOOKS, HookCaller
from watershed.cutover.live.application_control import ApplicationControl
from watershed.cutover.live.applications.application_adapter import (
    ApplicationControlFailed,
    ApplicationOrder,
    ApplicationState,
    ApplicationVerb,
)
from watershed.cutover.live.failover_actions import LiveFailover
from watershed.cutover.live.fence_actions import LiveFences
from watershed.cutover.live.group_actions import LiveGroups
from watershed.cutover.live.landing_records import read_first_records
from watershed.cutover.live.rejoin_actions import LiveRejoining
from watershed.cutover.live.rights_actions import LiveRights, open_protected_topics, protect_topics_again
from watershed.cutover.observations import (
    ActionFailed,
    HookProblems,
    Observation,
    ObservedApplication,
    ObservedCluster,
    ObservedCopies,
    ObservedFlow,
    ObservedLogs,
    ObservedRecords,
    ObservedRights,
    ObservedTime,
    ObservedTopics,
)
from watershed.replicator.errors import NoLedger, ReplicatorError
from watershed.replicator.flow_state_order import answer_breach, write_breach_answer
from watershed.replicator.ledger.ledger_follower import LedgerFollower
from watershed.replicator.ledger.offset_translation import CopiedPartition
from watershed.replicator.partition_states import REMEDIES
from watershed.topology.plan import Plan, PlanFlow

_ASK_AGAIN = (Unreachable, RequestRefused, TopicMissing)


class LiveActionHandler:
    """`clock` gives seconds that only grow. `settings` by cluster alias, for the flow's two clusters."""

    def __init__(
        self,
        plan: Plan,
        flow: PlanFlow,
        settings: Mapping[str, ConnectionSettings],
        applications: ApplicationControl,
        clock: Callable[[], float],
        hooks: HookCaller = NO_HOOKS,
    ) -> None:
        self.plan, self.flow, self.applications, self.hooks = plan, flow, applications, hooks
        self.settings: dict[ClusterSide, ConnectionSettings] = {
            "source": settings[flow.source],
            "target": settings[flow.target],
        }
        self._admin = {side: Admin(found) for side, found in self.settings.items()}
        self._clock = clock
        self._ledgers: dict[str, LedgerFollower] = {}  # by flow
        self._groups = LiveGroups(flow, self.settings, self._now, _there(plan, flow))
        self._answers: dict[type[Action], Callable[[Any], Observation]] = {
            ReadCluster: self._cluster,
            ReadTopics: self._topics,
            ReadFlow: self._flow_seen,
            ReadGroup: self._groups.look,
            ReadGroupConfigs: self._groups.configs,
            FindReaders: self._groups.readers,
            ReadLogs: self._logs,
            ReadCopies: self._copies,
            ReadRecords: self._records,
            ReadApplication: self._application,
            StopApplication: self._tell,
            StartApplication: self._tell,
            CommitOffsets: self._groups.commit,
            ForgetGroup: self._groups.forget,
            StopFlow: lambda action: self._change_flow(action.flow, lambda record: record.with_state("stopped")),
            StartFlow: self._start_flow,
            RetireTopics: lambda action: self._change_flow(action.flow, lambda record: record.without(action.topics)),
            ServeTopics: lambda action: self._change_flow(
                action.flow, lambda record: record.with_topics_again(action.topics)
            ),
            CheckHooks: lambda action: HookProblems(self._now(), self.hooks.problems(action.names)),
            CallHook: lambda action: self.hooks.call(action.name, action.point, action.key, action.body),
            ReadClock: lambda _action: ObservedTime(self._now(), int(time.time() * 1000)),
        }
        self._answers |= LiveFences(plan, self.settings, self._now).answers()
        self._answers |= LiveRights(flow, self.settings, self._now).answers()
        self._answers |= {LiftProtection: self._lift_protection, RestoreProtection: self._restore_protection}
        self._answers |= LiveFailover(flow, self.settings, self._now).answers()
        self._answers |= LiveRejoining(plan, flow.target, self.settings, self._now).answers()

    def answer(self, action: Action) -> Observation:
        """The observation that the action names, or Failed; other errors than those of clusters are bugs."""
        try:
            return self._answers[type(action)](action)
        except ClusterError as error:
            return ActionFailed(self._now(), str(error), isinstance(error, _ASK_AGAIN))
        except ReplicatorError as error:
            return ActionFailed(self._now(), str(error), transient=False)
        except ApplicationControlFailed as error:
            return ActionFailed(self._now(), str(error), error.transient)

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _cluster(self, action: ReadCluster) -> ObservedCluster:
        settings, admin = self.settings[action.side], self._admin[action.side]
        return ObservedCluster(self._now(), settings.alias, admin.cluster_id(), settings.cluster_id, admin.brokers())

    def _topics(self, action: ReadTopics) -> ObservedTopics:
        topics = self._admin[action.side].topics()
        return ObservedTopics(self._now(), {name: topic.partitions for name, topic in topics.items()})

    def _flow_seen(self, action: ReadFlow) -> ObservedFlow:
        flow = self._flow(action.flow)
        there = self._settings_of(flow.target)
        record = read_flow_to_change(there, flow.id)  # a run that would change it later stops here, at its beginning
        if record is None:
            return ObservedFlow(self._now(), "missing", same_plan=False)
        reports = [report for report in read_partition_statuses(there) if report.flow == flow.id]
        halted: dict[str, str] = {}
        for report in reports:
            if report.state in REMEDIES:
                halted[report.topic] = f"partition {report.partition} is {report.state}: {report.error}"
        same = (record.flow.topics, record.flow.naming, record.flow.source, record.flow.target) == (
            flow.topics,
            flow.naming,
            flow.source,
            flow.target,
        )
        paused = describe_topic_pauses(flow.id, record.pauses)
        if told := explain_breach(record, read_budget_breaches(there)):
            # It holds for every topic, and a halt by it is told with the same command.
            copied = {report.topic for report in reports} | paused.keys()
            paused, halted = dict.fromkeys(sorted(copied), told), {}
        return ObservedFlow(self._now(), record.state, same, halted, record.retired, paused, told)

    def _start_flow(self, action: StartFlow) -> ObservedFlow:
        begins = {topic: {int(at): offset for at, offset in each.items()} for topic, each in action.begin.items()}
        flow = self._flow(action.flow)
        breaches = read_budget_breaches(self._settings_of(flow.target)) if action.answers_breach else {}
        breach = breaches.get(flow.id)

        def start(record: FlowRecord) -> FlowRecord:
            return answer_breach(record.with_beginnings(begins).with_state("running"), breach)

        return self._change_flow(action.flow, start, breach)

    def _change_flow(
        self, name: str | None, change: Callable[[FlowRecord], FlowRecord], breach: BudgetBreach | None = None
    ) -> ObservedFlow:
        """breach: the flow's newest, which the change may answer."""
        flow = self._flow(name)
        there = self._settings_of(flow.target)
        record = read_flow_to_change(there, flow.id)
        if record is not None and change(record) != record:
            with ControlWriter(there, "watershed-cutover") as writer:
                write_breach_answer(writer, record, change(record), breach)
                write_flow(writer, change(record))
        return self._flow_seen(ReadFlow(flow.id))

    def _lift_protection(self, action: LiftProtection) -> ObservedRights:
        """The flow's record first: workers make no new denials behind it. A stopped flow (a failover stops it) protects
        nothing, so none of its denials is left."""
        flow = self._flow(action.flow)
        seen = self._change_flow(flow.id, lambda record: record.without_protection(action.topics))
        topics = None if seen.state == "stopped" else action.topics
        return open_protected_topics(self._settings_of(flow.target), flow, topics, self._now())

    def _restore_protection(self, action: RestoreProtection) -> ObservedRights:
        flow = self._flow(action.flow)
        self._change_flow(flow.id, lambda record: record.with_protection(action.topics))
        return protect_topics_again(self._settings_of(flow.target), flow, self._now())

    def _flow(self, name: str | None) -> PlanFlow:
        return self.flow if name is None else self.plan.flow(name)

    def _settings_of(self, alias: str) -> ConnectionSettings:
        return self.settings["target" if alias == self.flow.target else "source"]

    def _logs(self, action: ReadLogs) -> ObservedLogs:
        admin = self._admin[action.side]
        stable = admin.offsets(action.places, "read_committed")
        ends = admin.offsets(action.places, "read_uncommitted")
        return ObservedLogs(
            self._now(),
            {place: span.start for place, span in ends.items()},
            {place: span.end for place, span in stable.items()},
            {place: span.end for place, span in ends.items()},
        )

    def _copies(self, action: ReadCopies) -> ObservedCopies:
        flow = self._flow(action.flow)
        there = {place: TopicPartition(flow.target_topic(place.topic), place.partition) for place in action.places}
        # Log ends first: runs are announced before their batches are written, so the map covers these ends.
        side: ClusterSide = "target" if flow.target == self.flow.target else "source"
        ends = self._admin[side].offsets(there.values(), "read_uncommitted")
        if flow.id not in self._ledgers:
            self._ledgers[flow.id] = LedgerFollower(self.settings[side], flow.id, range(SLOT_COUNT))
        ledger = self._ledgers[flow.id].read()
        copies: dict[TopicPartition, CopiedPartition] = {}
        for place, target in there.items():
            try:
                found = ledger.map(flow.id, place.topic, place.partition)
            except NoLedger:
                continue
            copies[place] = CopiedPartition(found, ends[target].end)
        return ObservedCopies(self._now(), copies)

    def _records(self, action: ReadRecords) -> ObservedRecords:
        ids = None
        if action.side == "source" and self.flow.sync.schemas.translated:
            topics = sorted({place.topic for place in action.at})
            ids = read_schema_ids(self.flow, self.settings["source"], self.settings["target"], topics)
        records = read_first_records(self.settings[action.side], self._admin[action.side], action.at, ids=ids)
        return ObservedRecords(self._now(), records)

    def _application(self, action: ReadApplication) -> ObservedApplication:
        if action.told is not None:
            return self._state_seen(action.name, self.applications.follow(self._order(action.told)))
        return self._state_seen(action.name, self.applications.look(action.name))

    def _tell(self, action: StopApplication | StartApplication) -> ObservedApplication:
        return self._state_seen(action.name, self.applications.tell(self._order(action)))

    def _order(self, action: StopApplication | StartApplication) -> ApplicationOrder:
        settings = self.settings[action.side]
        verb: ApplicationVerb = "stop" if isinstance(action, StopApplication) else "start"
        other = "start" if verb == "stop" else "stop"
        return ApplicationOrder(
            verb,
            action.name,
            action.role,
            action.side,
            settings.alias,
            tuple(settings.bootstrap),
            f"{verb}/{action.side}/{action.name}",
            action.former if isinstance(action, StartApplication) else {},
            tuple((each.alias, f"{other}/{side}/{action.name}") for side, each in self.settings.items()),
            action.together,
        )

    def _state_seen(self, name: str, state: ApplicationState) -> ObservedApplication:
        return ObservedApplication(self._now(), name, state.state, state.cluster, state.by, state.text, state.former)


def _there(plan: Plan, flow: PlanFlow) -> PlanFlow | None:
    """The migration's flow, where `flow` is the way back."""
    forward = plan.flow(plan.migration.flow) if plan.migration is not None else flow
    return forward if (forward.source, forward.target) == (flow.target, flow.source) else None
