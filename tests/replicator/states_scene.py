"""Real brokers, one worker and the command line, for tests of halt states: faults behind the copier's back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as WirePartition
from confluent_kafka.admin import AdminClient

from tests.replicator.status_view import read_statuses
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.settings import ConnectionSettings
from watershed.topology import compile_path
from watershed.topology.plan import Plan

# A worker that waits seconds instead of 35 until nothing can be under way: nothing else writes here.
QUICK = "import watershed.replicator.recovery.settled_log_ends as look; look.LOG_SETTLE_S = 3.0"

FILE = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: tests}}
clusters:
  onprem: {{bootstrap: [{onprem}]}}
  cloud: {{bootstrap: [{cloud}]}}
flows:
  - source: onprem
    target: cloud
    suffix: {name}
    topics: {{include: [{topics}]}}
    naming: {{policy: identity}}
    workers: {{engine: process, discovery: 1s}}
    delivery: {{{delivery}}}
"""


def written(path: Path, settings, name: str, topics: Sequence[str], delivery: str = "start: earliest") -> Plan:
    """A topology file with one flow, `onprem-to-cloud-<name>`, and its plan."""
    path.write_text(
        FILE.format(
            name=name,
            onprem=settings["onprem"].bootstrap[0],
            cloud=settings["cloud"].bootstrap[0],
            topics=", ".join(topics),
            delivery=delivery,
        )
    )
    return compile_path(path)


def produce(settings: ConnectionSettings, topic: str, first: int, count: int, partition: int = 0) -> None:
    """Records whose keys are their numbers."""
    sending = Producer(settings.librdkafka({"linger.ms": 20}))
    for number in range(first, first + count):
        sending.produce(topic, b"value of %d" % number, str(number), partition)
    assert sending.flush(60) == 0


def create(settings: ConnectionSettings, *topics: str, partitions: int = 1, **configs: str) -> None:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    with Admin(settings) as admin:
        for topic in topics:
            admin.create_topic(topic, partitions, 1, named)


def delete_topics(settings: ConnectionSettings, *topics: str) -> None:
    client = AdminClient(settings.librdkafka())
    for future in client.delete_topics(list(topics)).values():
        future.result(60)
    with Admin(settings) as admin:
        until(lambda: not set(topics) & set(admin.topics()), "topics are gone")


def delete_records(settings: ConnectionSettings, topic: str, before: int, partition: int = 0) -> None:
    """`before` -1: all of them."""
    client = AdminClient(settings.librdkafka())
    for future in client.delete_records([WirePartition(topic, partition, before)]).values():
        future.result(60)


def until(holds: Callable[[], object], what: str, timeout: float = 180) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.4)


def report(settings, plan: Plan, topic: str, partition: int = 0) -> PartitionStatus | None:
    wanted = (plan.flows[0].id, topic, partition)
    found = [each for each in read_statuses(settings["cloud"]) if (each.flow, each.topic, each.partition) == wanted]
    return found[0] if found else None


def in_state(settings, plan: Plan, topic: str, state: str, partition: int = 0, timeout: float = 180) -> PartitionStatus:
    """Wait for a state; what is reported then."""
    seen: list[PartitionStatus | None] = [None]

    def reached() -> bool:
        seen[0] = report(settings, plan, topic, partition)
        return seen[0] is not None and seen[0].state == state

    try:
        until(reached, f"{topic}-{partition} is {state}", timeout)
    except AssertionError as error:
        raise AssertionError(f"{error}; it is {seen[0]}") from None
    assert seen[0] is not None
    return seen[0]


def typed(command: str, path: Path, *more: str) -> int:
    """Type the command that a remedy names in backquotes, with the file's path in place of FILE."""
    words = command.replace("FILE", str(path)).split()
    assert words[0] == "topology"
    return main([*words[1:], *more])


def commands(remedy: str) -> list[str]:
    return [part for part in remedy.split("`")[1::2] if part.startswith("topology ")]
