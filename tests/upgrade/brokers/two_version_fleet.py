"""A fleet on real brokers whose workers are of two versions, under traffic with transactions, some of them aborted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import psutil

from tests.replicator.real import assert_exact_copy, read_all, settings_of, wait_copied
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import SLOT_COUNT
from watershed.clusters.fleet import read_slot_owners
from watershed.clusters.partition_status_records import read_partition_statuses
from watershed.lab import sample_applications
from watershed.lab.clusters import Lab
from watershed.lab.preload import create_lab_topics
from watershed.lab.previous_version import InstalledRelease
from watershed.topology import compile_path
from watershed.topology.plan import Plan

Version = Literal["older", "newer"]
PARTITIONS = 8
TOPOLOGY = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: tests}}
clusters:
  onprem: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - source: onprem
    target: cloud
    suffix: {name}-by-number
    topics: {{include: ["{name}.orders", "{name}.paid"]}}
    naming: {{policy: identity}}
    workers: {{engine: process, discovery: 1s, count: 2, placement: {placement}}}
  - source: onprem
    target: cloud
    suffix: {name}-together
    topics: {{include: ["{name}.refunds"]}}
    naming: {{policy: template, template: "{{topic}}.together"}}
    delivery: {{semantics: transactions}}
    workers: {{engine: process, discovery: 1s, count: 2, placement: {placement}}}
"""


@dataclass
class Process:
    """One that was started. log: what it prints."""

    version: Version
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(120) == 0, self.log.read_text()[-3000:]


