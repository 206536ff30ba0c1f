"""A small world to migrate in: two clusters, a flow, a producer and a consumer, all in memory, moved on by `sleep`.

Records are unique texts, so what was lost or read twice can be counted; None in a log is a transaction marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusters.names import TopicPartition
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
    Prove,
    Side,
    StartApplication,
    StopApplication,
    StopFlow,
)
from cutover.driver import Migration
from cutover.journal import Journal
from cutover.observations import (
    ApplicationSeen,
    ClusterSeen,
    CopiesSeen,
    Failed,
    FlowSeen,
    GroupSeen,
    LogsSeen,
    Observation,
    ProofSeen,
    RecordsSeen,
    TopicsSeen,
)
from cutover.offsets import CopiedPartition
from cutover.policy import Policy
from replicator.offsetmap import OffsetMap, Run
from topology.plan import (
    Application,
    Naming,
    Plan,
    PlanCluster,
    PlanFlow,
    Selector,
    TopicSelection,
    Wave,
    sealed,
)
from topology.plan import Migration as PlanMigration

TOPICS = {"orders": 2, "clicks": 1}
GROUP, PRODUCER = "billing", "checkout"
POLICY = Policy(
    poll_ms=500, max_lag=10, reach_ms=3_000, stall_ms=4_000, watch_ms=4_000, hold_ms=1_000,
    lag_bound_ms=20_000, empty_bound_ms=10_000,
    copied_bound_ms=10_000, drain_bound_ms=10_000, canary_bound_ms=5_000, barrier_bound_ms=5_000, consumer_lag=50,
    soak_bound_ms=10_000,
)  # fmt: skip


class Crash(BaseException):
    """The driver's process is gone."""


