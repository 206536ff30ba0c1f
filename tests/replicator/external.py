"""A real MirrorMaker 2 that copies back under unchanged names, beside a flow of ours."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from tests.replicator.real import read_all
from watershed.clusters.settings import ConnectionSettings
from watershed.lab import mirrormaker

PARTITIONS = 3
MARK = "copied-by-mirrormaker"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_TRANSFORMS = "org.apache.kafka.connect.transforms"
# As docs/external-flows.md tells people: each record that it writes gets a header. `null` is the only value that
# ByteArrayConverter takes, and no other converter leaves the headers of records as they are.
MARKS = {
    "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    "key.converter": _BYTES,
    "value.converter": _BYTES,
    "header.converter": _BYTES,
    "transforms": "mark",
    "transforms.mark.type": f"{_TRANSFORMS}.InsertHeader",
    "transforms.mark.header": MARK,
    "transforms.mark.value.literal": "null",
    "source.consumer.isolation.level": "read_committed",
}


def leave_out(header: str) -> dict[str, str]:
    """Settings with which it does not copy records that have this header."""
    return {
        "transforms": "skip,mark",
        "predicates": "ours",
        "predicates.ours.type": f"{_TRANSFORMS}.predicates.HasHeaderKey",
        "predicates.ours.name": header,
        "transforms.skip.type": f"{_TRANSFORMS}.Filter",
        "transforms.skip.predicate": "ours",
    }


@contextmanager
def copying_back(
    settings: dict[str, ConnectionSettings], topic: str, home: Path, more: dict[str, str]
) -> Iterator[None]:
    """MirrorMaker 2 copies the topic from cloud to onprem, under its own name."""
    source, target = (settings[alias].bootstrap[0] for alias in ("cloud", "onprem"))
    process = mirrormaker.start_connect_mirrormaker(home, target)
    try:
        config = mirrormaker.build_source_connector(source, target, "cloud", topic, MARKS | more)
        process.put(topic, config)
        yield
        assert set(process.states(topic)) == {"RUNNING"}
    finally:
        process.stop()


@contextmanager
def writing_everywhere(settings: dict[str, ConnectionSettings], topic: str) -> Iterator[Counter[str]]:
    """An application on each cluster writes until this ends; yields how many records each has written so far. A record
    is called `ALIAS/NUMBER`. The one on cloud compresses, the one on onprem writes without a producer id."""
    wrote: Counter[str] = Counter()
    stop = threading.Event()

    def write(alias: str) -> None:
        own = {"compression.type": "zstd"} if alias == "cloud" else {"enable.idempotence": False, "acks": "all"}
        into = Producer(settings[alias].librdkafka({"linger.ms": 10, **own}))
        while not stop.is_set():
            for _ in range(40):
                number = wrote[alias]
                into.produce(topic, f"{alias}/{number}".encode(), b"k%d" % number, number % PARTITIONS)
                wrote[alias] += 1
            assert into.flush(60) == 0
            stop.wait(0.1)

    threads = [threading.Thread(target=write, args=(alias,)) for alias in ("onprem", "cloud")]
    for thread in threads:
        thread.start()
    try:
        yield wrote
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def count_records(settings: ConnectionSettings, topic: str) -> Counter[str]:
    """How often each record stands in the topic, by its name."""
    found = read_all(settings, topic, PARTITIONS)
    return Counter((record[1] or b"").decode() for records in found.values() for _, record in records)


def name_all(wrote: Counter[str]) -> set[str]:
    return {f"{alias}/{number}" for alias, count in wrote.items() for number in range(count)}


def wait_everywhere(settings: dict[str, ConnectionSettings], topic: str, names: set[str], timeout: float = 240) -> None:
    """Until each record stands on both clusters."""
    deadline = time.monotonic() + timeout
    while lacking := {alias: len(names - set(count_records(settings[alias], topic))) for alias in settings}:
        if not any(lacking.values()):
            return
        assert time.monotonic() < deadline, f"not there yet, by cluster: {lacking}"
        time.sleep(1)


def assert_quiet(settings: dict[str, ConnectionSettings], topic: str, seconds: float) -> dict[str, Counter[str]]:
    """Nothing is written any more, by anybody; what stands on each cluster."""
    before = {alias: count_records(each, topic) for alias, each in settings.items()}
    time.sleep(seconds)
    after = {alias: count_records(each, topic) for alias, each in settings.items()}
    assert {alias: each.total() for alias, each in after.items()} == {
        alias: each.total() for alias, each in before.items()
    }
    return after
