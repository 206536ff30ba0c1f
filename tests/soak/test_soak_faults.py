"""Random faults against a running copy, for as long as asked: nothing lost, nothing twice, the map exact.

The seed is printed; the same seed plays the same faults in the same order.
"""

from __future__ import annotations

import os
import random
import signal
import time

from clusters.admin import Admin
from lab import clusters as lab_clusters
from tests.replicator.real import (
    applied,
    assert_exact_copy,
    plan_for,
    producer,
    put,
    settings_of,
    wait_copied,
    workers,
)

PARTITIONS = 4


def test_random_faults(minutes: float, tmp_path) -> None:
    seed = int(os.environ.get("SOAK_SEED", random.SystemRandom().randrange(2**32)))
    chance = random.Random(seed)
    print(f"\nSOAK_SEED={seed}, {minutes:g} minutes")
    home = tmp_path / "clusters"
    try:
        settings = settings_of(lab_clusters.up(home, ["onprem", "cloud"]))
        with Admin(settings["onprem"]) as admin:
            admin.create_topic("orders", PARTITIONS, 1)
        plan = applied(settings, plan_for(settings, "soak", "orders", quota=2_000_000))
        sending = producer(settings["onprem"], **{"acks": "all", "enable.idempotence": True})
        written, faults = 0, 0
        until = time.monotonic() + minutes * 60
        with workers(plan, "cloud", tmp_path) as start:
            serving = [start(), start()]
            while time.monotonic() < until:
                put(sending, "orders", 3_000, start=written, size=chance.choice([20, 200, 2_000]))
                written += 3_000
                victim = chance.randrange(len(serving))
                fault = chance.choice(["kill", "stop", "freeze", "kill onprem", "kill cloud", "quiet"])
                if fault == "kill":
                    serving[victim].kill()
                    serving[victim] = start()
                elif fault == "stop":
                    serving[victim].stop()
                    serving[victim] = start()
                elif fault == "freeze":
                    serving[victim].send(signal.SIGSTOP)
                    time.sleep(chance.uniform(1, 15))  # the session ends after 10 s
                    serving[victim].send(signal.SIGCONT)
                elif fault.startswith("kill "):
                    alias = fault.removeprefix("kill ")
                    lab_clusters.kill(home, alias)
                    time.sleep(chance.uniform(0, 5))
                    lab_clusters.start(home, alias)
                faults += fault != "quiet"
                time.sleep(chance.uniform(0, 4))
                for number, worker in enumerate(serving):
                    if not worker.runs():  # its target was away when it started
                        serving[number] = start()
            sending.flush()
            wait_copied(settings, plan, "orders", PARTITIONS, timeout=300)
        copied = assert_exact_copy(settings, plan, "orders", PARTITIONS)
        print(f"{faults} faults, {copied:,} records copied exactly")
        assert copied == written
    finally:
        lab_clusters.down(home)
