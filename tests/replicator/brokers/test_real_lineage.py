"""Three real clusters with every kind of loop at once: each record is everywhere once, nothing circles, and every
record leads back to the application that wrote it."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as WirePartition
from confluent_kafka.admin import AdminClient

from tests.replicator.real import WorkerProcess, read_all, settings_of, wait_decided
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab import clusters
from watershed.replicator.apply import apply_plan
from watershed.replicator.apply_refusals import CannotApply
from watershed.replicator.batch_at_offset import NoRecordAtOffset
from watershed.replicator.trace import trace_record
from watershed.topology import compile_path
from watershed.topology.plan import Plan

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

ALIASES = ("east", "west", "hub")
PARTITIONS = 2
ROUNDS, BATCH = 12, 25  # records an application writes to one topic: so many at a time, so often
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}
# topic → the clusters where applications write, and the clusters where their records must come
WRITTEN = {
    "pair": (("east", "west"), ("east", "west")),
    "mesh": (ALIASES, ALIASES),
    "spokes": (ALIASES, ALIASES),
    "ring": (ALIASES, ALIASES),
    "ring-table": (ALIASES, ALIASES),
    "chain-table": (("east",), ALIASES),
}
TABLES = ("ring-table", "chain-table")
FLOWS = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: lineage}}
clusters:
{clusters}
defaults: {{workers: {{engine: process, discovery: 1s}}}}
flows:
  - {{source: east, target: west, topics: {{include: [pair]}}}}
  - {{source: west, target: east, topics: {{include: [pair]}}}}
  - {{source: east, target: west, suffix: ring, topics: {{include: [ring, ring-table]}}}}
  - {{source: west, target: hub, suffix: ring, topics: {{include: [ring, ring-table]}}}}
  - {{source: hub, target: east, suffix: ring, topics: {{include: [ring, ring-table]}}}}
  - {{source: east, target: west, suffix: chain, topics: {{include: [chain-table]}}}}
  - {{source: west, target: hub, suffix: chain, topics: {{include: [chain-table]}}}}
"""
MANY_WRITERS = """
{mesh}
  - {{source: east, target: hub, suffix: up, topics: {{include: [spokes]}}, merge: {{allowed: true}}}}
  - {{source: west, target: hub, suffix: up, topics: {{include: [spokes]}}, merge: {{allowed: true}}}}
  - {{source: hub, target: east, suffix: down, topics: {{include: [spokes]}}}}
  - {{source: hub, target: west, suffix: down, topics: {{include: [spokes]}}}}
"""
MESH = (
    "  - {{source: {}, target: {}, suffix: mesh, topics: {{include: [mesh]}}, provenance: {{forward: local}}, "
    "merge: {{allowed: true}}}}"
)


@dataclass(slots=True)
class World:
    """Three clusters after applications wrote everywhere at once, to the topics of WRITTEN. logs: (cluster, topic) →
    every record by partition as (offset, id); an id is `topic/birth cluster/number`."""

    settings: dict[str, ConnectionSettings]
    plan: Plan
    wrote: dict[str, Counter[str]] = field(default_factory=dict)  # topic → birth cluster → records
    logs: dict[tuple[str, str], dict[int, list[tuple[int, str]]]] = field(default_factory=dict)

    def ids(self, alias: str, topic: str) -> list[str]:
        return [name for records in self.logs[alias, topic].values() for _, name in records]

    def read(self, alias: str, topic: str) -> None:
        found = read_all(self.settings[alias], topic, PARTITIONS)
        self.logs[alias, topic] = {
            number: [(offset, (record[1] or b"").decode()) for offset, record in records]
            for number, records in found.items()
        }

    def ends(self) -> dict[tuple[str, TopicPartition], int]:
        """Of all logs that are copied, with markers."""
        found = {}
        for alias, settings in self.settings.items():
            where = [TopicPartition(topic, n) for topic, (_, to) in WRITTEN.items() if alias in to for n in (0, 1)]
            with Admin(settings) as admin:
                ranges = admin.offsets(where, "read_uncommitted")
            found |= {(alias, place): span.end for place, span in ranges.items()}
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("lineage")
    try:
        lab = clusters.start_clusters(directory / "lab", ALIASES, settings={"log.cleaner.backoff.ms": "300"})
        settings = settings_of(lab)
        for alias in ALIASES:
            with Admin(settings[alias]) as admin:
                for topic, (_, to) in WRITTEN.items():
                    if alias in to:
                        admin.create_topic(topic, PARTITIONS, 1, COMPACTED if topic in TABLES else {})
        found = World(settings, compile_path(written(settings, directory)))
        apply_plan(found.plan, settings.__getitem__)
        with ExitStack() as running:
            for alias in ALIASES:
                running.callback(WorkerProcess(found.plan, alias, directory).stop)
            write(found)
            wait_everywhere(found)
            still(found)
            for alias, topic in found.logs:
                found.read(alias, topic)
            yield found
    finally:
        clusters.end_clusters(directory / "lab")


