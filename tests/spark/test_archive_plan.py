"""Which offsets a run archives, what a restore makes of them, and what keeps both from it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.spark.archives import TOPIC, TOPIC_ID, batch_at, seen, write_archive, write_object
from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition, ListedGroup
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.copy.aligned.filling_configs import find_configs_to_restore
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetRun
from watershed.replicator.partition_key import PartitionKey
from watershed.spark.archive.archive_plan import find_tails, plan_archive_ranges
from watershed.spark.archive.archive_reader import find_left_objects, open_object, read_manifest
from watershed.spark.archive.group_restore import WantedPosition, judge_positions
from watershed.spark.archive.manifest import ArchivedPartition, ArchivedTopic, ArchiveManifest
from watershed.spark.archive.object_format import ObjectPlace, OpenedObject
from watershed.spark.archive.offset_mapping import (
    RestoredOffsets,
    build_restored_map,
    decode_restored_offsets,
    encode_restored_offsets,
)
from watershed.spark.archive.restore_plan import (
    build_filled_configs,
    choose_wanted_configs,
    explain_unusable_log,
    select_archived_topics,
)
from watershed.spark.archive.restored_copy_proof import judge_comparison, list_stretches, split_archived_partitions
from watershed.spark.archive.storage import FolderStorage
from watershed.spark.archive.topic_comparison import PartitionComparison
from watershed.spark.errors import NotArchivable, WrongUse
from watershed.topology.selectors import Selector, TopicSelection


def test_a_first_run_reads_from_the_log_start_and_a_second_one_what_is_new(tmp_path: Path) -> None:
    [first] = plan_archive_ranges(None, {}, [seen((5, 50))])
    assert (first.start, first.first, first.end) == (5, 5, 50)
    manifest = write_archive(tmp_path, 40)
    [again, grown] = plan_archive_ranges(manifest, find_tails(manifest), [seen((10, 70), (0, 3))])
    assert (again.start, again.first, again.end) == (0, 40, 70)
    assert (grown.start, grown.first, grown.end) == (0, 0, 3)


def test_an_archive_grows_by_objects_and_keeps_those_it_has(tmp_path: Path) -> None:
    before = write_archive(tmp_path, 40)
    times = {each.path: (tmp_path / each.path).stat().st_mtime_ns for each in before.objects}
    after = write_archive(tmp_path, 70)
    assert [each.first for each in after.objects] == [0, 20, 40, 60]
    assert {path: (tmp_path / path).stat().st_mtime_ns for path in times} == times
    assert read_manifest(FolderStorage(tmp_path)) == after


def test_objects_of_a_killed_run_are_not_read_again(tmp_path: Path) -> None:
    manifest = write_archive(tmp_path, 20)
    storage = FolderStorage(tmp_path)
    write_object(storage, 0, 20, 40, [batch_at(20, 20, epoch=4)])
    left = [entry for _, entry in find_left_objects(storage, manifest, [(TOPIC, 0)])]
    [span] = plan_archive_ranges(manifest, find_tails(manifest, left), [seen((0, 60))])
    assert (span.start, span.first, span.end) == (0, 40, 60)
    assert find_tails(manifest, left)[TOPIC, 0].leader_epoch == 4


@pytest.mark.parametrize(
    ("topic", "told"),
    [
        (seen((41, 50)), "offsets 40 to 40 were deleted"),
        (seen((0, 39)), "the log was cut"),
        (seen((0, 90), epoch_end=39), "in the log only below 39"),
        (seen((0, 90), topic_id=uuid.UUID(int=8)), "was deleted and created again"),
        (seen(), "has 0 partitions"),
    ],
)
def test_a_log_that_does_not_go_on_where_the_archive_ends_is_refused(tmp_path: Path, topic, told: str) -> None:
    manifest = write_archive(tmp_path, 40)
    with pytest.raises(NotArchivable, match=told):
        plan_archive_ranges(manifest, find_tails(manifest), [topic])
    assert plan_archive_ranges(manifest, find_tails(manifest), [seen((40, 90), epoch_end=40)])


def test_an_object_without_batches_keeps_the_epoch_of_the_batch_before(tmp_path: Path) -> None:
    manifest = write_archive(tmp_path, 20)
    storage = FolderStorage(tmp_path)
    write_object(storage, 0, 20, 25, [])
    left = [entry for _, entry in find_left_objects(storage, manifest, [(TOPIC, 0)])]
    tail = find_tails(manifest, left)[TOPIC, 0]
    assert (tail.end, tail.last_offset, tail.leader_epoch) == (25, 19, 0)


def test_without_equal_offsets_records_stand_one_behind_the_other(tmp_path: Path) -> None:
    first = OpenedObject(ObjectPlace(TOPIC, TOPIC_ID, 0, 8, 30), (batch_at(5, 10), batch_at(20, 10, missing=(0, 3))))
    second = OpenedObject(ObjectPlace(TOPIC, TOPIC_ID, 0, 30, 43), (batch_at(30, 10),))
    found, end = build_restored_map([first, second], 100, 43)
    assert list(found.runs) == [OffsetRun(100, 8), OffsetRun(107, 21), OffsetRun(109, 24), OffsetRun(125, 43)]
    assert end == 125
    assert [found.to_target(each, end) for each in (8, 15, 21, 23, 24, 40, 43)] == [100, 107, 107, 109, 109, 125, 125]
    kept = RestoredOffsets(TOPIC, 0, "copy", TOPIC_ID, end, found)
    assert decode_restored_offsets(encode_restored_offsets("c", [kept]).encode(), "x") == {(TOPIC, 0): kept}


def test_a_map_that_is_none_is_said() -> None:
    with pytest.raises(WrongUse, match="is no map of a restore"):
        decode_restored_offsets(b'{"schema": 1, "partitions": [{"topic": "a"}]}', "x")


def test_an_archive_reads_as_it_was_written(tmp_path: Path) -> None:
    manifest = write_archive(tmp_path, 40)
    opened = [open_object(FolderStorage(tmp_path), each) for each in manifest.objects]
    assert [batch.base_offset for each in opened for batch in each.batches] == [0, 10, 20, 30]


def archived(name: str, **configs: str) -> ArchivedTopic:
    return ArchivedTopic(name, TOPIC_ID, 3, configs, (ArchivedPartition(0, 10, 40, 10, 40),))


def test_topics_are_chosen_and_renamed() -> None:
    manifest = ArchiveManifest(1, 0, "a", "c", tuple(archived(name) for name in ("orders.eu", "orders.us", "payments")))
    chosen = TopicSelection((Selector("glob", "orders.*"),))
    named = select_archived_topics(manifest, chosen, ["orders.us=other", "orders.*=copy.*.x"])
    assert [(topic.name, target) for topic, target in named] == [("orders.eu", "copy.eu.x"), ("orders.us", "other")]
    assert len(select_archived_topics(manifest, None, [])) == 3
    with pytest.raises(WrongUse, match="would both be restored as payments"):
        select_archived_topics(manifest, None, ["orders.eu=payments"])
    with pytest.raises(WrongUse, match="write OLD=NEW"):
        select_archived_topics(manifest, None, ["orders.*=x"])
    with pytest.raises(WrongUse, match="nothing may be written"):
        select_archived_topics(manifest, chosen, ["orders.eu=__consumer_offsets"])
    with pytest.raises(WrongUse, match=r"it holds orders\.eu, orders\.us, payments"):
        select_archived_topics(manifest, TopicSelection((Selector("literal", "x"),)), [])


def test_nothing_is_deleted_or_stamped_while_a_topic_is_restored_and_its_configs_come_back() -> None:
    topic = archived(
        "orders",
        **{
            "cleanup.policy": "compact",
            "retention.ms": "1000",
            "message.timestamp.type": "LogAppendTime",
            "min.insync.replicas": "2",
            "leader.replication.throttled.replicas": "0:1",
        },
    )
    wanted = choose_wanted_configs(topic, (), replicas=1)
    assert wanted == {
        "cleanup.policy": "compact", "retention.ms": "1000", "message.timestamp.type": "LogAppendTime",
    }  # fmt: skip
    assert "min.insync.replicas" in choose_wanted_configs(topic, (), replicas=2)
    meanwhile = build_filled_configs(wanted, {}, largest_batch=2_000_000, broker_max_message=1_048_588)
    assert meanwhile == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "message.timestamp.type": "CreateTime",
        "max.message.bytes": "2000000",
    }
    own = wanted | meanwhile
    back = find_configs_to_restore(own, wanted, meanwhile)
    assert {key: value for key, value in (own | back).items() if value is not None} == wanted


@pytest.mark.parametrize(
    ("log", "mode", "told"),
    [
        (LogRange(0, 0), "equal", ""),
        (LogRange(10, 10), "equal", ""),
        (LogRange(3, 8), "equal", ""),
        (LogRange(10, 40), "equal", ""),
        (LogRange(20, 30), "equal", ""),
        (LogRange(40, 40), "equal", ""),
        (LogRange(20, 20), "equal", "is empty, but goes on at offset 20"),
        (LogRange(10, 41), "equal", "somebody else wrote to it"),
        (LogRange(5, 30), "equal", "begins at offset 5"),
        (LogRange(5, 30), "mapped", ""),
        (LogRange(5, 31), "mapped", "holds 26 offsets, the archive 25 records"),
    ],
)
def test_a_log_is_gone_on_with_only_where_it_can_be_a_restores(log: LogRange, mode, told: str) -> None:
    why = explain_unusable_log("orders", ArchivedPartition(0, 10, 40, 10, 40), log, mode, 25)
    assert (told in why) if told else why == ""


def test_a_group_keeps_what_it_has_and_one_with_members_is_left_alone() -> None:
    place, other = TopicPartition("orders", 0), TopicPartition("orders", 1)
    wanted = [WantedPosition(name, place, 7) for name in ("new", "empty", "live", "same", "moved", "streams", "open")]
    listed = {
        name: ListedGroup(name, state, kind)
        for name, state, kind in [
            ("empty", "Empty", "consumer"),
            ("live", "Stable", "classic"),
            ("same", "Stable", "classic"),
            ("moved", "Empty", "classic"),
            ("streams", "Empty", "share"),
        ]
    }
    held = {
        "empty": CommittedOffsets({other: CommittedPosition(3)}),
        "same": CommittedOffsets({place: CommittedPosition(7)}),
        "moved": CommittedOffsets({place: CommittedPosition(9)}),
        "open": CommittedOffsets(unstable=frozenset({place})),
    }
    found = {each.wanted.group: each for each in judge_positions(wanted, listed, held)}
    assert {name: each.state for name, each in found.items()} == {
        "new": "committed", "empty": "committed", "live": "left", "same": "there", "moved": "left", "streams": "left",
        "open": "left",
    }  # fmt: skip
    assert "has members (Stable)" in found["live"].why
    assert "has committed offset 9" in found["moved"].why


def test_the_map_of_a_restored_topic_has_the_gaps_of_the_archive(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    objects = [
        write_object(storage, 0, 0, 30, [batch_at(0, 10), batch_at(10, 10, missing=(3, 4)), batch_at(25, 5)]),
        write_object(storage, 0, 30, 45, [batch_at(30, 10)]),
    ]
    equal = list_stretches(storage, objects, None)
    assert equal == [ExplicitRun(0, 0, 13), ExplicitRun(15, 15, 5), ExplicitRun(25, 25, 15)]
    offsets, end = build_restored_map((open_object(storage, each) for each in objects), 7, 45)
    mapped = list_stretches(storage, objects, RestoredOffsets(TOPIC, 0, "copy", TOPIC_ID, end, offsets))
    assert mapped == [ExplicitRun(7, 0, 13), ExplicitRun(20, 15, 5), ExplicitRun(25, 25, 15)]


def test_a_flow_goes_on_only_behind_what_is_the_archive(tmp_path: Path) -> None:
    stretches = [ExplicitRun(0, 0, 40)]
    found = PartitionComparison(TOPIC, 0, archived=40, found=40, equal=40)
    assert judge_comparison(found, stretches, 40, is_compacted=False).exact
    partly = PartitionComparison(TOPIC, 0, archived=30, found=30, equal=30, gone=10)
    assert judge_comparison(partly, stretches, 40, is_compacted=False).exact  # retention of the target
    other = PartitionComparison(TOPIC, 0, archived=40, found=40, missing=1, extra=1, altered=2, first_difference=3)
    verdict = judge_comparison(other, stretches, 40, is_compacted=False)
    assert verdict.counts == {"missing": 1, "changed": 2, "foreign": 1}
    lacking = PartitionComparison(TOPIC, 0, archived=40, found=39, missing=1, first_difference=3)
    assert judge_comparison(lacking, stretches, 40, is_compacted=True).refused(["compacted"]) == []
    assert judge_comparison(lacking, stretches, 40, is_compacted=False).refused() == ["missing"]


def test_partitions_that_came_after_the_archive_are_named(tmp_path: Path) -> None:
    manifest = write_archive(tmp_path, 40)
    keys = [PartitionKey("f", TOPIC, TOPIC, 0), PartitionKey("f", TOPIC, TOPIC, 1), PartitionKey("f", "other", "o", 0)]
    held, others = split_archived_partitions(manifest, keys)
    assert held == keys[:1]
    assert others == [f"{TOPIC}-1: the archive does not hold it", "other-0: the archive does not hold it"]
