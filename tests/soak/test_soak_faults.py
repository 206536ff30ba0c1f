"""Random faults against a running copy, for as long as asked: nothing lost, nothing twice, the map exact.

The seed is printed; the same seed chooses the same faults in the same order. In episodes of a few minutes: a topic of
its own, continuous load, faults; then a quiet period, and both logs are read and judged (`tests.soak.checker`).
The history of each episode stays in its file when anything is wrong.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

from tests.replicator.faults import Faulty, faulty_clusters, told
from tests.replicator.real import applied, assert_exact_copy, plan_for, read_all, wait_copied, workers
from tests.soak.chaos import NODES, World
from tests.soak.checker import anomalies, facts
from tests.soak.history import History, operations
from tests.soak.load import A_DAY_MS, Load
from watershed.clusters.admin import Admin
from watershed.clusters.errors import ClusterError
from watershed.clusters.topic_partition import TopicPartition
from watershed.topology.plan import Plan

EPISODE_S = 150.0
PARTITIONS = 4
MOST_EPISODES = 400


def test_random_faults(minutes: float, tmp_path) -> None:
    seed = int(os.environ.get("SOAK_SEED", random.SystemRandom().randrange(2**32)))
    chance = random.Random(seed)
    print(f"\nSOAK_SEED={seed}, {minutes:g} minutes, histories in {tmp_path}")
    topics = [f"orders-{number}" for number in range(1, MOST_EPISODES + 1)]
    faults: Counter[str] = Counter()
    copied = 0
    with faulty_clusters(tmp_path / "clusters", NODES) as faulty:
        plan = applied(faulty.through, plan_for(faulty.through, "soak", *topics, replication_factor=3))
        until = time.monotonic() + minutes * 60
        with workers(plan, "cloud", tmp_path) as start:
            world = World(faulty, plan, "", PARTITIONS, start, chance)
            for number, topic in enumerate(topics, 1):
                if time.monotonic() >= until:
                    break
                seconds = min(EPISODE_S, max(until - time.monotonic(), 20))
                copied += episode(world, topic, seconds, tmp_path / f"history-{number}.jsonl")
                faults += Counter(world.done)
                world.done = {}
                print(f"episode {number}: {copied:,} records exact so far, {faults.total()} faults {dict(faults)}")
    print(f"{faults.total()} faults, {copied:,} records copied exactly")
    assert copied > 0


def episode(world: World, topic: str, seconds: float, path: Path) -> int:
    """Load and faults on a topic of its own, then quiet, then the judgement. Returns how many records were copied."""
    faulty, chance = world.faulty, world.chance
    with Admin(faulty.settings["onprem"]) as admin:
        admin.create_topic(topic, PARTITIONS, 1, {"retention.ms": "-1"})
    world.topic, world.partitions = topic, PARTITIONS
    world.heal()
    # Every third episode copies records older than a broker remembers producers (which it looks at every second).
    age_ms = chance.choice([0, 0, 3 * A_DAY_MS])
    world.zombies = True
    history = History(path)
    print(f"  {topic}: {seconds:.0f} s, records {age_ms // A_DAY_MS} days old")
    wait_there(faulty, topic)
    load = Load(history, faulty.settings["onprem"], faulty.settings["cloud"], topic, chance, age_ms=age_ms)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        name, seen = world.one()
        history.add("chaos", "info", "fault", seen)
        print(f"    {name}: {seen}"[:160])
        time.sleep(chance.uniform(0.5, 6))
    world.heal()
    load.end()
    history.add("chaos", "info", "fault", "quiet")
    judged(faulty, world.plan, topic, world.partitions, history, path)
    return assert_exact_copy(faulty.settings, world.plan, topic, world.partitions)


def judged(faulty: Faulty, plan: Plan, topic: str, partitions: int, history: History, path: Path) -> None:
    late = ""
    try:
        wait_copied(faulty.settings, plan, topic, partitions, timeout=240)
    except AssertionError as error:
        late = f"{error}; {told(faulty.settings['cloud'], topic)}"
    logs = {}
    for alias in ("onprem", "cloud"):
        records = read_all(faulty.settings[alias], topic, partitions)
        logs[alias] = {
            number: [(offset, int(record[0] or b"-1")) for offset, record in found] for number, found in records.items()
        }
    history.close()
    found = anomalies(facts(operations(path), topic), logs["onprem"], logs["cloud"])
    assert not found, f"{Counter(each.name for each in found)}, first {found[:5]}; {late}; history {path}"
    assert not late, late
    path.unlink()


def wait_there(faulty: Faulty, topic: str, timeout: float = 180) -> None:
    """Until discovery has created the topic on the target."""
    until = time.monotonic() + timeout
    with Admin(faulty.settings["cloud"]) as admin:
        while True:
            try:
                admin.offsets([TopicPartition(topic, number) for number in range(PARTITIONS)])
            except ClusterError:
                assert time.monotonic() < until, f"{topic} was not created within {timeout} s"
                time.sleep(0.5)
            else:
                return