def written(settings: dict[str, ConnectionSettings], folder: Path, more: str = "") -> Path:
    """The topology file, with more flows."""
    lines = "\n".join(f"  {alias}: {{bootstrap: [{each.bootstrap[0]}]}}" for alias, each in settings.items())
    mesh = "\n".join(MESH.format(one, two) for one in ALIASES for two in ALIASES if one != two)
    path = folder / "lineage.yaml"
    path.write_text(FLOWS.format(clusters=lines) + MANY_WRITERS.format(mesh=mesh) + more)
    return path


def write(world: World) -> None:
    """Applications on all clusters, at the same time, into the very topics that are copied. They write as applications
    do: without a producer id (east), idempotently (west), in transactions (hub)."""
    ways = {"east": {}, "west": {"enable.idempotence": True}, "hub": {"transactional.id": "billing"}}
    producers = {
        alias: Producer(each.librdkafka({"linger.ms": 2} | ways[alias])) for alias, each in world.settings.items()
    }
    producers["hub"].init_transactions(60)
    for turn in range(ROUNDS):
        producers["hub"].begin_transaction()
        for topic, (births, _) in WRITTEN.items():
            for alias in births:
                for number in range(turn * BATCH, (turn + 1) * BATCH):
                    key = f"{alias}-{number % (20 if topic in TABLES else 7)}"
                    producers[alias].produce(topic, f"{topic}/{alias}/{number}".encode(), key.encode())
        for producer in producers.values():
            producer.flush()
        producers["hub"].commit_transaction(60)
        time.sleep(0.1)
    for topic, (births, _) in WRITTEN.items():
        world.wrote[topic] = Counter(dict.fromkeys(births, ROUNDS * BATCH))


def wait_everywhere(world: World) -> None:
    """Until every cluster has the newest record of each key of every application, so that no partition is behind. Only
    then it is looked whether there is more."""
    deadline = time.monotonic() + 300
    todo = {(alias, topic) for topic, (_, to) in WRITTEN.items() for alias in to}
    while todo:
        still(world, 0.5)  # to read a topic takes a consumer of its own: not while the logs still move
        for alias, topic in sorted(todo):
            world.read(alias, topic)
            newest = {
                f"{topic}/{birth}/{number}"
                for birth, count in world.wrote[topic].items()
                for number in range(count - 20, count)  # as many as there are keys: nothing of it is compacted away
            }
            if newest <= set(world.ids(alias, topic)):
                todo.discard((alias, topic))
        assert time.monotonic() < deadline, f"not everywhere: {sorted(todo)}"


def still(world: World, seconds: float = 2) -> dict[tuple[str, TopicPartition], int]:
    """The ends of all logs, once they have not moved for so long."""
    deadline = time.monotonic() + 180
    before = world.ends()
    while True:
        time.sleep(seconds)
        now = world.ends()
        if now == before:
            return now
        before = now
        assert time.monotonic() < deadline, "the logs never come to rest: something circles"


def test_the_plan_says_how_each_flow_copies(world: World) -> None:
    told = {flow.id: (flow.delivery, flow.paths) for flow in world.plan.flows}
    assert told["east-to-west-chain"] == told["west-to-hub-chain"] == ("sequence", False)
    assert {told[flow] for flow in told if flow.endswith("-ring")} == {("transactions", True)}
    others = {told[flow] for flow in told if not flow.endswith(("-ring", "-chain"))}
    assert others == {("transactions", False)}


def plain(world: World) -> list[str]:
    return [topic for topic in WRITTEN if topic not in TABLES]


