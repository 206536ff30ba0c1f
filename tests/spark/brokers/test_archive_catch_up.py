"""Real brokers: a flow goes on behind what a restore brought, although the source has deleted what was archived."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replicator.brokers.test_real_adoption import QUICK, Scene, transactions
from tests.replicator.real import applied, producer, put, read_all, wait_copied, workers
from tests.spark.brokers.test_archive_restore import commit, delete_below, held, log_ranges, run
from watershed.clusters.admin import Admin
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.ledger import read_ledger

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 2


@pytest.fixture
def scene(kafka_pair, topic_name: str, tmp_path: Path) -> Scene:
    """A topic with transactions, of which some were aborted, and a log that does not begin at 0."""
    topic = f"{topic_name}.carried"
    made = Scene(kafka_pair, f"a{topic_name[-8:]}", tmp_path, topic)
    with Admin(made.source) as admin:
        admin.create_topic(topic, PARTITIONS, 1, {"retention.ms": "-1"})
    put(into := producer(made.source), topic, 900)
    into.flush(60)
    transactions(made, topic, 9, 0)
    delete_below(made.source, topic, 0, 200)
    return made


@pytest.mark.parametrize("offsets", ["equal", pytest.param("mapped", marks=pytest.mark.soak)])
def test_a_flow_goes_on_where_the_archive_ends(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str], offsets: str
) -> None:
    [topic], there, folder = scene.topics, scene.there(scene.topics[0]), tmp_path / "archive"
    archived, first = log_ranges(scene.source, topic, PARTITIONS), read_all(scene.source, topic, PARTITIONS)
    group, stood = f"{topic}-group", {0: first[0][250][0], 1: archived[1][1]}
    commit(scene.source, group, topic, stood)
    assert run("archive", scene.path, "--cluster", scene.alias, "--topics", topic, "--to", folder) == 0
    transactions(scene, topic, 4, 100)
    put(into := producer(scene.source), topic, 400, start=5_000)
    into.flush(60)
    late = read_all(scene.source, topic, PARTITIONS)
    for number, (_, end) in enumerate(archived):
        delete_below(scene.source, topic, number, end)  # the archive is all there is of it

    restoring = ["restore", scene.path, "--cluster", "cloud", "--from", folder, "--rename", f"{topic}={there}"]
    assert run(*restoring, "--offsets", offsets) == 0
    restored = log_ranges(scene.target, there, PARTITIONS)
    applied(scene.settings, scene.plan)
    capsys.readouterr()
    adopting = ["--from", "archive", "--archive", str(folder)]
    code, found = scene.found(capsys, *adopting)
    assert code == 0
    for number, (_, end) in enumerate(archived):
        part = found[f"{topic}-{number}"]
        assert (part["exact"], part["position"], part["proven"]) == (True, end, len(first[number]))
        assert part["target"] == list(restored[number])
    with workers(scene.plan, "cloud", tmp_path, QUICK) as start:
        start()
        assert scene.adopt(*adopting, "--yes", "--wait", "180") == 0
        wait_copied(scene.settings, scene.plan, topic, PARTITIONS)
    copied = read_all(scene.target, there, PARTITIONS)
    assert {n: [record for _, record in rows] for n, rows in copied.items()} == {
        n: [record for _, record in rows] for n, rows in late.items()
    }
    if offsets == "equal":
        assert {n: copied[n][: len(first[n])] for n in copied} == first
    # Every offset is translated, also in the archived part; the group goes on with the very next record.
    known = {
        key.partition: offsets for key, (offsets, _) in read_ledger(scene.target, flow=scene.flow).copies().items()
    }
    ends = log_ranges(scene.target, there, PARTITIONS)
    for number in range(PARTITIONS):
        for (here, _), (at, _) in zip(late[number], copied[number], strict=True):
            assert known[number].to_target(here, ends[number][1]) == at
            assert known[number].to_source(at) == here
    positions = held(scene.target, group)
    assert positions[TopicPartition(there, 0)].offset == copied[0][250][0]
    assert positions[TopicPartition(there, 1)].offset == restored[1][1]
    assert {n: known[n].to_target(offset, ends[n][1]) for n, offset in stood.items()} == {
        place.partition: each.offset for place, each in positions.items()
    }


def test_what_is_no_restore_of_the_archive_is_refused(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [topic], there, folder = scene.topics, scene.there(scene.topics[0]), tmp_path / "archive"
    assert run("archive", scene.path, "--cluster", scene.alias, "--topics", topic, "--to", folder) == 0
    ends = log_ranges(scene.source, topic, PARTITIONS)
    adopting = ["--from", "archive", "--archive", str(folder), "--dry-run"]
    with Admin(scene.target) as admin:
        admin.create_topic(there, PARTITIONS, 1, {"retention.ms": "-1"})
    capsys.readouterr()
    assert scene.adopt(*adopting) == 2
    assert f"{there}-0 ends at offset 0, the archive at {ends[0][1]}" in capsys.readouterr().err
    restoring = ["restore", scene.path, "--cluster", "cloud", "--from", folder, "--rename", f"{topic}={there}"]
    assert run(*restoring) == 0
    delete_below(scene.source, topic, 1, ends[1][1])
    assert scene.adopt(*adopting) == 0  # all of it is archived
    into = producer(scene.target)
    into.produce(there, b"of somebody else", partition=0)
    into.flush(60)
    capsys.readouterr()
    assert scene.adopt(*adopting) == 2
    assert "somebody wrote behind the restore" in capsys.readouterr().err
    put(into := producer(scene.source), topic, 300)
    into.flush(60)
    delete_below(scene.source, topic, 1, log_ranges(scene.source, topic, PARTITIONS)[1][1])
    capsys.readouterr()
    assert scene.adopt(*adopting) == 2
    assert f"{topic}-1: offsets {ends[1][1]} to " in capsys.readouterr().err
