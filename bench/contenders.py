"""Who copies: Watershed's workers, MirrorMaker 2 as it comes and tuned, and what the target can take at all."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.place import Place
from bench.progress import Progress, Watch
from bench.usage import cpu_seconds, family, peak_mib, runs
from bench.workload import PARTITIONS, Loaded, delete, pump, ready
from clusters.admin import Admin
from clusters.wire.connection import connect
from lab.mirrormaker import MirrorMaker, connector
from lab.process import alive, send

_BEFORE = "before"  # the contender of BENCH_BEFORE
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
# For throughput without risk to order or acknowledgement; exactly once would make it slower still.
TUNED = {
    "tasks.max": str(PARTITIONS),
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
class Run:
    """One copy of one topic by one contender."""

    contender: str
    progress: Progress
    peak_mib: float


class Limit:
    """No replicator: the same batches, ready to be sent, into the target. What an append costs is all there is."""

    name = "limit"

    def __init__(self, place: Place) -> None:
        self._place = place

    def copy(self, loaded: Loaded, at_most: float) -> Run:
        topic = f"limit-{time.monotonic_ns()}.{loaded.topic}"
        with Admin(self._place.target) as admin, closing(connect(self._place.target)) as connection:
            requests = ready(loaded, connection.issue_producer_id(), admin.create_topic(topic, PARTITIONS).topic_id)
        own, brokers, started = time.process_time(), cpu_seconds(self._place.brokers), time.monotonic()
        pump(self._place.target, requests)
        seconds = time.monotonic() - started
        progress = Progress(
            0.0,
            seconds,
            loaded.records,
            time.process_time() - own,
            cpu_seconds(self._place.brokers) - brokers,
            True,
        )
        delete(self._place.target, topic)
        return Run(self.name, progress, peak_mib([os.getpid()]))


class Watershed:
    """`topology worker` with so many processes, started for this copy. more: lines of the file, in the flow.

    checkout: a folder with the code to run, with the packages of this environment; None: the code that measures.
    """

    def __init__(
        self, place: Place, processes: int = 1, profile: str | None = None, more: str = "", checkout: Path | None = None
    ) -> None:
        self._place, self._processes, self._profile, self._more = place, processes, profile, more
        self._checkout = checkout
        one = "watershed" if checkout is None else _BEFORE
        self.name = one if processes == 1 else f"{one} x{processes}"

    def copy(self, loaded: Loaded, at_most: float) -> Run:
        with self.running(loaded.topic) as (pid, prefix):
            topic = f"{prefix}.{loaded.topic}"
            watch = Watch(self._place.target, topic, loaded.records, pid, self._place.brokers, max(at_most, 30.0))
            progress = watch.until_done(lambda: runs(pid))
            peak = peak_mib(family(pid))
        delete(self._place.target, topic)
        return Run(self.name, progress, peak)

    @contextmanager
    def running(self, *topics: str) -> Iterator[tuple[int, str]]:
        """The worker's pid, and what its target topics begin with."""
        name = f"w{time.monotonic_ns() % 10**9:09d}"
        path = self._place.directory / f"{name}.yaml"
        include = ", ".join(f'"{topic}"' for topic in topics)
        addresses = {"source": self._place.source.bootstrap[0], "target": self._place.target.bootstrap[0]}
        path.write_text(_TOPOLOGY.format(name=name, topics=include, more=self._more, **addresses))
        topology = [sys.executable, "-m", "cli.main"]
        with (self._place.directory / f"{name}.log").open("wb") as log:
            subprocess.run([*topology, "apply", str(path)], cwd=self._checkout, stdout=log, stderr=log, check=True)
            command = [*topology, "worker", str(path), "--target", "target", "--processes", str(self._processes)]
            if self._profile:
                command = [*self._profile.split(), *command]
            process = subprocess.Popen(command, cwd=self._checkout, stdout=log, stderr=log)
        try:
            yield process.pid, name
        except BaseException:
            last = (self._place.directory / f"{name}.log").read_text(errors="replace").splitlines()[-5:]
            print("the worker's last words:", *last, sep="\n  ", file=sys.stderr)
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


class Mirror:
    """MirrorMaker 2: one warm process, a connector a copy. Stopped (SIGSTOP) while others are measured."""

    def __init__(self, place: Place, name: str, process: MirrorMaker, tuned: bool) -> None:
        self.name, self._place, self._mirror, self._tuned = name, place, process, tuned
        send(process.process, signal.SIGSTOP)

    def copy(self, loaded: Loaded, at_most: float) -> Run:
        with self.running(loaded.topic, codec=loaded.case.codec) as (pid, prefix):
            topic = f"{prefix}.{loaded.topic}"
            watch = Watch(self._place.target, topic, loaded.records, pid, self._place.brokers, at_most)
            progress = watch.until_done(lambda: alive(self._mirror.process))
            peak = peak_mib([pid])
        delete(self._place.target, topic)
        return Run(self.name, progress, peak)

    @contextmanager
    def running(self, *topics: str, codec: str = "none") -> Iterator[tuple[int, str]]:
        """The process, and what its target topics begin with while this connector runs."""
        alias = f"m{time.monotonic_ns() % 10**9:09d}"
        source, target = self._place.source.bootstrap[0], self._place.target.bootstrap[0]
        more = TUNED | {"producer.override.compression.type": codec} if self._tuned else {}
        config = connector(source, target, alias, "|".join(map(re.escape, topics)), more)
        if self._tuned:
            del config["offset-syncs.topic.replication.factor"]  # refused when no syncs are emitted
        send(self._mirror.process, signal.SIGCONT)
        try:
            self._mirror.put(alias, config)
            try:
                yield self._mirror.process.pid, alias
            finally:
                self._mirror.delete(alias)
        finally:
            send(self._mirror.process, signal.SIGSTOP)