@dataclass
class FakeLog:
    """The journal's log as a list. `crash_at`: the n-th append dies, before or after it was stored."""

    records: list[dict[str, Any]] = field(default_factory=list)
    crash_at: int | None = None
    stored: bool = True
    on_append: Callable[[dict[str, Any]], None] | None = None

    def append(self, _key: str, value: dict[str, Any]) -> None:
        crash = self.crash_at is not None and len(self.records) == self.crash_at
        if not crash or self.stored:
            self.records.append(value)
        if crash:
            self.crash_at = None
            raise Crash
        if self.on_append is not None:
            self.on_append(value)

    def read(self, from_offset: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        yield from list(enumerate(self.records))[from_offset:]


@dataclass
class Client:
    side: Side
    running: bool = True


class World:
    """`answer` is what a driver calls. `hook` may answer (or crash) instead; `copying` False stops the flow."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.logs: dict[Side, dict[TopicPartition, list[str | None]]] = {"source": {}, "target": {}}
        self.runs: dict[TopicPartition, list[Run]] = {}
        self.position: dict[TopicPartition, int] = {}
        for topic, count in TOPICS.items():
            for number in range(count):
                place = TopicPartition(topic, number)
                self.logs["source"][place] = []
                self.logs["target"][target_of(place)] = []
                self.runs[place], self.position[place] = [Run(0, 0)], 0
        self.offsets: dict[Side, dict[str, dict[TopicPartition, int]]] = {"source": {GROUP: {}}, "target": {}}
        self.strangers: dict[Side, int] = {"source": 0, "target": 0}  # members of the group that are not ours
        self.apps = {GROUP: Client("source"), PRODUCER: Client("source")}
        self.copying = True
        self.flow_state = "running"
        self.open_transaction: dict[TopicPartition, int] = {}
        self.written = 0
        self.processed: list[str] = []
        self.verdict: ProofSeen | None = None
        self.hook: Callable[[Action], Observation | None] = lambda _action: None
        self.said: list[str] = []
        self.new_topics: dict[str, int] = {}  # more of what the clusters have
        self.nobody: set[str] = set()  # applications without an endpoint, and nobody who could be asked
        self.starts: dict[TopicPartition, int] = {}  # log starts at the source, where they are not 0
        for _ in range(12):
            self.tick()

    # -- time -------------------------------------------------------------------------------------------------

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.tick()

    def tick(self) -> None:
        producer, consumer = self.apps[PRODUCER], self.apps[GROUP]
        if producer.running:
            for place in self.logs[producer.side]:
                self.write(producer.side, place)
        if self.copying:
            self.copy()
        if consumer.running:
            self.consume(consumer.side)

    def write(self, side: Side, place: TopicPartition) -> None:
        self.written += 1
        log = self.logs[side][place]
        log.append(f"record {self.written}")
        if self.written % 3 == 0 and side == "source":
            log.append(None)  # a commit marker

    def copy(self) -> None:
        for place, log in self.logs["source"].items():
            there = self.logs["target"][target_of(place)]
            while self.position[place] < len(log):
                record = log[self.position[place]]
                self.position[place] += 1
                if record is None:
                    self.runs[place].append(Run(len(there), self.position[place]))
                else:
                    there.append(record)

    def consume(self, side: Side) -> None:
        """Reads to the end but one record, so that commits are seldom at the end."""
        committed = self.offsets[side].setdefault(GROUP, {})
        for place, log in self.logs[side].items():
            at = committed.get(place, 0)
            while at < len(log) - 1:
                record = log[at]
                at += 1
                if record is not None:
                    self.processed.append(record)
            committed[place] = at

    def settle(self) -> None:
        """Let the producer end and the consumer read everything there is."""
        self.apps[PRODUCER].running = False
        side = self.apps[GROUP].side
        for log in self.logs[side].values():
            log.append(None)
        self.tick()

    # -- answers ----------------------------------------------------------------------------------------------

    def answer(self, action: Action) -> Observation:
        hooked = self.hook(action)
        if hooked is not None:
            return hooked
        at = int(self.now * 1000)
        match action:
            case LookAtCluster(side):
                return ClusterSeen(at, side, f"id-of-{side}", None, 1)
            case LookAtTopics(side):
                rename = (lambda name: name) if side == "source" else (lambda name: f"dc.{name}")
                return TopicsSeen(
                    at, {rename(name): count for name, count in TOPICS.items()} | {"other": 1} | self.new_topics
                )
            case LookAtFlow():
                return FlowSeen(at, self.flow_state, same_plan=True)
            case StopFlow():
                self.flow_state = "stopped"
                return FlowSeen(at, self.flow_state, same_plan=True)
            case LookAtGroup(side, group):
                return self._group(at, side, group)
            case LookAtLogs(side, places):
                ends = {place: len(self.logs[side][place]) for place in places}
                stable = {place: end - self.open_transaction.get(place, 0) for place, end in ends.items()}
                starts = {place: self.starts.get(place, 0) if side == "source" else 0 for place in places}
                return LogsSeen(at, starts, stable, ends)
            case LookAtCopies(places):
                return CopiesSeen(at, {place: self._copied(place) for place in places})
            case LookAtRecords(side, offsets):
                return RecordsSeen(at, {p: self._record(self.logs[side][p], o) for p, o in offsets.items()})
            case LookAtApplication(name):
                return self._application(at, name)
            case StopApplication(name):
                self.apps[name].running = False
                return self._application(at, name)
            case StartApplication(name, _role, side):
                self.apps[name] = Client(side)
                return self._application(at, name)
            case CommitOffsets(side, group, offsets):
                if self._members(side, group):
                    return Failed(at, f"group {group} is not empty", transient=False)
                self.offsets[side].setdefault(group, {}).update(offsets)
                return self._group(at, side, group)
            case ForgetGroup(side, group):
                self.offsets[side].pop(group, None)
                return self._group(at, side, group)
        raise AssertionError(action)

    def prove(self, action: Prove) -> ProofSeen:
        """Compares what is there: every committed source record below the position, in order, on the target."""
        if self.verdict is not None:
            return self.verdict
        missing = pending = 0
        for place, log in self.logs["source"].items():
            copied = [record for record in log[: self.position[place]] if record is not None]
            pending += len([record for record in log[self.position[place] :] if record is not None])
            missing += copied != self.logs["target"][target_of(place)]
        verdict = "proven" if not missing and not (action.final and pending) else "incomplete"
        counts = {"proven": self.written - pending, "missing": missing, "pending": pending}
        return ProofSeen(0, verdict, missing, counts, f"/proofs/{'tail' if action.final else 'history'}.json", "root")

    def _copied(self, place: TopicPartition) -> CopiedPartition:
        return CopiedPartition(OffsetMap(tuple(self.runs[place])), len(self.logs["target"][target_of(place)]))

    def _members(self, side: Side, group: str) -> int:
        app = self.apps[group]
        return self.strangers[side] + (app.running and app.side == side)

    def _group(self, at: int, side: Side, group: str) -> GroupSeen:
        members = self._members(side, group)
        return GroupSeen(at, group, "Stable" if members else "Empty", members, dict(self.offsets[side].get(group, {})))

    def _application(self, at: int, name: str) -> ApplicationSeen:
        app = self.apps[name]
        if name in self.nobody:
            return ApplicationSeen(at, name, "unknown", None, "nobody")
        alias = {"source": "onprem", "target": "cloud"}[app.side]
        return ApplicationSeen(at, name, "running" if app.running else "stopped", alias)

    @staticmethod
    def _record(log: list[str | None], offset: int) -> str | None:
        return next((record for record in log[offset:] if record is not None), None)


def target_of(place: TopicPartition) -> TopicPartition:
    return TopicPartition(f"dc.{place.topic}", place.partition)


def a_plan(policy_free_note: str = "", topics: tuple[str, ...] = (), **wave: Any) -> Plan:
    """The plan that fits the world. `policy_free_note` changes the hash and nothing else; the flow carries `topics`
    besides those of the world."""
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
    migration = PlanMigration(
        flow=flow.id,
        strategy="consumers_first",
        waves=(Wave(**(fields | wave)),),
        applications={GROUP: Application("http://127.0.0.1:1"), PRODUCER: Application("http://127.0.0.1:2")},
    )
    proofs = {"note": policy_free_note}
    return sealed(Plan(topology="shop", clusters=clusters, flows=(flow,), migration=migration, proofs=proofs))


def a_migration(world: World, log: FakeLog, holder: str = "first", **changes: Any) -> Migration:
    """A driver over the fake world, as a process called `holder`."""
    arguments: dict[str, Any] = {
        "prove": world.prove,
        "say": lambda event: world.said.append(f"{event.step}: {event.kind}: {event.text}"),
        "clock": world.clock,
        "sleep": world.sleep,
        "journal": Journal(log, "shop", holder, world.clock),
        "world": world,
        "policy": POLICY,
        "actor": "ann",
    }
    plan = changes.pop("plan", a_plan())
    return Migration(plan, changes.pop("wave", None), **(arguments | changes))
