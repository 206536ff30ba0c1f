"""The contenders of the copy benchmark: Watershed's workers, MirrorMaker 2 with default and with tuned settings, and
plain produce requests, which show the limit of the target."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from watershed.bench.bench_clusters import BenchClusters
from watershed.bench.copy_progress import CopyMeasurement, CopyWatch
from watershed.bench.process_usage import is_running, list_descendants, read_cpu_seconds, read_peak_mib
from watershed.bench.results import report_progress
from watershed.bench.workload import (
    COPY_BENCH_PARTITIONS,
    LoadedTopic,
    build_ready_requests,
    delete_bench_topic,
    send_requests,
)
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import SLOT_COUNT, compute_slot
from watershed.clusters.partition_status_records import read_partition_statuses, read_status_reports
from watershed.clusters.wire.connection import open_connection
from watershed.cutover.operations.flow_state import give_flow_order
from watershed.lab.detached_process import is_alive, send_signal
from watershed.lab.mirrormaker import ConnectMirrorMaker, build_source_connector
from watershed.replicator.apply import apply_plan
from watershed.replicator.compression_forecast import forecast_compression
from watershed.topology import compile_path

_REPORTED_S = 30.0  # until all reports of a copy that has ended must be there
_EARLIER_CODE = "before"  # the name of the contender that runs the code of BENCH_BEFORE
_FLOW = "source-to-target-{}"  # id of the flow in the file below
_CLI = [sys.executable, "-m", "watershed.cli.main"]
_TOPOLOGY = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: bench}}
clusters:
  source: {{bootstrap: ["{source}"], security: {{protocol: PLAINTEXT}}}}
  target: {{bootstrap: ["{target}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - suffix: {name}
    source: source
    target: target
    topics: {{include: [{topics}]}}
    naming: {{policy: template, template: "{name}.{{topic}}"}}
    workers: {{engine: process}}
{more}"""
# Tuned for throughput, without risk to order or acknowledgement. Exactly-once would make it slower.
TUNED_CONNECTOR = {
    "tasks.max": str(COPY_BENCH_PARTITIONS),
    "emit.offset-syncs.enabled": "false",
    "source.consumer.fetch.max.bytes": str(50 << 20),
    "source.consumer.max.partition.fetch.bytes": str(8 << 20),
    "source.consumer.max.poll.records": "10000",
    "source.consumer.receive.buffer.bytes": str(4 << 20),
    "producer.override.batch.size": str(1 << 19),
    "producer.override.linger.ms": "20",
    "producer.override.buffer.memory": str(256 << 20),
    "producer.override.send.buffer.bytes": str(4 << 20),
    "producer.override.max.request.size": str(4 << 20),
    "producer.override.max.in.flight.requests.per.connection": "5",
    "producer.override.enable.idempotence": "true",  # keeps the order with five requests in flight
    "producer.override.acks": "all",
}


@dataclass(frozen=True, slots=True)
class CopyRun:
    """One copy of one topic by one contender. saved: the share of bytes that compression saved, and forecast: the one
    that a plan expected; None without compression."""

    contender: str
    progress: CopyMeasurement
    peak_mib: float
    saved: float | None = None
    forecast: float | None = None


class BareProduceContender:
    """Uses no replicator: it sends the same prepared batches to the target. It measures only what appends cost."""

    name = "limit"

    def __init__(self, place: BenchClusters) -> None:
        self._place = place

    def copy(self, loaded: LoadedTopic, at_most: float) -> CopyRun:
        """Sends the requests as fast as the broker acknowledges them. Ignores `at_most`."""
        topic = f"limit-{time.monotonic_ns()}.{loaded.topic}"
        with Admin(self._place.target) as admin, closing(open_connection(self._place.target)) as connection:
            requests = build_ready_requests(
                loaded, connection.issue_producer_id(), admin.create_topic(topic, COPY_BENCH_PARTITIONS).topic_id
            )
        own, brokers, started = time.process_time(), read_cpu_seconds(self._place.brokers), time.monotonic()
        send_requests(self._place.target, requests)
        seconds = time.monotonic() - started
        progress = CopyMeasurement(
            0.0,
            seconds,
            loaded.records,
            time.process_time() - own,
            read_cpu_seconds(self._place.brokers) - brokers,
            True,
        )
        delete_bench_topic(self._place.target, topic)
        return CopyRun(self.name, progress, read_peak_mib([os.getpid()]))


class BareCopyContender:
    """Uses no worker: `bench.bare_copy` asks for the same partitions and sends what comes, and does nothing else. It
    measures what latency the brokers add, and the machine."""

    name = "limit"

    def __init__(self, place: BenchClusters) -> None:
        self._place = place

    @contextmanager
    def running(self, *topics: str) -> Iterator[tuple[int, str]]:
        """Runs it for these topics, of which only the first has traffic. Yields its pid and the prefix of its target
        topics. Raises RuntimeError where it does not start."""
        prefix = f"b{time.monotonic_ns() % 10**9:09d}"
        with Admin(self._place.source) as here, Admin(self._place.target) as there:
            shapes = here.shapes()
            for topic in topics:
                there.create_topic(f"{prefix}.{topic}", shapes[topic].partitions)
        addresses = (self._place.source.bootstrap[0], self._place.target.bootstrap[0])
        command = [sys.executable, "-m", "watershed.bench.bare_copy", *addresses, prefix, *topics]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                if process.stdout.readline() != b"ready\n":
                    raise RuntimeError(f"the copy without a worker ended before it began: {command}")
                yield process.pid, prefix
            finally:
                process.send_signal(signal.SIGTERM)


