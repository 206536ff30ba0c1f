"""What is tried between two servers: each case makes a topic at the source, copies it, and compares records."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.replicator.real import (
    applied,
    assert_exact_copy,
    plan_for,
    producer,
    put,
    read_all,
    wait_copied,
    wait_progress,
    workers,
)
from tests.replicator.states_scene import delete_topics, in_state, until
from watershed.clusters.admin import Admin
from watershed.clusters.kafka_release import parse_release
from watershed.clusters.settings import ConnectionSettings
from watershed.lab import clusters
from watershed.lab.other_servers import OtherServer, kill_other_server, restart_other_server
from watershed.lab.releases import RELEASES
from watershed.replicator.ledger.ledger import read_ledger
from watershed.topology.cluster_capabilities import TRANSACTIONS, ClusterCapabilities
from watershed.topology.delivery_guarantee import AT_LEAST_ONCE
from watershed.topology.plan import Plan

_RECORDS: Final = 3_000
_PARTITIONS: Final = 2
_ZSTD: Final = "2.1.1"  # KIP-110
_CREATE_PARTITIONS: Final = "1.1.1"  # KIP-195


class NotPossible(Exception):
    """A server lacks what the case is about; the text says what."""


@dataclass(frozen=True, slots=True)
class PairUnderTest:
    """Two running clusters, `onprem` and `cloud`: source and target are releases of Kafka, or names of other servers.

    lab: the folder of those that are Apache's; others: the others by alias. capabilities: what was probed of those.
    allows_repeats: no flow between them can have more than `at_least_once, proven`.
    """

    source: str
    target: str
    lab: Path
    settings: Mapping[str, ConnectionSettings]
    directory: Path
    others: Mapping[str, OtherServer] = field(default_factory=dict)
    capabilities: Mapping[str, ClusterCapabilities] = field(default_factory=dict)
    allows_repeats: bool = False

    def restart(self, alias: str) -> None:
        """The broker dies and comes back on its data. Raises NotPossible for one that has none then."""
        if alias not in self.others:
            clusters.kill_lab_broker(self.lab, alias)
            clusters.restart_lab_broker(self.lab, alias)
            return
        if not self.others[alias].keeps_data:
            raise NotPossible(f"{self.others[alias].name} holds its records in memory")
        kill_other_server(self.others[alias])
        restart_other_server(self.others[alias])

    def require_source(self, release: str, what: str) -> None:
        """Raises NotPossible where the source is an older Kafka."""
        if self.source in RELEASES and parse_release(self.source) < parse_release(release):
            raise NotPossible(f"Kafka {self.source} {what}")


@dataclass(frozen=True, slots=True)
class MatrixCase:
    """run: raises AssertionError where something did not hold; returns what was done. text: for people."""

    name: str
    text: str
    run: Callable[[PairUnderTest], str]


def _make_topic(pair: PairUnderTest, case: str, partitions: int = _PARTITIONS, **configs: str) -> str:
    name = f"{case}-{time.monotonic_ns()}"
    with Admin(pair.settings["onprem"]) as admin:
        admin.create_topic(name, partitions, 1, configs)
    return name


def _planned(pair: PairUnderTest, topic: str) -> Plan:
    return applied(pair.settings, plan_for(pair.settings, topic, topic, allows_repeats=pair.allows_repeats))


def _check_copy(pair: PairUnderTest, plan: Plan, topic: str, partitions: int) -> str:
    """Every record is there, in order, and the offset map right. What stands there once more is counted, where the pair
    can give no more."""
    if not pair.allows_repeats:
        return f"{assert_exact_copy(pair.settings, plan, topic, partitions)} records, {plan.flows[0].delivery}"
    here, there = (read_all(pair.settings[alias], topic, partitions) for alias in ("onprem", "cloud"))
    ledger, total, repeated = read_ledger(pair.settings["cloud"], flow=plan.flows[0].id), 0, 0
    for number in range(partitions):
        offsets, seen = ledger.map(plan.flows[0].id, topic, number), set()
        end = there[number][-1][0] + 1 if there[number] else 0
        waiting = deque(here[number])
        for target_offset, record in there[number]:
            if waiting and waiting[0][1] == record:
                assert offsets.to_target(waiting.popleft()[0], end) <= target_offset, "a group would skip it"
                seen.add(record)
            else:
                assert record in seen, f"partition {number}, target offset {target_offset}: before its turn, or foreign"
                repeated += 1
        assert not waiting, f"partition {number}: {len(waiting)} records are missing"
        total += len(here[number])
    return f"{total} records, {AT_LEAST_ONCE}, {repeated} repeated"


def _copy_and_kill(pair: PairUnderTest, case: str, codec: str) -> str:
    """kill -9 of the worker in mid-copy; another one goes on."""
    topic = _make_topic(pair, case)
    sending = producer(pair.settings["onprem"], **{"compression.type": codec})
    put(sending, topic, _RECORDS)
    assert sending.flush(60) == 0
    plan = _planned(pair, topic)
    with workers(plan, "cloud", pair.directory) as start:
        first = start()
        wait_progress(pair.settings, plan, topic, _PARTITIONS, 1)
        put(sending, topic, _RECORDS, start=_RECORDS)
        first.kill()
        assert sending.flush(60) == 0
        start()
        wait_copied(pair.settings, plan, topic, _PARTITIONS)
    return _check_copy(pair, plan, topic, _PARTITIONS)


def _copy_plain(pair: PairUnderTest) -> str:
    return _copy_and_kill(pair, "plain", "none")


def _copy_lz4(pair: PairUnderTest) -> str:
    return _copy_and_kill(pair, "lz4", "lz4")


def _copy_zstd(pair: PairUnderTest) -> str:
    pair.require_source(_ZSTD, "has no zstd")
    return _copy_and_kill(pair, "zstd", "zstd")


def _copy_transactions(pair: PairUnderTest) -> str:
    probed = pair.capabilities.get("onprem")
    if probed is not None and probed.has_failed(TRANSACTIONS):
        raise NotPossible(f"{pair.source}: {probed.tried[TRANSACTIONS].told}")
    topic = _make_topic(pair, "transactions")
    sending = Producer(pair.settings["onprem"].librdkafka({"transactional.id": topic, "linger.ms": 0}))
    sending.init_transactions(60)
    for number in range(20):
        sending.begin_transaction()
        for part in range(10):
            sending.produce(topic, b"%d/%d" % (number, part), partition=part % _PARTITIONS)
        (sending.abort_transaction if number % 2 else sending.commit_transaction)(60)
    plan = _planned(pair, topic)
    with workers(plan, "cloud", pair.directory) as start:
        start()
        wait_copied(pair.settings, plan, topic, _PARTITIONS)
    told = _check_copy(pair, plan, topic, _PARTITIONS)
    assert told.startswith("100 records"), f"{told} of 10 committed transactions of 10"
    return told


def _copy_compacted(pair: PairUnderTest) -> str:
    """The newest value of each key is the same on both sides: the cleaners of the two need not be equally far."""
    if pair.allows_repeats:
        raise NotPossible(f"compacted topics are refused with `{AT_LEAST_ONCE}`")
    topic = _make_topic(
        pair, "compacted", **{"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01"}
    )
    sending = producer(pair.settings["onprem"])
    for round_ in range(4):
        put(sending, topic, _RECORDS, start=round_ * _RECORDS)
        assert sending.flush(60) == 0
        time.sleep(0.6)  # so that segments end
    plan = _planned(pair, topic)
    with workers(plan, "cloud", pair.directory) as start:
        start()
        wait_copied(pair.settings, plan, topic, _PARTITIONS)
    here, there = (_newest_values(pair.settings[alias], topic) for alias in ("onprem", "cloud"))
    assert here == there, "the newest values of the keys differ"
    return f"{len(here)} keys, {plan.flows[0].delivery}"


def _newest_values(settings: ConnectionSettings, topic: str) -> dict[bytes | None, object]:
    """A key without a value (a tombstone) is left out: brokers may have deleted it already."""
    found: dict[bytes | None, object] = {}
    for records in read_all(settings, topic, _PARTITIONS).values():
        found |= {key: (value, timestamp, headers) for _offset, (key, value, timestamp, headers) in records}
    return {key: each for key, each in found.items() if each[0] is not None}


def _restart_brokers(pair: PairUnderTest) -> str:
    """Both brokers die in mid-copy, one after the other, and come back."""
    topic = _make_topic(pair, "restarted")
    sending = producer(pair.settings["onprem"])
    put(sending, topic, _RECORDS)
    assert sending.flush(60) == 0
    plan = _planned(pair, topic)
    with workers(plan, "cloud", pair.directory) as start:
        start()
        wait_progress(pair.settings, plan, topic, _PARTITIONS, 1)
        for alias in ("onprem", "cloud"):
            pair.restart(alias)
            again = producer(pair.settings["onprem"])  # one that lived through it takes the topic for a missing one
            put(again, topic, _RECORDS, start=_RECORDS)
            assert again.flush(180) == 0
        wait_copied(pair.settings, plan, topic, _PARTITIONS, 300)
    return _check_copy(pair, plan, topic, _PARTITIONS)


def _recreate_topic(pair: PairUnderTest) -> str:
    """A topic that is made anew under its name is never taken for the old one; nothing of it is appended."""
    topic = _make_topic(pair, "recreated", 1)
    sending = producer(pair.settings["onprem"])
    put(sending, topic, 100)
    assert sending.flush(60) == 0
    plan = _planned(pair, topic)
    with workers(plan, "cloud", pair.directory) as start:
        start()
        wait_copied(pair.settings, plan, topic, 1)
        delete_topics(pair.settings["onprem"], topic)
        until(lambda: make_topic_anew(pair.settings["onprem"], topic), "the topic is there again")
        again = producer(pair.settings["onprem"])
        put(again, topic, 500)
        assert again.flush(120) == 0
        in_state(pair.settings, plan, topic, "source_recreated")
    kept = len(read_all(pair.settings["cloud"], topic, 1)[0])
    assert kept == 100, f"{kept} records at the target, 100 were there"
    return "halted as source_recreated"


def make_topic_anew(settings: ConnectionSettings, topic: str) -> bool:
    """Whether it was made. With ZooKeeper a topic that no broker shows may still be in the way."""
    client = AdminClient(settings.librdkafka())
    try:
        client.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


def _grow_topic(pair: PairUnderTest) -> str:
    pair.require_source(_CREATE_PARTITIONS, "takes no CreatePartitions")
    topic = _make_topic(pair, "grown", 1)
    sending = producer(pair.settings["onprem"])
    put(sending, topic, 500)
    assert sending.flush(60) == 0
    plan = _planned(pair, topic)
    with workers(plan, "cloud", pair.directory) as start:
        start()
        wait_copied(pair.settings, plan, topic, 1)
        with Admin(pair.settings["onprem"]) as admin:
            admin.create_partitions(topic, 3)
        again = producer(pair.settings["onprem"])  # knows the new partitions
        put(again, topic, 500, start=500)
        assert again.flush(60) == 0
        wait_copied(pair.settings, plan, topic, 3)
    return _check_copy(pair, plan, topic, 3)


CASES: Final = (
    MatrixCase("plain", "keys, headers, tombstones; the worker is killed with -9 in mid-copy", _copy_plain),
    MatrixCase("lz4", "the same in lz4 batches", _copy_lz4),
    MatrixCase("zstd", "the same in zstd batches", _copy_zstd),
    MatrixCase("transactions", "committed and aborted transactions in turn", _copy_transactions),
    MatrixCase("compacted", "a compacted topic while its cleaner works: the newest value of each key", _copy_compacted),
    MatrixCase("recreated", "the source topic is deleted and made anew: copying stops and says so", _recreate_topic),
    MatrixCase("grown", "the source topic gets more partitions", _grow_topic),
    MatrixCase("restarted", "both brokers are killed with -9 in mid-copy and started again", _restart_brokers),
)