def test_each_record_is_everywhere_once_and_in_the_order_of_its_origin(world: World) -> None:
    for topic in plain(world):
        births, clusters_ = WRITTEN[topic]
        expected = {f"{topic}/{birth}/{number}" for birth in births for number in range(ROUNDS * BATCH)}
        for alias in clusters_:
            found = Counter(world.ids(alias, topic))
            assert set(found) == expected, f"{topic} on {alias}"
            twice = [name for name, count in found.items() if count > 1]
            assert not twice, f"{topic} on {alias}: {twice[:5]}"
            for partition, records in world.logs[alias, topic].items():
                for birth in births:
                    mine = [name for _, name in records if name.split("/")[1] == birth]
                    there = [name for _, name in world.logs[birth, topic][partition] if name.split("/")[1] == birth]
                    assert mine == there, f"{topic}-{partition} on {alias}, born on {birth}"


def test_every_record_leads_to_its_birth_place(world: World) -> None:
    for topic in plain(world):
        assert_traced(world, topic, 6)


def assert_traced(world: World, topic: str, samples: int) -> Counter[int]:
    """Random records on every cluster: the trail ends at the record's own offset where it was born. Counts of hops."""
    _, to = WRITTEN[topic]
    rng = random.Random(topic)
    lengths: Counter[int] = Counter()
    for alias in to:
        stand = [(n, *record) for n, records in world.logs[alias, topic].items() for record in records]
        for partition, offset, name in rng.sample(stand, samples):
            birth = name.split("/")[1]
            found = trace_record(ALIASES, world.settings.__getitem__, alias, topic, partition, offset)
            assert found.born, (alias, topic, partition, offset, found.why)
            last = found.hops[-1]
            assert (last.cluster, last.topic, last.flow) == (birth, topic, None), (name, found)
            assert (last.offset, name) in world.logs[birth, topic][partition], (name, found)
            assert (last.producer_id >= 0) == (birth != "east"), (name, found)
            seen = [hop.cluster for hop in found.hops]
            assert len(set(seen)) == len(seen), f"{name} was on {seen}"
            lengths[len(found.hops)] += 1
    return lengths


def test_a_ring_is_passed_in_its_order(world: World) -> None:
    around = {"west": "east", "hub": "west", "east": "hub"}
    partition, (offset, _) = next(
        (number, record)
        for number, records in world.logs["hub", "ring"].items()
        for record in records
        if "/east/" in record[1]
    )
    found = trace_record(ALIASES, world.settings.__getitem__, "hub", "ring", partition, offset)
    assert [hop.cluster for hop in found.hops] == ["hub", around["hub"], around["west"]]
    assert [hop.flow for hop in found.hops] == ["west-to-hub-ring", "east-to-west-ring", None]
    ids = {hop.cluster: hop.cluster_id for hop in found.hops}
    assert found.hops[0].path == (ids["east"], ids["west"])


def test_it_does_so_after_compaction(world: World) -> None:
    """Every key's newest record is left, in batches that the cleaner has rewritten, on every cluster."""
    for topic in TABLES:
        compact(world, topic)
        _, to = WRITTEN[topic]
        total = sum(world.wrote[topic].values())
        for alias in to:
            assert len(world.ids(alias, topic)) < total / 2, f"{topic} on {alias} was not compacted"
        lengths = assert_traced(world, topic, 8)
        assert max(lengths) == 3, lengths


def compact(world: World, topic: str) -> None:
    """Make every log roll and wait until the cleaner has been there: half of the records are gone."""
    births, to = WRITTEN[topic]
    deadline = time.monotonic() + 180
    turn = 0
    while True:
        time.sleep(0.7)  # longer than a segment lasts; the next record rolls it
        for alias in births:
            producer = Producer(world.settings[alias].librdkafka({"enable.idempotence": alias != "east"}))
            for partition in range(PARTITIONS):
                number = world.wrote[topic][alias]
                producer.produce(topic, f"{topic}/{alias}/{number}".encode(), f"{alias}-roll".encode(), partition)
                world.wrote[topic][alias] += 1
            producer.flush()
        turn += 1
        still(world)
        for alias in to:
            world.read(alias, topic)
        if all(len(world.ids(alias, topic)) < ROUNDS * BATCH * len(births) / 2 for alias in to):
            break
        assert time.monotonic() < deadline, f"{topic} was never compacted"
    while True:  # what is traced next must not be compacted away meanwhile: until the cleaner has nothing left to do
        before = {alias: world.logs[alias, topic] for alias in to}
        time.sleep(2)
        for alias in to:
            world.read(alias, topic)
        if before == {alias: world.logs[alias, topic] for alias in to}:
            return
        assert time.monotonic() < deadline, f"{topic} is compacted without end"