class WatershedContender:
    """Starts `topology worker` with this number of processes for each copy. more: lines for the flow in the file.

    checkout: a folder with the code to run, in the packages of this environment; None: the code of this benchmark.
    """

    def __init__(
        self,
        place: BenchClusters,
        processes: int = 1,
        profile: str | None = None,
        more: str = "",
        checkout: Path | None = None,
    ) -> None:
        self._place, self._processes, self._profile, self._more = place, processes, profile, more
        self._checkout = checkout
        self._options: tuple[str, ...] = ()
        one = "watershed" if checkout is None else _EARLIER_CODE
        self.name = one if processes == 1 else f"{one} x{processes}"

    def copy(self, loaded: LoadedTopic, at_most: float) -> CopyRun:
        """Watches the copy of the whole topic, for `at_most` seconds or 30, whichever is longer."""
        with self.running(loaded.topic) as (pid, prefix):
            topic = f"{prefix}.{loaded.topic}"
            watch = CopyWatch(self._place.target, topic, loaded.records, pid, self._place.brokers, max(at_most, 30.0))
            progress = watch.until_done(lambda: is_running(pid))
            peak = read_peak_mib(list_descendants(pid))
        delete_bench_topic(self._place.target, topic)
        return CopyRun(self.name, progress, peak)

    @contextmanager
    def running(self, *topics: str) -> Iterator[tuple[int, str]]:
        """Runs a worker for these topics. Yields its pid and the prefix of its target topics."""
        name = self._choose_name(*topics)
        path = self._place.directory / f"{name}.yaml"
        include = ", ".join(f'"{topic}"' for topic in topics)
        addresses = {"source": self._place.source.bootstrap[0], "target": self._place.target.bootstrap[0]}
        path.write_text(_TOPOLOGY.format(name=name, topics=include, more=self._more, **addresses))
        self._apply(path)
        with self.running_again(name) as pid:
            yield pid, name

    @contextmanager
    def running_again(self, name: str) -> Iterator[int]:
        """Runs a worker of what was applied by `running`, which yielded this name. Yields its pid."""
        path = self._place.directory / f"{name}.yaml"
        with (self._place.directory / f"{name}.log").open("wb") as log:
            command = [*_CLI, "worker", str(path), "--target", "target", "--processes", str(self._processes)]
            command += self._options
            if self._profile:
                command = [*self._profile.split(), *command]
            process = subprocess.Popen(command, cwd=self._checkout, stdout=log, stderr=log)
        try:
            yield process.pid
        except BaseException:
            last = (self._place.directory / f"{name}.log").read_text(errors="replace").splitlines()[-5:]
            report_progress("\n  ".join(["the last lines of the worker's log:", *last]))
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)

    def _choose_name(self, *_topics: str) -> str:
        return f"w{time.monotonic_ns() % 10**9:09d}"

    def _apply(self, path: Path) -> None:
        if self._checkout is None:  # here: a process would only import it all again
            apply_plan(compile_path(path), {"source": self._place.source, "target": self._place.target}.__getitem__)
        else:
            subprocess.run([*_CLI, "apply", str(path)], cwd=self._checkout, stdout=subprocess.DEVNULL, check=True)


