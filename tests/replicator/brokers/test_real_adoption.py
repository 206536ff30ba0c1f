"""Going on behind MirrorMaker 2 of the brokers' own release, which was killed and stopped while producers wrote; and
behind a copy with equal offsets. Records are compared with another consumer than the one under test."""

from __future__ import annotations

import json
import operator
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.replicator.real import applied, put, read_all, settings_of, wait_copied, wait_decided, workers
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.control_records import read_control_log
from watershed.clusters.control_topics import JOURNAL_TOPIC
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab import mirrormaker
from watershed.replicator.ledger.ledger import read_ledger
from watershed.replicator.trace import trace_record
from watershed.topology import compile_path

pytestmark = pytest.mark.kafka

# Nothing of these tests is under way for longer.
QUICK = "import watershed.replicator.recovery.settled_log_ends as _ends; _ends.LOG_SETTLE_S = 3.0"
_TOPOLOGY = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {alias}, owner: test}}
clusters:
  {alias}: {{bootstrap: ["{source}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{target}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - source: {alias}
    target: cloud
    topics: {{include: [{topics}]}}
    naming: {{policy: {policy}}}
    workers: {{engine: process}}
"""


class Scene:
    """A topology file whose source has an alias of its own, so that all of MirrorMaker's topics are this test's."""

    def __init__(self, lab, alias: str, directory: Path, *topics: str, policy: str = "prefix") -> None:
        known = settings_of(lab)
        self.settings = {alias: replace(known["onprem"], alias=alias), "cloud": known["cloud"]}
        self.alias, self.flow, self.topics = alias, f"{alias}-to-cloud", topics
        self.path = directory / f"{alias}.yaml"
        self.path.write_text(
            _TOPOLOGY.format(
                alias=alias, policy=policy, topics=", ".join(f'"{topic}"' for topic in topics),
                source=self.source.bootstrap[0], target=self.target.bootstrap[0],
            )
        )  # fmt: skip
        self.plan = compile_path(self.path)

    @property
    def source(self) -> ConnectionSettings:
        return self.settings[self.alias]

    @property
    def target(self) -> ConnectionSettings:
        return self.settings["cloud"]

    def there(self, topic: str) -> str:
        return self.plan.flows[0].target_topic(topic)

    def adopt(self, *more: str) -> int:
        return main(["flow", "adopt", self.flow, str(self.path), *more])

    def found(self, capsys, *more: str) -> tuple[int, dict[str, dict]]:
        """Exit code and partitions of a dry run, by `topic-partition`."""
        capsys.readouterr()
        code = self.adopt("--dry-run", "--format", "json", *more)
        document = json.loads(capsys.readouterr().out)
        return code, {f"{each['topic']}-{each['partition']}": each for each in document["partitions"]}


@pytest.fixture
def alias(topic_name: str) -> str:
    return f"mm{topic_name[-8:]}"


def ends(scene: Scene, topic: str, partitions: int) -> list[int]:
    """The log ends on the target, by partition; nothing while the topic is not there."""
    with Admin(scene.target) as admin:
        if admin.topic(scene.there(topic)) is None:
            return []
        where = [TopicPartition(scene.there(topic), number) for number in range(partitions)]
        return [span.end for _, span in sorted(admin.offsets(where).items())]


def wait_there(scene: Scene, topic: str, beyond: list[int], timeout: float = 180) -> None:
    """Until each partition of the target holds so many records."""
    deadline = time.monotonic() + timeout
    while not (found := ends(scene, topic, len(beyond))) or any(map(operator.lt, found, beyond)):
        assert time.monotonic() < deadline, f"MirrorMaker has copied {found} of {topic}, not {beyond}"
        time.sleep(0.2)


def transactions(scene: Scene, topic: str, count: int, start: int) -> None:
    """Of three transactions one is aborted."""
    into = Producer(scene.source.librdkafka({"transactional.id": f"{topic}-{start}", "linger.ms": 2}))
    into.init_transactions(60)
    for number in range(start, start + count):
        into.begin_transaction()
        for at in range(10):
            into.produce(topic, f"{topic} {number} {at}".encode(), key=b"%d" % number, partition=0)
        if number % 3 == 1:
            into.flush(60)
            into.abort_transaction(60)
        else:
            into.commit_transaction(60)
    wait_decided(scene.source, topic)


@contextmanager
def writing(scene: Scene, topic: str):
    """A producer that never stops while others come and go; yields how many records were acknowledged."""
    stop, count = threading.Event(), [10_000]

    def run() -> None:
        into = Producer(scene.source.librdkafka({"linger.ms": 5}))
        while not stop.is_set():
            put(into, topic, 50, start=count[0])
            into.flush(60)
            count[0] += 50
            stop.wait(0.05)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.soak
def test_where_mirrormaker_stopped(kafka_pair, topic_name, alias, tmp_path, capsys) -> None:
    plain, paid = f"{topic_name}.plain", f"{topic_name}.paid"
    scene = Scene(kafka_pair, alias, tmp_path, plain, paid)
    with Admin(scene.source) as admin:
        admin.create_topic(plain, 2)
        admin.create_topic(paid, 1)
    into = Producer(scene.source.librdkafka({}))
    put(into, plain, 2_000)
    into.flush(60)
    transactions(scene, paid, 12, 0)
    pair = (alias, scene.source.bootstrap[0]), ("cloud", scene.target.bootstrap[0])
    more = {"scheduled.rebalance.max.delay.ms": "0"}  # or a worker that comes again waits for five minutes
    wanted = f"{topic_name}.*"
    with writing(scene, plain):
        never = {"offset.flush.interval.ms": "3600000"}
        first = mirrormaker.start_dedicated_mirrormaker(tmp_path / "first", *pair, wanted, more | never)
        second = None
        try:
            wait_there(scene, plain, [500, 500])
            wait_there(scene, paid, [120])
            first.kill()  # it has noted nothing: the next one begins from the start
            before = ends(scene, plain, 2)
            second = mirrormaker.start_dedicated_mirrormaker(tmp_path / "second", *pair, wanted, more)
            wait_there(scene, plain, [2 * end + 100 for end in before])
            wait_there(scene, paid, [240])
            applied(scene.settings, scene.plan)
            deadline, told = time.monotonic() + 180, ""
            while f"Connect's group {alias}-mm2 on cloud is Stable: MirrorMaker 2 still runs" not in told:
                assert time.monotonic() < deadline, told
                capsys.readouterr()
                assert scene.adopt("--from", "mm2", "--dry-run") == 1
                told = capsys.readouterr().err
                assert "MirrorMaker 2 still runs" in told, told  # it may rebalance: the first one was killed
            second.stop()
        finally:
            first.stop()
            if second is not None:
                second.stop()
        transactions(scene, paid, 9, 12)
        at_the_stop = {topic: ends(scene, topic, count) for topic, count in ((plain, 2), (paid, 1))}

        code, found = scene.found(capsys, "--from", "mm2")
        assert code == 1
        for name, each in found.items():
            assert set(each["refused"]) == ({"duplicates", "aborted"} if name.startswith(paid) else {"duplicates"})
            assert each["syncs"] == each["syncs_true"] > 0
        assert found[f"{paid}-0"]["counts"]["aborted"] == 40
        assert found[f"{paid}-0"]["noted_position"] == found[f"{paid}-0"]["position"]  # it was stopped in peace

        with workers(scene.plan, "cloud", tmp_path, QUICK) as start:
            start()
            accepted = ("--accept", "duplicates,aborted", "--yes")
            assert scene.adopt("--from", "mm2", *accepted, "--wait", "180") == 0
            told = capsys.readouterr().out
            assert "were copied by MirrorMaker 2; adopted on" in told
            time.sleep(1)
    transactions(scene, paid, 3, 21)
    with workers(scene.plan, "cloud", tmp_path, QUICK) as start:  # another worker: it goes on as any other would
        start()
        wait_copied(scene.settings, scene.plan, plain, 2)
        wait_copied(scene.settings, scene.plan, paid, 1)
    for topic, count in ((plain, 2), (paid, 1)):
        here, there = read_all(scene.source, topic, count), read_all(scene.target, scene.there(topic), count)
        offsets = read_ledger(scene.target, flow=scene.flow)
        for number in range(count):
            proof = found[f"{topic}-{number}"]
            too_many = {
                at
                for each in proof["findings"]
                for at in range(*each["target"])
                if each["kind"] in ("duplicates", "aborted")
            }
            assert len(too_many) == sum(proof["counts"].values())
            kept = [(at, record) for at, record in there[number] if at not in too_many]
            assert [record for _, record in kept] == [record for _, record in here[number]], f"{topic}-{number}"
            extra = Counter(record for at, record in there[number] if at in too_many)
            assert extra.total() == len(too_many)
            each = offsets.map(scene.flow, topic, number)
            end = there[number][-1][0] + 1
            boundary = at_the_stop[topic][number]
            assert kept[0][0] < boundary < kept[-1][0]
            for (source_offset, _), (target_offset, _) in zip(here[number], kept, strict=True):
                assert each.to_target(source_offset, end) == target_offset
                assert each.to_source(target_offset) == source_offset
    capsys.readouterr()
    assert scene.adopt("--from", "mm2", "--dry-run") == 0
    assert "has copied it already; there is nothing to adopt" in capsys.readouterr().err
    followed = trace_record([alias, "cloud"], scene.settings.__getitem__, "cloud", scene.there(plain), 0, 5)
    assert followed.born
    assert [hop.cluster for hop in followed.hops] == ["cloud", alias]
    assert "copied by MirrorMaker 2" in followed.hops[0].note
    decided = [
        record.value or {} for record in read_control_log(scene.target, JOURNAL_TOPIC) if scene.flow in record.key
    ]
    assert {(each["topic"], each["partition"]) for each in decided} == {(plain, 0), (plain, 1), (paid, 0)}
    for each in decided:
        assert (each["record"], each["kind"], each["accepted"]) == ("order", "adopt", ["aborted", "duplicates"])
        assert each["counts"] == found[f"{each['topic']}-{each['partition']}"]["counts"]


def copy_by_hand(scene: Scene, topic: str, partitions: int, changed: dict[int, bytes | None] | None = None) -> None:
    """As a copier would; `changed`: another value at this offset of partition 0, None leaves the record out."""
    into = Producer(scene.target.librdkafka({"linger.ms": 5}))
    for number, records in read_all(scene.source, topic, partitions).items():
        for offset, (key, value, timestamp, headers) in records:
            if number == 0 and offset in (changed or {}):
                if changed[offset] is None:
                    continue
                value = changed[offset]
            into.produce(scene.there(topic), value, key, number, timestamp=timestamp, headers=list(headers) or None)
    assert into.flush(60) == 0


def test_equal_offsets_and_a_target_that_was_tampered_with(kafka_pair, topic_name, alias, tmp_path, capsys) -> None:
    good, bad, short = f"{topic_name}.good", f"{topic_name}.bad", f"{topic_name}.short"
    scene = Scene(kafka_pair, alias, tmp_path, good, bad, short)
    for settings, name in ((scene.source, str), (scene.target, scene.there)):
        with Admin(settings) as admin:
            for topic in (good, bad, short):
                admin.create_topic(name(topic), 2)
    into = Producer(scene.source.librdkafka({"linger.ms": 5}))
    for topic in (good, bad, short):
        put(into, topic, 1_000)
    into.flush(60)
    copy_by_hand(scene, good, 2)
    copy_by_hand(scene, bad, 2, {123: b"another value"})
    copy_by_hand(scene, short, 2, {77: None})
    applied(scene.settings, scene.plan)

    code, found = scene.found(capsys, "--from", "equal-offsets", "-t", good)
    assert code == 0
    assert all(each["exact"] and each["stretches"] == 1 for each in found.values())
    code, found = scene.found(capsys, "-t", bad)
    assert code == 1
    assert found[f"{bad}-0"]["findings"] == [
        {"kind": "changed", "records": 1, "source": [123, 124], "target": [123, 124]}
    ]
    assert found[f"{bad}-1"]["exact"]
    code, found = scene.found(capsys, "-t", short, "--from", "equal-offsets")
    assert found[f"{short}-0"]["findings"][0] == {"kind": "missing", "records": 1, "source": [77, 78], "target": None}
    assert found[f"{short}-0"]["counts"]["shifted"] == found[f"{short}-0"]["source"][1] - 78
    assert scene.adopt("-t", bad, "--yes", "--accept", "missing,duplicates") == 1  # nobody can accept another content
    assert "cannot be accepted" in capsys.readouterr().err
    assert not read_ledger(scene.target, flow=scene.flow).standing()

    with workers(scene.plan, "cloud", tmp_path, QUICK) as start:
        start()
        assert scene.adopt("-t", good, "--from", "equal-offsets", "--yes", "--wait", "180") == 0
        put(into, good, 500, start=1_000)
        into.flush(60)
        wait_copied(scene.settings, scene.plan, good, 2)
    assert read_all(scene.target, scene.there(good), 2) == read_all(scene.source, good, 2)  # offsets, too
    assert {key.topic for key in read_ledger(scene.target, flow=scene.flow).standing()} == {good}


def test_a_copier_that_still_writes_is_refused(kafka_pair, topic_name, alias, tmp_path, capsys, monkeypatch) -> None:
    topic = f"{topic_name}.orders"
    scene = Scene(kafka_pair, alias, tmp_path, topic)
    for settings, name, partitions in ((scene.source, topic, 1), (scene.target, scene.there(topic), 1)):
        with Admin(settings) as admin:
            admin.create_topic(name, partitions)
    into = Producer(scene.source.librdkafka({}))
    put(into, topic, 300)
    into.flush(60)
    copy_by_hand(scene, topic, 1)
    applied(scene.settings, scene.plan)
    from watershed.replicator.adoption import copy_proof

    one = copy_proof._one

    def while_it_is_compared(*args):
        copy_by_hand(scene, topic, 1)
        return one(*args)

    monkeypatch.setattr(copy_proof, "_one", while_it_is_compared)
    assert scene.adopt("--dry-run") == 1
    assert "grew from offset 300 to 600 while it was compared" in capsys.readouterr().err
    monkeypatch.undo()
    # And one that writes between the proof and the worker's look.
    assert scene.adopt("--accept", "duplicates", "--yes", "--wait", "0") == 3
    copy_by_hand(scene, topic, 1)
    with workers(scene.plan, "cloud", tmp_path, QUICK) as start:
        start()
        deadline = time.monotonic() + 180
        while True:
            capsys.readouterr()
            main(["status", str(scene.path), "--format", "json"])
            (flow,) = json.loads(capsys.readouterr().out)["flows"]
            errors = [each["error"] or "" for each in flow["partitions"]]
            if any("is refused: it proved the target up to offset 600" in error for error in errors):
                break
            assert time.monotonic() < deadline, errors
            time.sleep(0.3)
    assert not read_ledger(scene.target, flow=scene.flow).standing()