class TwoVersions:
    """One topology file, and both versions' command line."""

    def __init__(self, previous: InstalledRelease, file: Path) -> None:
        self.previous, self.file, self.folder = previous, file, file.parent
        self.started: list[Process] = []

    def build_call(self, version: Version, *words: str) -> dict[str, Any]:
        if version == "older":
            return {"args": self.previous.build_command(*words), "env": self.previous.build_environ(os.environ)}
        program = str(Path(self.previous.python).parent / "topology")
        this = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return {"args": [program, *words], "env": this}

    def run(self, version: Version, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        call = self.build_call(version, *words)
        done = subprocess.run(**call, cwd=self.folder, capture_output=True, text=True, check=False, timeout=400)
        assert done.returncode in codes, (
            f"{version} {words}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-5000:]}"
        )
        return done.stdout

    def start(self, version: Version, *words: str) -> Process:
        log = self.folder / f"{version}-{len(self.started)}.log"
        with log.open("wb") as into:
            call = self.build_call(version, *words)
            process = subprocess.Popen(**call, cwd=self.folder, stdout=into, stderr=subprocess.STDOUT)
        self.started.append(Process(version, process, log))
        return self.started[-1]

    def start_worker(self, version: Version) -> Process:
        return self.start(version, "worker", str(self.file), "--target", "cloud")

    def start_supervisor(self, version: Version) -> Process:
        return self.start(version, "fleet", "supervise", str(self.file), "--target", "cloud")

    def wait_children(self, supervisor: Process, count: int, timeout: float = 180) -> list[int]:
        """The pids of the workers that it has started."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            found = [each.pid for each in psutil.Process(supervisor.pid).children() if "worker" in each.cmdline()]
            if len(found) == count:
                return found
            time.sleep(0.2)
        raise AssertionError(f"not {count} workers within {timeout} s: {supervisor.log.read_text()[-3000:]}")

    def end(self) -> None:
        self._end_workers_of_supervisors()
        for each in self.started:
            if each.process.poll() is None:
                each.process.send_signal(signal.SIGTERM)
        for each in self.started:
            try:
                each.process.wait(60)
            except subprocess.TimeoutExpired:
                each.kill()

    def _end_workers_of_supervisors(self) -> None:
        """They outlive a supervisor that is killed, and are told by the file in their command line."""
        for each in psutil.process_iter(["cmdline"]):
            words = each.info["cmdline"] or ()
            if str(self.file) in words and "worker" in words and each.pid not in {known.pid for known in self.started}:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.terminate()


class TwoVersionFleet(TwoVersions):
    """Producers write all the time, two of them in transactions, every fourth of which is aborted."""

    def __init__(self, previous: InstalledRelease, lab: Lab, name: str, folder: Path, placement: str) -> None:
        super().__init__(previous, folder / "fleet.yaml")
        self.settings, self.name = settings_of(lab), name
        address = {alias: each.bootstrap[0] for alias, each in self.settings.items()}
        self.file.write_text(TOPOLOGY.format(name=name, placement=placement, **address), encoding="utf-8")
        self.plan = compile_path(self.file)
        self.topics = [f"{name}.orders", f"{name}.paid", f"{name}.refunds"]
        create_lab_topics(address["onprem"], self.topics, PARTITIONS)
        self.apps = folder / "apps"
        at = ["--cluster", "onprem", "--bootstrap", address["onprem"]]
        aborting = ["--transaction-records", "10", "--abort-every", "4", *at]
        self.producers = [
            self._start_producer("orders", self.topics[0], "150", at),
            self._start_producer("paid", self.topics[1], "80", ["--transactional-id", f"{name}-paid", *aborting]),
            self._start_producer("refunds", self.topics[2], "80", ["--transactional-id", f"{name}-refunds", *aborting]),
        ]

    def _start_producer(
        self, name: str, topic: str, rate: str, words: list[str]
    ) -> sample_applications.SampleApplication:
        command = ["watershed.lab.orders_producer", "--topics", topic, "--rate", rate, *words]
        return sample_applications.start_application(self.apps, name, command)

    def wait_served(self, *expected: int, timeout: float = 240) -> None:
        """Until exactly these workers (pids) share the slots, and each partition is reported as running by one of them
        that has told so since the call."""
        begun, deadline, seen = time.time() * 1000, time.monotonic() + timeout, ""
        total = PARTITIONS * len(self.topics)
        flows = {flow.id for flow in self.plan.flows}
        with Admin(self.settings["cloud"]) as admin:
            while time.monotonic() < deadline:
                owners = read_slot_owners(admin, self.name)
                pids = {int(each.rpartition("-")[2]) for each in owners.values()}
                reports = [each for each in read_partition_statuses(self.settings["cloud"]) if each.flow in flows]
                fresh = [
                    each for each in reports
                    if each.at_ms > begun and each.pid in expected and each.state in ("running", "catching_up")
                ]  # fmt: skip
                serving = {each.pid for each in fresh}
                if len(owners) == SLOT_COUNT and pids == serving == set(expected) and len(fresh) == total:
                    return
                seen = f"{len(owners)} slots of {sorted(pids)}, {len(fresh)} of {total} partitions"
                time.sleep(0.5)
        told = "\n".join(f"{each.version} {each.pid}: {each.log.read_text()[-600:]}" for each in self.started)
        raise AssertionError(f"not served by {expected} within {timeout} s: {seen}\n{told}")

    def copy_for(self, records: int) -> None:
        """Until so many more records have been written."""
        for each in self.producers:
            count = sample_applications.ask_application(each)["acked"]
            sample_applications.wait_for_count(each, "acked", count + records, seconds=180)

    def count_exact(self) -> dict[str, int]:
        """Ends the traffic. Every committed record of the source stands at the target once, in order, and the offset
        maps are right at every offset. Flow and topic → records."""
        for each in self.producers:
            sample_applications.stop_client(each)
        found = {}
        for flow in self.plan.flows:
            alone = replace(self.plan, flows=(flow,))
            for topic in filter(flow.selects, self.topics):
                self._wait_copied(alone, topic)
                if flow.delivery == "sequence":
                    found[f"{flow.id} {topic}"] = assert_exact_copy(self.settings, alone, topic, PARTITIONS)
                else:
                    found[f"{flow.id} {topic}"] = self._count_together(alone, topic)
        return found

    def _wait_copied(self, alone: Plan, topic: str) -> None:
        """As `wait_copied`; says who served the partitions, and what the workers logged last."""
        try:
            wait_copied(self.settings, alone, topic, PARTITIONS)
        except AssertionError as error:
            reports = [
                f"{each.partition}: {each.state} {each.source_position} of {each.source_end}, worker {each.pid}, "
                f"{time.time() - each.at_ms / 1000:.0f} s ago"
                for each in read_partition_statuses(self.settings["cloud"])
                if each.flow == alone.flows[0].id and each.topic == topic
            ]
            logs = [f"{each.version} {each.pid}:\n{each.log.read_text()[-2500:]}" for each in self.started[-2:]]
            raise AssertionError("\n".join([f"{alone.flows[0].id}: {error}", *reports, *logs])) from None

    def _count_together(self, alone: Plan, topic: str) -> int:
        here = read_all(self.settings["onprem"], topic, PARTITIONS)
        there = read_all(self.settings["cloud"], alone.flows[0].target_topic(topic), PARTITIONS)
        for number in range(PARTITIONS):
            assert [record for _, record in there[number]] == [record for _, record in here[number]], (
                f"{topic}-{number}"
            )
        return sum(map(len, here.values()))

    def end(self) -> None:
        super().end()
        sample_applications.stop_applications(self.apps)


@contextmanager
def open_fleet(
    previous: InstalledRelease, lab: Lab, name: str, folder: Path, placement: str = "external"
) -> Iterator[TwoVersionFleet]:
    fleet = TwoVersionFleet(previous, lab, name, folder, placement)
    try:
        yield fleet
    finally:
        fleet.end()
