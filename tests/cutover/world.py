"""A small world to migrate in: two clusters, a flow, a producer and a consumer, all in memory, moved on by `sleep`.

Records are unique texts, so what was lost or read twice can be counted; None in a log is a transaction marker. It
answers our own port (actions of a step); groups follow Kafka's rules by `FakeGroups`, logs are lists (decision 0078).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.cutover.drivers import build_driver
from tests.cutover.fake_log import Crash as Crash
from tests.cutover.fake_log import FakeLog
from watershed.clusters.errors import GroupNotEmpty
from watershed.clusters.fake_groups import FakeGroups
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    Action,
    CallHook,
    CheckHooks,
    ClusterSide,
    CommitOffsets,
    FindReaders,
    FindWriters,
    ForgetGroup,
    GiveRights,
    JsonObject,
    LiftProtection,
    LowerFence,
    RaiseFence,
    ReadApplication,
    ReadClock,
    ReadCluster,
    ReadCopies,
    ReadFence,
    ReadFlow,
    ReadGroup,
    ReadGroupConfigs,
    ReadLogs,
    ReadRecords,
    ReadRights,
    ReadTopics,
    RequestProof,
    RestoreProtection,
    RetireTopics,
    ServeTopics,
    StartApplication,
    StartFlow,
    StopApplication,
    StopFlow,
    TakeRights,
)
from watershed.cutover.driver import RunDriver
from watershed.cutover.journal.hash_chain import Journal
from watershed.cutover.observations import (
    ActionFailed,
    HookAnswer,
    HookProblems,
    Observation,
    ObservedApplication,
    ObservedCluster,
    ObservedCopies,
    ObservedFence,
    ObservedFlow,
    ObservedGroup,
    ObservedGroupConfigs,
    ObservedLogs,
    ObservedReaders,
    ObservedRecords,
    ObservedRights,
    ObservedTime,
    ObservedTopics,
    ObservedWriter,
    ObservedWriters,
    ProofOutcome,
)
from watershed.cutover.policy import WavePolicy
from watershed.replicator.ledger.offset_map import OffsetMap, OffsetRun
from watershed.replicator.ledger.offset_translation import CopiedPartition
from watershed.topology.acl_translation import is_acl_about
from watershed.topology.application_controls import PlanApplication
from watershed.topology.inventory import InventoryAcl
from watershed.topology.migration_waves import PlanMigration as PlanMigration
from watershed.topology.migration_waves import Wave
from watershed.topology.naming import Naming
from watershed.topology.plan import Plan, PlanCluster, PlanFlow, seal_plan
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import AclSync

TOPICS = {"orders": 2, "clicks": 1}
GROUP, PRODUCER = "billing", "checkout"
REVERSE = "cloud-to-onprem"
A_RIGHT: JsonObject = asdict(InventoryAcl("User:checkout", "WRITE", "ALLOW", "TOPIC", "dc.orders", "LITERAL"))
EVIDENCE = Path(tempfile.gettempdir()) / f"watershed-evidence-{os.getpid()}"  # of whoever does not ask for it
POLICY = WavePolicy(
    poll_ms=500, max_lag=10, reach_ms=3_000, stall_ms=4_000, watch_ms=4_000, hold_ms=1_000,
    lag_bound_ms=20_000, empty_bound_ms=10_000,
    copied_bound_ms=10_000, drain_bound_ms=10_000, canary_bound_ms=5_000, barrier_bound_ms=5_000, consumer_lag=50,
    soak_bound_ms=10_000,
)  # fmt: skip


@dataclass
class Client:
    side: ClusterSide
    running: bool = True


class World:
    """`answer` is what a driver calls. `hook` may answer (or crash) instead; `copying` False stops the flow.

    topics: name → partitions. writes, reads: what each producer writes and each group reads, all topics for the only
    ones. The way back copies what the forward flow did not bring, and the forward flow not what came back.
    """

    stands_still = ""  # the flow that a migration follows: which budget stopped it (worlds of v0.1.0 do not know)

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        writes: Mapping[str, tuple[str, ...]] | None = None,
        reads: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.topics = dict(topics or TOPICS)
        self.writes = dict(writes or {PRODUCER: tuple(self.topics)})
        self.reads = dict(reads or {GROUP: tuple(self.topics)})
        self.now = 1_000.0
        self.logs: dict[ClusterSide, dict[TopicPartition, list[str | None]]] = {"source": {}, "target": {}}
        self.runs: dict[TopicPartition, list[OffsetRun]] = {}
        self.position: dict[TopicPartition, int] = {}
        for topic, count in self.topics.items():
            for number in range(count):
                place = TopicPartition(topic, number)
                self.logs["source"][place] = []
                self.logs["target"][target_of(place)] = []
                self.runs[place], self.position[place] = [OffsetRun(0, 0)], 0
        self.groups: dict[ClusterSide, FakeGroups] = {"source": FakeGroups("onprem"), "target": FakeGroups("cloud")}
        for group in self.reads:
            self.groups["source"].commit_as_member(group, {})
        self.kept: dict[TopicPartition, int] = {}  # positions at the target that `sync.groups` carried there
        self.strangers: dict[ClusterSide, int] = {"source": 0, "target": 0}  # members of the group that are not ours
        self.other_readers: dict[str, tuple[str, ...]] = {}  # live groups at the source that no wave moves
        self.apps = {name: Client("source") for name in (*self.reads, *self.writes)}
        self.copying = True
        self.flow_state = "running"
        self.reverse_state = "paused"
        self.paused: dict[str | None, dict[str, str]] = {None: {}, REVERSE: {}}  # by flow: topic → who paused it
        self.retired: dict[str | None, set[str]] = {None: set(), REVERSE: set()}  # by flow; None: the forward one
        self.returned: dict[TopicPartition, int] = {}  # by target partition: how far the way back has read
        self.brought: set[str] = set()  # by the forward flow
        self.came_back: set[str] = set()
        self.births: dict[str, TopicPartition] = {}  # record → its partition at the source
        self._ends: dict[tuple[str, TopicPartition], int] = {}
        self.open_transaction: dict[TopicPartition, int] = {}
        self.written = 0
        self.processed: list[str] = []
        self.verdict: ProofOutcome | None = None
        self.hook: Callable[[Action], Observation | None] = lambda _action: None
        self.said: list[str] = []
        self.new_topics: dict[str, int] = {}  # more of what the clusters have
        self.nobody: set[str] = set()  # applications without an endpoint, and nobody who could be asked
        self.starts: dict[TopicPartition, int] = {}  # log starts at the source, where they are not 0
        self.wall = 1_900_000_000.0  # seconds since 1970 at the clock's 0
        self.fenced: JsonObject | None = None  # the snapshot with which the fence was raised
        self.withheld: tuple[JsonObject, ...] = ()  # rights without which nobody writes to the target
        self.given: list[JsonObject] = []
        self.protected: set[str] = set()  # source topics whose copies refuse applications
        self.unable = ""  # what keeps us from giving them
        self.unwritten = 0  # by producers without their rights
        self.group_configs: dict[ClusterSide, dict[str, str]] = {"source": {}, "target": {}}
        self.group_configs_untold = ""
        self.carriers: tuple[str, ...] = ()  # flows of other files that carry what fences are made of
        self.started_flows: list[str] = []
        self.called: list[tuple[str, str, str]] = []
        self.refusing_hooks: set[str] = set()
        for _ in range(12):
            self.tick()

    @property
    def offsets(self) -> dict[ClusterSide, dict[str, dict[TopicPartition, int]]]:
        """What groups have committed on each side, to look at and to tamper with."""
        return {side: groups.committed for side, groups in self.groups.items()}

    # -- time -------------------------------------------------------------------------------------------------

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.tick()

    def tick(self) -> None:
        for name, topics in self.writes.items():
            producer = self.apps[name]
            if producer.side == "target" and (
                self.protected & set(topics) or any(right not in self.given for right in self.withheld)
            ):
                self.unwritten += producer.running
                continue
            for place in self.places(producer.side, topics) if producer.running else ():
                self.write(producer.side, place)
        if self.copying:
            self.copy()
        if self.reverse_state == "running":
            self.copy_back()
        for group in self.reads:
            if self.apps[group].running:
                self.consume(self.apps[group].side, group)

    def places(self, side: ClusterSide, topics: tuple[str, ...]) -> list[TopicPartition]:
        found = [place for place in self.logs["source"] if place.topic in topics]
        return found if side == "source" else [target_of(place) for place in found]

    def write(self, side: ClusterSide, place: TopicPartition) -> None:
        self.written += 1
        log = self.logs[side][place]
        log.append(f"record {self.written}")
        self.births[f"record {self.written}"] = place if side == "source" else source_of(place)
        if self.written % 3 == 0 and side == "source":
            log.append(None)  # a commit marker

    def copy(self) -> None:
        for place, log in self.logs["source"].items():
            there = self.logs["target"][target_of(place)]
            while (
                place.topic not in self.retired[None]
                and place.topic not in self.paused[None]
                and self.position[place] < len(log)
            ):
                record = log[self.position[place]]
                self.position[place] += 1
                if record is None or record in self.came_back:
                    self.runs[place].append(OffsetRun(len(there), self.position[place]))
                else:
                    there.append(record)
                    self.brought.add(record)

    def copy_back(self) -> None:
        for place, log in self.logs["source"].items():
            there = target_of(place)
            if there.topic in self.retired[REVERSE]:
                continue
            at, self.returned[there] = self.returned.get(there, 0), len(self.logs["target"][there])
            for record in self.logs["target"][there][at:]:
                if record is not None and record not in self.brought:
                    log.append(record)
                    self.came_back.add(record)

    def consume(self, side: ClusterSide, group: str) -> None:
        """Reads to the end but one record while the log grows, so that commits are seldom at the end; to the last
        record where it stands still. What is no record is not committed past."""
        committed = self.groups[side].committed.get(group, {})
        now: dict[TopicPartition, int] = {}
        for place in self.places(side, self.reads[group]):
            log = self.logs[side][place]
            still = self._ends.get((group, place)) == len(log)
            self._ends[group, place] = len(log)
            at = committed.get(place, 0)
            end = len(log)
            while still and end and log[end - 1] is None:
                end -= 1
            while at < (end if still else end - 1):
                record = log[at]
                at += 1
                if record is not None:
                    self.processed.append(record)
            now[place] = at
        self.groups[side].commit_as_member(group, now)

    def settle(self) -> None:
        """Let producers end and consumers read everything there is."""
        for name in self.writes:
            self.apps[name].running = False
        self.tick()
        self.tick()

    # -- answers ----------------------------------------------------------------------------------------------

    def answer(self, action: Action) -> Observation:
        hooked = self.hook(action)
        if hooked is not None:
            return hooked
        at = int(self.now * 1000)
        match action:
            case ReadCluster(side):
                return ObservedCluster(at, side, f"id-of-{side}", None, 1)
            case ReadTopics(side):
                rename = (lambda name: name) if side == "source" else (lambda name: f"dc.{name}")
                return ObservedTopics(
                    at, {rename(name): count for name, count in self.topics.items()} | {"other": 1} | self.new_topics
                )
            case ReadFlow(name):
                return self._flow(at, name)
            case StopFlow(name):
                assert name is None
                self.flow_state = "stopped"
                return self._flow(at, name)
            case StartFlow(name):
                self.started_flows.append(name)
                self.reverse_state = "running"
                return self._flow(at, name)
            case RetireTopics(topics, name):
                self.retired[name].update(topics)
                return self._flow(at, name)
            case ServeTopics(topics, name):
                self.retired[name].difference_update(topics)
                return self._flow(at, name)
            case ReadClock():
                return ObservedTime(at, int(self.wall * 1000) + at)
            case ReadFence(kind, _side, _topics, names):
                snapshot = {"kind": kind, "of": list(names)}
                return ObservedFence(at, self.fenced is not None, snapshot, carriers=self.carriers)
            case RaiseFence(kind, _side, _topics, _names, snapshot):
                self.fenced = snapshot
                return ObservedFence(at, True, snapshot, f"{kind} fence is up")
            case LowerFence(kind, _side, _topics, _names, snapshot):
                assert self.fenced in (None, snapshot), "lowered by another snapshot than it was raised with"
                self.fenced = None
                return ObservedFence(at, False, snapshot, f"{kind} fence is down")
            case FindWriters(side, _places, since):
                return self._writers(at, side, since or {})
            case ReadRights(topics, groups):
                mine = [
                    each for each in self.withheld if not topics or is_acl_about(InventoryAcl(**each), topics, groups)
                ]
                missing = tuple(right for right in mine if right not in self.given)
                there = tuple(right for right in mine if right in self.given)
                known_ms = int(self.wall * 1000) + at
                return ObservedRights(at, bool(self.withheld), missing, there, {}, self.unable, known_ms)
            case GiveRights(rights):
                self.given += [right for right in rights if right not in self.given]
                return ObservedRights(at, True, (), rights)
            case TakeRights(_, rights):
                self.given = [right for right in self.given if right not in rights]
                return ObservedRights(at, True, rights)
            case LiftProtection(topics):
                lifted = tuple(a_denial(topic) for topic in sorted(self.protected & set(topics)))
                self.protected -= set(topics)
                return ObservedRights(at, True, lifted)
            case RestoreProtection(topics):
                self.protected |= set(topics)
                return ObservedRights(at, True, (), tuple(map(a_denial, sorted(self.protected))))
            case CheckHooks():
                return HookProblems(at, ())
            case CallHook(name, point, key):
                self.called.append((name, point, key))
                return HookAnswer(at, name not in self.refusing_hooks, f"{name} answered")
            case FindReaders():
                return ObservedReaders(at, self.other_readers)
            case ReadGroupConfigs(side, group):
                return ObservedGroupConfigs(at, self.group_configs[side], self.group_configs_untold)
            case ReadGroup(side, group):
                return self._group(at, side, group)
            case ReadLogs(side, places):
                ends = {place: len(self.logs[side][place]) for place in places}
                stable = {place: end - self.open_transaction.get(place, 0) for place, end in ends.items()}
                starts = {place: self.starts.get(place, 0) if side == "source" else 0 for place in places}
                return ObservedLogs(at, starts, stable, ends)
            case ReadCopies(places):
                return ObservedCopies(at, {place: self._copied(place) for place in places})
            case ReadRecords(side, offsets):
                return ObservedRecords(at, {p: self._record(self.logs[side][p], o) for p, o in offsets.items()})
            case ReadApplication(name):
                return self._application(at, name)
            case StopApplication(name):
                self.apps[name].running = False
                return self._application(at, name)
            case StartApplication(name, _role, side):
                self.apps[name] = Client(side)
                return self._application(at, name)
            case CommitOffsets(side, group, offsets):
                return self._change(at, side, group, lambda groups: groups.commit(group, offsets))
            case ForgetGroup(side, group):
                return self._change(at, side, group, lambda groups: groups.delete(group))
        raise AssertionError(action)

    def prove(self, action: RequestProof) -> ProofOutcome:
        """Compares what is there: every committed source record below the position, in order, on the target."""
        if self.verdict is not None:
            return self.verdict
        missing = pending = 0
        for place, log in self.logs["source"].items():
            if place.topic not in action.topics:
                continue
            copied = [record for record in log[: self.position[place]] if record is not None]
            pending += len([record for record in log[self.position[place] :] if record is not None])
            missing += copied != self.logs["target"][target_of(place)]
        verdict = "proven" if not missing and not (action.final and pending) else "incomplete"
        counts = {"proven": self.written - pending, "missing": missing, "pending": pending}
        return ProofOutcome(
            0, verdict, missing, counts, f"/proofs/{'tail' if action.final else 'history'}.json", "root"
        )

    def _flow(self, at: int, name: str | None) -> ObservedFlow:
        state = self.flow_state if name is None else self.reverse_state
        retired = frozenset(self.retired[name])
        return ObservedFlow(at, state, same_plan=True, retired=retired, paused_topics=dict(self.paused[name]))

    def _writers(self, at: int, side: ClusterSide, since: Mapping[TopicPartition, int]) -> ObservedWriters:
        found = [
            ObservedWriter(place, 7, 0, at, "", 0, n, n, 1, REVERSE if record in self.came_back else "", record is None)
            for place, begin in since.items()
            for n, record in enumerate(self.logs[side][place])
            if n >= begin
        ]
        return ObservedWriters(at, tuple(found), {place: len(self.logs[side][place]) for place in since})

    def _copied(self, place: TopicPartition) -> CopiedPartition:
        return CopiedPartition(OffsetMap(tuple(self.runs[place])), len(self.logs["target"][target_of(place)]))

    def _members(self, side: ClusterSide, group: str) -> int:
        app = self.apps[group]
        return self.strangers[side] + (app.running and app.side == side)

    def _gather(self, side: ClusterSide, group: str) -> FakeGroups:
        """Lets the group have the members that it has by now."""
        groups, members = self.groups[side], self._members(side, group)
        if groups.describe(group).members != members:
            groups.leave(group)
            groups.join(group, members)
        return groups

    def _change(self, at: int, side: ClusterSide, group: str, change: Callable[[FakeGroups], None]) -> Observation:
        try:
            change(self._gather(side, group))
        except GroupNotEmpty as error:
            return ActionFailed(at, str(error), transient=False)
        return self._group(at, side, group)

    def _group(self, at: int, side: ClusterSide, group: str) -> ObservedGroup:
        found = self._gather(side, group).describe(group)
        kept = {place for place, at in found.offsets.items() if side == "target" and self.kept.get(place) == at}
        return ObservedGroup(at, group, found.state, found.members, found.offsets, frozenset(kept))

    def _application(self, at: int, name: str) -> ObservedApplication:
        app = self.apps[name]
        if name in self.nobody:
            return ObservedApplication(at, name, "unknown", None, "nobody")
        alias = {"source": "onprem", "target": "cloud"}[app.side]
        return ObservedApplication(at, name, "running" if app.running else "stopped", alias)

    @staticmethod
    def _record(log: list[str | None], offset: int) -> str | None:
        return next((record for record in log[offset:] if record is not None), None)


def target_of(place: TopicPartition) -> TopicPartition:
    return TopicPartition(f"dc.{place.topic}", place.partition)


def source_of(place: TopicPartition) -> TopicPartition:
    return TopicPartition(place.topic.removeprefix("dc."), place.partition)


def a_plan(policy_free_note: str = "", topics: tuple[str, ...] = (), waves: tuple[Wave, ...] = (), **wave: Any) -> Plan:
    """The plan that fits the world. `policy_free_note` changes the hash and nothing else; the flow carries `topics`
    besides those of the world. Without `waves` there is one, of everything."""
    clusters = (PlanCluster("cloud", ("127.0.0.1:2",)), PlanCluster("onprem", ("127.0.0.1:1",)))
    flow = PlanFlow(
        id="onprem-to-cloud",
        source="onprem",
        target="cloud",
        topics=TopicSelection(include=tuple(Selector("literal", name) for name in sorted((*TOPICS, *topics)))),
        naming=Naming("prefix", before="dc."),
    )
    fields: dict[str, Any] = {
        "name": "all",
        "topics": tuple(sorted(TOPICS)),
        "consumers": (GROUP,),
        "producers": (PRODUCER,),
    }
    back = PlanFlow(
        id=REVERSE,
        source="cloud",
        target="onprem",
        topics=TopicSelection(include=(Selector("glob", "dc.*"),)),
        naming=Naming("map", map=tuple((f"dc.{name}", name) for name in sorted((*TOPICS, *topics)))),
    )
    found = waves or (Wave(**(fields | wave)),)
    migration = PlanMigration(
        flow=flow.id,
        strategy="consumers_first",
        waves=found,
        applications={
            name: PlanApplication("http://127.0.0.1:1") for each in found for name in each.consumers + each.producers
        },
    )
    proofs = {"note": policy_free_note}
    return seal_plan(Plan(topology="shop", clusters=clusters, flows=(flow, back), migration=migration, proofs=proofs))


def a_denial(topic: str) -> JsonObject:
    return {**A_RIGHT, "permission": "DENY", "name": f"dc.{topic}"}


def holding_back(plan: Plan) -> Plan:
    """Its flow there holds rights to write back until applications move, and protects its topics."""
    there, *others = plan.flows
    sync = replace(there.sync, acls=AclSync("continuous", include_write="on_failover"))
    return seal_plan(replace(plan, flows=(replace(there, sync=sync, protect=True), *others)))


def a_migration(world: World, log: FakeLog, holder: str = "first", **changes: Any) -> RunDriver:
    """A driver over the fake world, as a process called `holder`."""
    arguments: dict[str, Any] = {
        "prove": world.prove,
        "say": lambda event: world.said.append(f"{event.step}: {event.kind}: {event.text}"),
        "clock": world.clock,
        "sleep": world.sleep,
        "journal": Journal(log, "shop", holder, world.clock),
        "handler": world,
        "policy": POLICY,
        "actor": "ann",
        "evidence": EVIDENCE,
    }
    plan = changes.pop("plan", a_plan())
    return build_driver(plan, changes.pop("wave", None), **(arguments | changes))
