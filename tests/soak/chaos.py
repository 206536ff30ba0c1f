"""The faults of a soak, and what undoes them. Chosen by a `random.Random`: a seed plays the same faults again."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.replicator.faults import Faulty
from tests.replicator.real import WorkerProcess
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.errors import ClusterError
from watershed.clusters.flow_records import read_flows, write_flow
from watershed.lab import clusters as lab_clusters
from watershed.lab.fault_proxy import HELD_CONNECTION, NO_FAULT, ProxyFault
from watershed.topology.plan import Plan

MOST_WORKERS, MOST_PARTITIONS = 3, 10
NODES = {"onprem": 1, "cloud": 3}
SPOILED = (
    HELD_CONNECTION,
    ProxyFault(latency_s=0.1, jitter_s=0.1, slice_bytes=900),
    ProxyFault(bytes_per_s=300_000),
    ProxyFault(cut_after=200_000),
)


@dataclass(slots=True)
class World:
    """What can be spoiled. `zombies`: workers may be frozen for longer than their session."""

    faulty: Faulty
    plan: Plan
    topic: str
    partitions: int
    start: Callable[[], WorkerProcess]
    chance: random.Random
    workers: list[WorkerProcess] = field(default_factory=list)
    down: list[tuple[str, int, bool]] = field(default_factory=list)  # (cluster, broker, frozen)
    paused: bool = False
    zombies: bool = True
    done: dict[str, int] = field(default_factory=dict)

    # -- the faults --------------------------------------------------------------------------------------------

    def worker_killed(self) -> str:
        victim = self._victim()
        victim.kill()
        self.workers.append(self.start())
        return f"worker {victim.pid} killed, {self.workers[-1].pid} started"

    def worker_stopped(self) -> str:
        victim = self._victim()
        how = self._stopped(victim)
        self.workers.append(self.start())
        return f"worker {victim.pid} {how}, {self.workers[-1].pid} started"

    def worker_frozen(self) -> str:
        victim = self.chance.choice(self.workers)
        seconds = self.chance.uniform(1, 15 if self.zombies else 4)  # the session ends after 10 s
        victim.send(signal.SIGSTOP)
        threading.Timer(seconds, victim.send, [signal.SIGCONT]).start()
        return f"worker {victim.pid} frozen for {seconds:.1f} s"

    def worker_more_or_less(self) -> str:
        if len(self.workers) < MOST_WORKERS:
            self.workers.append(self.start())
            return f"worker {self.workers[-1].pid} added"
        victim = self._victim()
        return f"worker {victim.pid} {self._stopped(victim)}"

    def broker_killed(self) -> str:
        return self._broker_gone(frozen=False)

    def broker_frozen(self) -> str:
        return self._broker_gone(frozen=True)

    def brokers_back(self) -> str:
        back, self.down = self.down, []
        for alias, broker, frozen in back:
            if frozen:
                lab_clusters.freeze_lab_broker(self.faulty.home, alias, broker, frozen=False)
            else:
                lab_clusters.restart_lab_broker(self.faulty.home, alias, broker)
        return f"brokers back: {back}"

    def connections_cut(self) -> str:
        alias = self.chance.choice(list(NODES))
        cut = sum(proxy.cut() for proxy in self.faulty.proxies[alias].proxies.values())
        return f"{cut} connections to {alias} cut"

    def requests_late(self) -> str:
        alias, late = self.chance.choice(list(NODES)), self.chance.uniform(0.5, 4)
        for proxy in self.faulty.proxies[alias].proxies.values():
            proxy.up = ProxyFault(latency_s=late)
        time.sleep(0.3)
        for proxy in self.faulty.proxies[alias].proxies.values():
            proxy.up = NO_FAULT
            proxy.drop_clients()
        return f"requests to {alias} land {late:.1f} s after their connections were lost"

    def way_spoiled(self) -> str:
        alias, way = self.chance.choice(list(NODES)), self.chance.choice(["up", "down"])
        toxic = self.chance.choice(SPOILED)
        broker = self.chance.randrange(1, NODES[alias] + 1)
        setattr(self.faulty.proxy(alias, broker), way, toxic)
        return f"{alias} {broker} {way}: {toxic}"

    def nobody_listens(self) -> str:
        alias = self.chance.choice(list(NODES))
        broker = self.chance.randrange(1, NODES[alias] + 1)
        self.faulty.proxy(alias, broker).refuse()
        return f"{alias} {broker} refuses connections"

    def network_healed(self) -> str:
        for each in self.faulty.proxies.values():
            each.heal()
        return "network healed"

    def topic_grown(self) -> str:
        if self.partitions >= MOST_PARTITIONS:
            return "topic large enough"
        with Admin(self.faulty.settings["onprem"]) as admin:
            admin.create_partitions(self.topic, self.partitions + 1)
        self.partitions += 1
        return f"{self.topic} has {self.partitions} partitions"

    def flow_paused_or_resumed(self) -> str:
        self._order("running" if self.paused else "paused")
        self.paused = not self.paused
        return "flow paused" if self.paused else "flow resumed"

    def nothing(self) -> str:
        return "quiet"

    # -- choosing and undoing ----------------------------------------------------------------------------------

    def one(self) -> tuple[str, str]:
        """Does one of them. Returns its name and what happened; "refused" when the cluster was in no state for it."""
        faults: dict[str, tuple[Callable[[], str], int]] = {
            "worker killed": (self.worker_killed, 3),
            "worker stopped": (self.worker_stopped, 2),
            "worker frozen": (self.worker_frozen, 3),
            "worker more or less": (self.worker_more_or_less, 2),
            "broker killed": (self.broker_killed, 3),
            "broker frozen": (self.broker_frozen, 2),
            "brokers back": (self.brokers_back, 6 if self.down else 0),
            "connections cut": (self.connections_cut, 3),
            "requests late": (self.requests_late, 3),
            "way spoiled": (self.way_spoiled, 3),
            "nobody listens": (self.nobody_listens, 1),
            "network healed": (self.network_healed, 4),
            "topic grown": (self.topic_grown, 1),
            "flow paused or resumed": (self.flow_paused_or_resumed, 6 if self.paused else 1),
            "nothing": (self.nothing, 2),
        }
        (name,) = self.chance.choices(list(faults), [weight for _, weight in faults.values()])
        self._revive()
        try:
            seen = faults[name][0]()
        except ClusterError as error:
            return name, f"refused: {error}"
        self.done[name] = self.done.get(name, 0) + 1
        return name, seen

    def heal(self) -> None:
        """Everything back: the quiet period."""
        self.network_healed()
        self.brokers_back()
        if self.paused:
            self.flow_paused_or_resumed()
        for worker in self.workers:
            if worker.runs():
                worker.send(signal.SIGCONT)
        self._revive()

    def _revive(self) -> None:
        """A worker that could not reach its target when it started has ended, and said so."""
        self.workers = [worker for worker in self.workers if worker.runs()]
        while not self.workers:
            self.workers.append(self.start())

    def _stopped(self, victim: WorkerProcess) -> str:
        """Told to stop; one that cannot say good-bye to a cluster that hangs is killed, as an orchestrator would."""
        try:
            victim.stop()
        except subprocess.TimeoutExpired:
            victim.kill()
            return "told to stop, killed after 30 s"
        return "stopped"

    def _victim(self) -> WorkerProcess:
        return self.workers.pop(self.chance.randrange(len(self.workers)))

    def _broker_gone(self, *, frozen: bool) -> str:
        """One broker a cluster at a time: the target keeps its quorum, the source is away as a whole."""
        away = {alias for alias, _, _ in self.down}
        alias = self.chance.choice([alias for alias in NODES if alias not in away] or list(NODES))
        broker = self.chance.randrange(1, NODES[alias] + 1)
        if alias in away:
            return f"{alias} has a broker away already"
        if frozen:
            lab_clusters.freeze_lab_broker(self.faulty.home, alias, broker)
        else:
            lab_clusters.kill_lab_broker(self.faulty.home, alias, broker)
        self.down.append((alias, broker, frozen))
        return f"broker {alias} {broker} {'frozen' if frozen else 'killed'}"

    def _order(self, state: str) -> None:
        target = self.faulty.settings["cloud"]
        record = read_flows(target)[self.plan.flows[0].id]
        with ControlWriter(target) as writer:
            write_flow(writer, record.with_state(state))