class SettledWorkersContender(WatershedContender):
    """Two processes that have shared the partitions before anything is copied. Else the first one would copy alone
    until the other has joined, and the clock would measure how partitions change hands (1.2 to 1.5 s)."""

    def __init__(self, place: BenchClusters) -> None:
        super().__init__(place, processes=2, more="    state: paused\n")

    def copy(self, loaded: LoadedTopic, at_most: float) -> CopyRun:
        """Resumes the flow once each process has half of the partitions, and watches the copy of the whole topic."""
        target = self._place.target
        with self.running(loaded.topic) as (pid, prefix):
            topic = f"{prefix}.{loaded.topic}"
            self._wait_until_shared(prefix)
            for line in give_flow_order(target, _FLOW.format(prefix), "resume", "bench"):
                report_progress(line)
            watch = CopyWatch(target, topic, loaded.records, pid, self._place.brokers, max(at_most, 30.0))
            progress = watch.until_done(lambda: is_running(pid))
            peak = read_peak_mib(list_descendants(pid))
        delete_bench_topic(target, topic)
        return CopyRun(self.name, progress, peak)

    def _choose_name(self, *topics: str) -> str:
        """One with which half of the partitions have the lower half of the slots: a group shares slots in order."""
        for number in count(time.monotonic_ns() % 10**9):
            name = f"w{number:09d}"
            slots = [
                compute_slot(_FLOW.format(name), topic, partition)
                for topic in topics
                for partition in range(COPY_BENCH_PARTITIONS)
            ]
            if 2 * sum(slot < SLOT_COUNT // 2 for slot in slots) == len(slots):
                return name
        raise AssertionError("there is always another number")

    def _wait_until_shared(self, name: str) -> None:
        """By the heartbeats: partitions of a paused flow are first reported when nothing of another writer is left."""
        deadline = time.monotonic() + _REPORTED_S
        while True:
            beats = read_status_reports(self._place.target).heartbeats
            shares = sorted(len(each.slots) for each in beats if each.topology == name)
            if shares == [SLOT_COUNT // 2] * 2:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"two processes of {name} have {shares} slots after {_REPORTED_S:.0f} s")
            time.sleep(0.2)


class CompressingContender(WatershedContender):
    """A worker of a flow with `compression: zstd`."""

    def __init__(self, place: BenchClusters) -> None:
        super().__init__(place, more="    compression: zstd\n")
        self.name = "watershed zstd"

    def copy(self, loaded: LoadedTopic, at_most: float) -> CopyRun:
        """Watches the copy of the whole topic, and reads what its worker reports of the bytes."""
        with self.running(loaded.topic) as (pid, prefix):
            topic = f"{prefix}.{loaded.topic}"
            watch = CopyWatch(self._place.target, topic, loaded.records, pid, self._place.brokers, max(at_most, 60.0))
            progress = watch.until_done(lambda: is_running(pid))
            peak = read_peak_mib(list_descendants(pid))
            saved = self._read_saved_share(topic, loaded.bytes)
            plan = compile_path(self._place.directory / f"{prefix}.yaml")
        [forecast] = forecast_compression(plan, {"source": self._place.source}.__getitem__)
        delete_bench_topic(self._place.target, topic)
        return CopyRun(self.name, progress, peak, saved, forecast.saved)

    def _read_saved_share(self, topic: str, least: int) -> float:
        deadline = time.monotonic() + _REPORTED_S
        while True:
            reports = [each for each in read_partition_statuses(self._place.target) if each.target_topic == topic]
            copied = sum(each.copied_bytes for each in reports)
            if copied >= least:
                return sum(each.saved_bytes for each in reports) / copied
            if time.monotonic() > deadline:
                raise RuntimeError(f"{copied} bytes of {topic} are reported, of {least} that were copied")
            time.sleep(0.2)


class TransactionContender(WatershedContender):
    """A worker of a flow that copies in transactions: all that a flow with `transform` does, but changing records."""

    def __init__(self, place: BenchClusters) -> None:
        super().__init__(place, more="    delivery: {semantics: transactions}\n")
        self.name = "watershed transactions"


class TransformingContender(WatershedContender):
    """A worker of a flow with `transform`. transform: the lines of the key, in the file's form."""

    def __init__(self, place: BenchClusters, name: str, transform: str) -> None:
        super().__init__(place, more=f"    transform: {transform}\n")
        self.name, self._options = name, ("--transforms",)


class MirrorMakerContender:
    """MirrorMaker 2: one warm process, and a connector for each copy. SIGSTOP stops it while others are measured. more:
    settings of each connector."""

    def __init__(
        self,
        place: BenchClusters,
        name: str,
        process: ConnectMirrorMaker,
        tuned: bool,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self._place, self._mirror, self._tuned, self._more = name, place, process, tuned, more or {}
        send_signal(process.process, signal.SIGSTOP)

    def copy(self, loaded: LoadedTopic, at_most: float) -> CopyRun:
        """Watches the copy for `at_most` seconds, or until the whole topic is copied."""
        with self.running(loaded.topic, codec=loaded.case.codec) as (pid, prefix):
            topic = f"{prefix}.{loaded.topic}"
            watch = CopyWatch(self._place.target, topic, loaded.records, pid, self._place.brokers, at_most)
            progress = watch.until_done(lambda: is_alive(self._mirror.process))
            peak = read_peak_mib([pid])
        delete_bench_topic(self._place.target, topic)
        return CopyRun(self.name, progress, peak)

    @contextmanager
    def running(self, *topics: str, codec: str = "none") -> Iterator[tuple[int, str]]:
        """Runs a connector for these topics. Yields the process's pid and the prefix of the target topics."""
        alias = f"m{time.monotonic_ns() % 10**9:09d}"
        source, target = self._place.source.bootstrap[0], self._place.target.bootstrap[0]
        more = TUNED_CONNECTOR | {"producer.override.compression.type": codec} if self._tuned else {}
        config = build_source_connector(source, target, alias, "|".join(map(re.escape, topics)), {**more, **self._more})
        if self._tuned:
            del config["offset-syncs.topic.replication.factor"]  # MirrorMaker refuses it when it emits no syncs
        send_signal(self._mirror.process, signal.SIGCONT)
        try:
            self._mirror.put(alias, config)
            try:
                yield self._mirror.process.pid, alias
            finally:
                self._mirror.delete(alias)
        finally:
            send_signal(self._mirror.process, signal.SIGSTOP)
