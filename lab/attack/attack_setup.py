"""Where attacks take place: two real clusters, the installed command, workers, and a folder for the evidence.

Everything of the product runs as a process of its own, with the settings that a user has who has set none. Its
outputs, its exit codes and what the brokers hold decide; its functions are never asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from watershed.clusters.settings import ConnectionSettings
from watershed.lab import clusters
from watershed.lab.attack.control_checks import require_carried_out
from watershed.lab.detached_process import ProcessIdentity, end_processes, is_alive, spawn_detached
from watershed.lab.preload import create_lab_topics

ATTACK_SOURCE, ATTACK_TARGET = "onprem", "cloud"
_TOPOLOGY_COMMAND = Path(sys.executable).with_name("topology")
_PATIENCE_S = 90.0  # for a worker to start and copy a few records; seconds on a quiet machine
_COMMAND_S = 180.0
_PAIR = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: attack}}
clusters:
  onprem: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
"""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended. code None: not within _COMMAND_S; negative: by that signal."""

    code: int | None
    out: str
    err: str

    @property
    def said(self) -> str:
        """Standard output, then standard error."""
        return self.out + self.err

    @property
    def how(self) -> str:
        """How the command ended, for people: exit code, signal, or no end within the time."""
        if self.code is None:
            return f"no end within {_COMMAND_S:g} s"
        return f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"

    @property
    def is_clean(self) -> bool:
        """It ended by itself, with words for people."""
        return self.code is not None and self.code >= 0 and "Traceback" not in self.said

    def json(self) -> dict[str, Any]:
        """What it printed; an empty object where that is none."""
        try:
            found = json.loads(self.out)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


@dataclass(slots=True)
class AttackSetup:
    """One attack's: `folder` holds its files and its evidence."""

    folder: Path
    bootstrap: Mapping[str, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))  # of commands; threads share it

    def file(self, name: str, text: str) -> Path:
        """Writes a file below `folder` and returns its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def pair_file(self, name: str, rest: str, *, onprem: str, cloud: str) -> Path:
        """A topology file of this name: the two clusters at these addresses, and the rest of it."""
        return self.file(f"{name}.yaml", _PAIR.format(name=name, onprem=onprem, cloud=cloud) + rest)

    def settings(self, alias: str) -> ConnectionSettings:
        """Settings of a PLAINTEXT connection to the cluster of this alias."""
        return ConnectionSettings(alias, (self.bootstrap[alias],))

    def topology(self, *arguments: object, environ: Mapping[str, str] | None = None) -> CommandResult:
        """Run the installed command and keep what it says."""
        evidence = self.folder / f"{next(self._numbers):02}-{_slug(arguments)}.txt"
        argv = [str(_TOPOLOGY_COMMAND), *map(str, arguments)]
        try:
            done = subprocess.run(
                argv,
                cwd=self.folder,
                env=build_clean_environ(environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_COMMAND_S,
                check=False,
            )
            ended = CommandResult(done.returncode, _text(done.stdout), _text(done.stderr))
        except subprocess.TimeoutExpired as late:
            ended = CommandResult(None, _text(late.stdout), _text(late.stderr))
        evidence.write_text(f"$ {argv}\n{ended.how}\n--- stdout\n{ended.out}\n--- stderr\n{ended.err}")
        return ended

    @contextmanager
    def worker(self, file: Path, target: str = ATTACK_TARGET) -> Iterator[AttackWorker]:
        """A worker of the product, ended with the block."""
        log = self.folder / f"{next(self._numbers):02}-worker.txt"
        argv = [str(_TOPOLOGY_COMMAND), "worker", str(file), "--target", target]
        process = spawn_detached(argv, log, build_clean_environ())
        try:
            yield AttackWorker(process, log)
        finally:
            end_processes([process], grace=30.0)

    def create(self, alias: str, *topics: str, partitions: int = 1, **configs: str) -> None:
        """Creates topics without a retention limit; `configs` are topic configs with _ for the dots."""
        named = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
        create_lab_topics(self.bootstrap[alias], list(topics), partitions, named)

    def write(
        self, alias: str, topic: str, values: Sequence[bytes | None], partition: int = 0, key: str | None = None
    ) -> list[int]:
        """Write these values as an ordinary producer does; returns their offsets. Raises AttackNotCarriedOut."""
        producer = Producer({"bootstrap.servers": self.bootstrap[alias], "linger.ms": 0, "log_level": 3})
        offsets: list[int] = []

        def written(error: object, message: Any) -> None:
            if error is None:
                offsets.append(message.offset())

        for value in values:
            producer.produce(topic, value, key, partition, on_delivery=written)
        producer.flush(60)
        require_carried_out(
            len(offsets) == len(values), f"{topic}-{partition} on {alias} took {len(offsets)} of {len(values)}"
        )
        return offsets

    def end_of(self, alias: str, topic: str, partition: int = 0) -> int:
        """The log's end; -1 while there is no such topic."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap[alias], "group.id": "attack", "log_level": 3})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=15)[1])
        except KafkaException:
            return -1
        finally:
            consumer.close()

    def read(self, alias: str, topic: str, partition: int = 0) -> list[tuple[str, bytes | None]]:
        """Key and value of every record up to the log's end of now. Raises AttackNotCarriedOut."""
        last, found = self.end_of(alias, topic, partition), []
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap[alias],
                "group.id": "attack",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 3,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, partition, 0)])
            deadline = time.monotonic() + 30
            while last > 0 and consumer.position([TopicPartition(topic, partition)])[0].offset < last:
                require_carried_out(time.monotonic() < deadline, f"{topic}-{partition} on {alias} could not be read")
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    key = message.key()
                    found.append((_text(key), message.value()))
        finally:
            consumer.close()
        return found

    def topics(self, alias: str) -> dict[str, int]:
        """Topic → partitions."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap[alias], "log_level": 3})
        return {name: len(each.partitions) for name, each in admin.list_topics(timeout=15).topics.items()}

    def partition(self, file: Path, topic: str, number: int) -> Mapping[str, Any]:
        """What `topology status` says of a partition; empty when it says nothing."""
        document = self.topology("status", file, "--format", "json").json()
        found = (each for flow in document.get("flows", ()) for each in flow.get("partitions", ()))
        return next((each for each in found if (each.get("topic"), each.get("partition")) == (topic, number)), {})


@dataclass(frozen=True, slots=True)
class AttackWorker:
    """A running `topology worker` and what it logs."""

    process: ProcessIdentity
    log: Path

    @property
    def said(self) -> str:
        """Everything that the worker has logged so far."""
        return self.log.read_text(errors="replace")

    @property
    def is_running(self) -> bool:
        """False as soon as the process has ended, however it ended."""
        return is_alive(self.process)

    @property
    def peak_mib(self) -> float:
        """The most memory that the process has had (VmHWM), MiB; 0 of one that has ended."""
        if not self.is_running:
            return 0.0
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0) / 1024


def wait_until(holds: Callable[[], object], seconds: float | None = None) -> bool:
    """Whether it holds within that time (None: `_PATIENCE_S`)."""
    deadline = time.monotonic() + (_PATIENCE_S if seconds is None else seconds)
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.3)
    return True


def build_clean_environ(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment without settings of Watershed (but the lab's) and of Airflow, and with `more`."""
    ours = ("WATERSHED_", "AIRFLOW_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return kept | dict(more or {})


@contextmanager
def run_attack_clusters(folder: Path) -> Iterator[dict[str, str]]:
    """Two real clusters on this machine, alias → bootstrap, ended and removed with the block."""
    try:
        lab = clusters.start_clusters(folder, [ATTACK_SOURCE, ATTACK_TARGET])
        yield {alias: each.bootstrap for alias, each in lab.clusters.items()}
    finally:
        clusters.end_clusters(folder)


def _text(raw: bytes | str | None) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else raw or ""


def _slug(arguments: Sequence[object]) -> str:
    words = [str(each) for each in arguments if not isinstance(each, Path)]
    return "-".join(word for word in words[:2] if word.isalpha())
