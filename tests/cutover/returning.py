"""Waves that go there and back on real brokers with real workers. Their applications live in this process and do just
what they are told, so that a test says where a group stands when it is moved."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from tests.replicator.real import plan_for, read_all
from tests.replicator.status_view import read_statuses
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.actions import RequestProof
from watershed.cutover.driver import RunDriver, RunEvent
from watershed.cutover.journal.hash_chain import JournalChain
from watershed.cutover.journal.journal_topic import JournalTopicLog
from watershed.cutover.live.applications.application_adapter import ApplicationOrder, ApplicationState
from watershed.cutover.observations import ProofOutcome
from watershed.cutover.policy import WavePolicy
from watershed.cutover.rollback.rollback_plan import plan_rollback
from watershed.cutover.run_opening import open_run
from watershed.cutover.run_plan import RunPlan, plan_migration
from watershed.lab.preload import create_lab_topics
from watershed.topology.application_controls import PlanApplication
from watershed.topology.migration_waves import PlanMigration as PlanMigration
from watershed.topology.migration_waves import RollbackPolicy, Wave, WaveStrategy
from watershed.topology.naming import Naming
from watershed.topology.plan import Plan, seal_plan

PARTITIONS = 3  # the last one stays empty
POLICY = WavePolicy(
    poll_ms=150, max_lag=5_000, hold_ms=0, hold_times=1, watch_ms=400, empty_times=2, after_ms=300,
    stall_ms=180_000, barrier_bound_ms=180_000, canary_bound_ms=180_000,
)  # fmt: skip
HOME, AWAY = "onprem", "cloud"


class Writer:
    """Writes a burst at every start, in transactions of which every other one is aborted first and written again."""

    def __init__(self, scene: Scene, wave: str) -> None:
        self.name, self.topic, self.acked = f"writes-{wave}", scene.topics[wave], list[str]()
        self.cluster: str | None = None
        self._scene = scene

    def start(self, alias: str) -> None:
        if self.cluster == alias:
            return
        own = {"transactional.id": f"{self._scene.name}-{self.name}", "linger.ms": 0}
        self._producer = Producer(self._scene.settings[alias].librdkafka(own))
        self._producer.init_transactions(60)
        self.cluster = alias
        self.write(30)

    def write(self, count: int) -> None:
        first = len(self.acked)
        for turn, at in enumerate(range(first, first + count, 5)):
            numbers = range(at, min(at + 5, first + count))
            for _ in range(turn % 2):
                self._transaction([f"{self.name} {number} aborted" for number in numbers])
                self._producer.abort_transaction(60)
            words = [f"{self.name} {number}" for number in numbers]
            self._transaction(words)
            self._producer.commit_transaction(60)
            self.acked += words

    def _transaction(self, words: list[str]) -> None:
        assert self.cluster is not None
        self._producer.begin_transaction()
        for word in words:
            partition = int(word.split()[1]) % (PARTITIONS - 1)
            self._producer.produce(self._scene.called(self.topic, self.cluster), word.encode(), partition=partition)
        assert self._producer.flush(60) == 0

    def stop(self) -> None:
        self.cluster = None


class Reader:
    """Commits every record that it reads. most: so many it reads before it only stays in its group; None: all."""

    def __init__(self, scene: Scene, wave: str) -> None:
        self.name, self.topic = scene.group(wave), scene.topics[wave]
        self.cluster: str | None = None
        self.read = list[tuple[int, str]]()
        self.most: int | None = None
        self._scene, self._over = scene, threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, alias: str) -> None:
        if self.cluster == alias:
            return
        own = {"group.id": self.name, "enable.auto.commit": False, "isolation.level": "read_committed"}
        own |= {"auto.offset.reset": "error" if self.read else "earliest", "session.timeout.ms": 30_000}
        consumer = Consumer(self._scene.settings[alias].librdkafka(own))
        consumer.subscribe([self._scene.called(self.topic, alias)])
        self.cluster = alias
        self._over.clear()
        self._thread = threading.Thread(target=self._run, args=(consumer,), daemon=True)
        self._thread.start()

    def _run(self, consumer: Consumer) -> None:
        begun = len(self.read)
        while not self._over.is_set():
            enough = self.most is not None and len(self.read) - begun >= self.most
            parts = consumer.assignment()
            if parts:
                (consumer.pause if enough else consumer.resume)(parts)
            message = consumer.poll(0.05)
            if message is None or message.error() is not None:
                continue
            value = message.value()
            assert value is not None
            self.read.append((message.partition() or 0, value.decode()))
            consumer.commit(message, asynchronous=False)
        consumer.close()

    def stop(self) -> None:
        if self._thread is not None:
            self._over.set()
            self._thread.join()
        self.cluster = self._thread = None


@dataclass
class Scene:
    """A topic, a writer and a group for each wave; one flow there that renames them, and one back."""

    settings: dict[str, ConnectionSettings]
    waves: dict[str, WaveStrategy]
    home: Path
    name: str = field(default_factory=lambda: f"back-{secrets.token_hex(3)}")
    events: list[RunEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topics = {wave: f"{self.name}.{wave}" for wave in self.waves}
        create_lab_topics(self.settings[HOME].bootstrap[0], list(self.topics.values()), PARTITIONS)
        self.writers, self.readers = self.build_applications()
        self.applications = {app.name: app for app in (*self.writers.values(), *self.readers.values())}
        self.plan = self._plan()

    def build_applications(self) -> tuple[dict[str, Writer], dict[str, Reader]]:
        return {wave: Writer(self, wave) for wave in self.waves}, {wave: Reader(self, wave) for wave in self.waves}

    def _plan(self) -> Plan:
        names = tuple((topic, self.called(topic, AWAY)) for topic in self.topics.values())
        forward = plan_for(
            self.settings, self.name, *self.topics.values(), delivery="transactions", naming=Naming("map", map=names)
        )
        there = forward.flows[0]
        back = plan_for(
            self.settings, self.name, *(there.target_topic(topic) for topic in self.topics.values()),
            routes=((AWAY, HOME),), delivery="transactions", state="paused",
            naming=Naming("map", map=tuple((new, old) for old, new in names)),
        ).flows[0]  # fmt: skip
        waves = self.declare_waves(RollbackPolicy(until_ms=3_600_000, reverse=back.id))
        addresses = {name: PlanApplication("http://127.0.0.1:1") for name in self.applications}
        migration = PlanMigration(there.id, "fenced", waves, addresses)
        return seal_plan(replace(forward, flows=(there, back), migration=migration))

    def declare_waves(self, way: RollbackPolicy) -> tuple[Wave, ...]:
        return tuple(
            Wave(wave, (self.topics[wave],), (self.group(wave),), (self.writers[wave].name,), strategy=strategy,
                 rollback=way)
            for wave, strategy in self.waves.items()
        )  # fmt: skip

    def called(self, topic: str, alias: str) -> str:
        return topic if alias == HOME else f"{topic}.new"

    def group(self, wave: str) -> str:
        return f"{self.name}-reads-{wave}"

    def look(self, name: str) -> ApplicationState:
        app = self.applications[name]
        return ApplicationState("running" if app.cluster else "stopped", app.cluster, "endpoint")

    def tell(self, order: ApplicationOrder) -> ApplicationState:
        app = self.applications[order.name]
        if order.verb == "stop":
            app.stop()
        else:
            app.start(order.alias)
        return self.look(order.name)

    def follow(self, order: ApplicationOrder) -> ApplicationState:
        return self.look(order.name)

    def served(self) -> bool:
        flow = self.plan.flows[0].id
        seen = {(each.topic, each.partition) for each in read_statuses(self.settings[AWAY]) if each.flow == flow}
        return len(seen) == PARTITIONS * len(self.topics)

    def chain(self) -> JournalChain:
        chain = JournalChain(self.name)
        chain.follow(JournalTopicLog(self.settings[AWAY]).read(0))
        return chain

    def there(self, wave: str, **changes: Any) -> RunDriver:
        declared = plan_migration(self.plan, wave).policy
        policy = replace(
            POLICY,
            strategy=declared.strategy,
            reverse=declared.reverse,
            producer_waves=declared.producer_waves,
            late_groups=declared.late_groups,
        )
        return self._run(plan_migration(self.plan, wave, policy), changes)

    def back(self, wave: str, **changes: Any) -> RunDriver:
        return self._run(plan_rollback(self.plan, wave, self.chain(), POLICY), changes)

    def _run(self, course: RunPlan, changes: dict[str, Any]) -> RunDriver:
        arguments: dict[str, Any] = {
            "prove": self.prove,
            "applications": self,
            "say": self.events.append,
            "evidence": self.home / secrets.token_hex(4),
        }
        return open_run(self.plan, course, self.settings, **(arguments | changes))

    def prove(self, wanted: RequestProof) -> ProofOutcome:
        """Not Spark's: both sides are read and compared record by record."""
        flow = self.plan.flow(wanted.flow)
        proven = unproven = 0
        for topic in wanted.topics:
            there = read_all(self.settings[flow.target], flow.target_topic(topic), PARTITIONS)
            here = read_all(self.settings[flow.source], topic, PARTITIONS)
            for number in range(PARTITIONS):
                copied, original = ([record for _, record in log[number]] for log in (there, here))
                unproven += copied != (original if wanted.final else original[: len(copied)])
                proven += len(copied)
        return ProofOutcome(0, "different" if unproven else "proven", unproven, {"proven": proven})

    def judged(self, wave: str) -> None:
        """Everything is read once, in order, and stands at both ends once, in order."""
        reader, written = self.readers[wave], self.writers[wave].acked
        reader.most = None
        until("everything is read", lambda: len(reader.read) >= len(written))
        reader.stop()
        assert [word for word, count in Counter(word for _, word in reader.read).items() if count > 1] == []
        for number in range(PARTITIONS):
            mine = [word for word in written if int(word.split()[1]) % (PARTITIONS - 1) == number]
            assert [word for partition, word in reader.read if partition == number] == mine
            for alias in (HOME, AWAY):
                until(f"it stands at {alias}", lambda at=alias, n=number, w=mine: self.words(wave, at, n) == w)

    def words(self, wave: str, alias: str, number: int) -> list[str]:
        log = read_all(self.settings[alias], self.called(self.topics[wave], alias), PARTITIONS)[number]
        return [(value or b"").decode() for _, (_, value, *_) in log]


def until(what: str, holds: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