def test_what_is_no_record_says_what_it_is(world: World) -> None:
    settings = world.settings
    partition, offsets = next(
        (number, {offset for offset, _ in records})
        for number, records in world.logs["west", "pair"].items()
        if any("/east/" in name for _, name in records)
    )
    marker = next(offset for offset in range(max(offsets) + 2) if offset not in offsets)
    with pytest.raises(NoRecordAtOffset, match="marker of a transaction"):
        trace_record(ALIASES, settings.__getitem__, "west", "pair", partition, marker)
    end = world.ends()["west", TopicPartition("pair", partition)]
    with pytest.raises(NoRecordAtOffset, match=f"ends at offset {end}"):
        trace_record(ALIASES, settings.__getitem__, "west", "pair", partition, end)
    log = world.logs["hub", "chain-table"]
    partition, gone = next(
        (n, offset) for n, r in log.items() for offset in range(r[0][0]) if offset not in {at for at, _ in r}
    )
    with pytest.raises(NoRecordAtOffset, match="compact"):
        trace_record(ALIASES, settings.__getitem__, "hub", "chain-table", partition, gone)


def test_an_aborted_record_is_none(world: World) -> None:
    writer = Producer(world.settings["east"].librdkafka({"transactional.id": "lineage-abort"}))
    writer.init_transactions()
    writer.begin_transaction()
    at: list[int] = []
    writer.produce("pair", b"aborted", partition=0, on_delivery=lambda _, message: at.append(message.offset()))
    writer.flush()
    writer.abort_transaction()
    wait_decided(world.settings["east"], "pair")
    with pytest.raises(NoRecordAtOffset, match="aborted transaction"):
        trace_record(ALIASES, world.settings.__getitem__, "east", "pair", 0, at[0])


def test_what_is_deleted_or_in_an_open_transaction_says_so(world: World) -> None:
    settings = world.settings["east"]
    with Admin(settings) as admin:
        admin.create_topic("elsewhere", 1, 1)
    plain = Producer(settings.librdkafka())
    for number in range(5):
        plain.produce("elsewhere", f"{number}".encode())
    plain.flush()
    keeper, before = AdminClient(settings.librdkafka()), WirePartition("elsewhere", 0, 3)
    keeper.delete_records([before])[before].result(60)
    with pytest.raises(NoRecordAtOffset, match="begins at offset 3; 1 was deleted"):
        trace_record(ALIASES, world.settings.__getitem__, "east", "elsewhere", 0, 1)
    born = trace_record(ALIASES, world.settings.__getitem__, "east", "elsewhere", 0, 4)
    assert (born.born, len(born.hops), born.hops[0].flow) == (True, 1, None)
    writer = Producer(settings.librdkafka({"transactional.id": "lineage-open"}))
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce("elsewhere", b"open")
    writer.flush()
    with pytest.raises(NoRecordAtOffset, match="still open"):
        trace_record(ALIASES, world.settings.__getitem__, "east", "elsewhere", 0, 5)
    writer.commit_transaction()


def test_the_command_prints_the_trail(world: World, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    partition, (offset, _) = next(
        (number, record)
        for number, records in world.logs["hub", "ring"].items()
        for record in records
        if "/east/" in record[1]
    )
    file = str(written(world.settings, tmp_path))
    arguments = [file, "--cluster", "hub", f"ring:{partition}:{offset}"]
    assert main(["trace", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["hub", "west", "east"]
    assert "brought by west-to-hub-ring in transactions (producer id " in lines[0]
    assert "brought by east-to-west-ring in transactions (producer id " in lines[1]
    assert "born here: written by an application (no producer id" in lines[2]
    assert main(["trace", *arguments, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["born"]
    assert [hop["flow"] for hop in document["hops"]] == ["west-to-hub-ring", "east-to-west-ring", None]
    assert main(["trace", *arguments[:3], f"ring:{partition}:99999999"]) == 1
    assert "ends at offset" in capsys.readouterr().err


def test_a_flow_that_has_copied_alone_is_not_made_to_share(world: World, tmp_path) -> None:
    """The chain runs by sequence numbers; a way back would make applications write at both ends."""
    before = next(flow for flow in world.plan.flows if flow.id == "east-to-west-chain")
    assert before.delivery == "sequence"
    closing = "  - {source: west, target: east, suffix: chain, topics: {include: [chain-table]}}\n"
    path = written(world.settings, tmp_path, closing)
    with pytest.raises(CannotApply, match=r"east-to-west-chain has copied by sequence numbers.*west-to-east-chain"):
        apply_plan(compile_path(path), world.settings.__getitem__)
