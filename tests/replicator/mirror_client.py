"""Kafka's own tools for what MirrorMaker 2 writes, run as programs of the same release as the brokers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from watershed.clusters.settings import ConnectionSettings
from watershed.lab.broker import LOG4J_CONFIG
from watershed.lab.jars import fetch_jars, find_java

_PROGRAM = Path(__file__).with_name("MirrorLook.java")
_FORMATTERS = "org.apache.kafka.connect.mirror.formatters"


def _run(home: Path, *command: str) -> str:
    options = ["-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={LOG4J_CONFIG}", f"-Dkafka.logs.dir={home}"]
    classes = f"{home}:{fetch_jars()}/*"
    done = subprocess.run(
        [find_java(), *options, "-cp", classes, *command], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _compile(home: Path) -> None:
    compiler = shutil.which("javac")
    if compiler is None:
        pytest.skip("no javac here: the program that asks connect-mirror-client is not compiled")
    if not (home / "MirrorLook.class").exists():
        command = [compiler, "-cp", f"{fetch_jars()}/*", "-d", str(home), str(_PROGRAM)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr


def look(home: Path, cluster: ConnectionSettings, alias: str, group: str, **settings: str) -> dict[str, str]:
    """What `MirrorClient` and `RemoteClusterUtils` answer at `cluster` about the source. group: `-` for none."""
    _compile(home)
    given = [f"{key.replace('_', '.')}={value}" for key, value in settings.items()]
    told = _run(home, "MirrorLook", ",".join(cluster.bootstrap), alias, group, *given)
    return dict(line.split("=", 1) for line in told.splitlines() if "=" in line)


def read_formatted(home: Path, cluster: ConnectionSettings, topic: str, formatter: str) -> list[str]:
    """The records of a topic as the formatter of Kafka's console consumer prints them."""
    _compile(home)
    told = _run(home, "MirrorLook", "read", ",".join(cluster.bootstrap), topic, f"{_FORMATTERS}.{formatter}")
    return told.splitlines()


def describe_group(home: Path, cluster: ConnectionSettings, group: str) -> dict[tuple[str, int], tuple[int, int, int]]:
    """What `kafka-consumer-groups --describe` shows: by topic and partition, position, log end and lag."""
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    told = _run(home, tool, "--bootstrap-server", ",".join(cluster.bootstrap), "--describe", "--group", group)
    rows = (line.split() for line in told.splitlines() if line.startswith(f"{group} "))
    return {(row[1], int(row[2])): (int(row[3]), int(row[4]), int(row[5])) for row in rows}
