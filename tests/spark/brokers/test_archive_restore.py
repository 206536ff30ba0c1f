"""Real brokers: topics into a folder and into another cluster, with a kill in between wherever it hurts."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.replicator.brokers.test_real_copy import transactions
from tests.replicator.brokers.test_real_formats import compact
from tests.replicator.real import producer, put, read_all, settings_of, wait_decided
from tests.replicator.real_schemas import registered
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.group_offsets import CommittedPosition, GroupOffsets
from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.registry_settings import RegistrySettings
from watershed.clusters.registry.schema import Schema
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.connection import open_connection
from watershed.replicator.copy.aligned.target_log import TargetLog
from watershed.spark.archive.archive_reader import require_manifest
from watershed.spark.archive.manifest import MANIFEST_FILE
from watershed.spark.archive.storage import FolderStorage

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 3
CONFIGS = {"retention.ms": "-1", "max.message.bytes": "900000", "compression.type": "producer"}
OLD = 1_600_000_000_000  # ms: brokers forget a producer of such records at once


def write_file(lab, folder: Path) -> Path:
    """A topology file with both clusters; an archive needs no flow."""
    addresses = "".join(f'  {each.alias}: {{bootstrap: ["{each.bootstrap}"]}}\n' for each in lab.clusters.values())
    path = folder / "t.yaml"
    path.write_text(
        "apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {name: carried}\n"
        f"clusters:\n{addresses}flows:\n  - {{source: onprem, target: cloud, topics: {{include: [carried]}}}}\n"
    )
    return path


def run(*words: object) -> int:
    return main([str(word) for word in words])


def delete_below(settings: ConnectionSettings, topic: str, partition: int, offset: int) -> None:
    with Admin(settings) as admin:
        found = admin.topic(topic)
    assert found is not None
    log = TargetLog(
        lambda address: open_connection(settings, address), settings.alias, topic, found.topic_id, partition
    )
    log.delete_below(offset)
    log.close()


def log_ranges(settings: ConnectionSettings, topic: str, partitions: int = PARTITIONS) -> list[tuple[int, int]]:
    with Admin(settings) as admin:
        found = admin.offsets([TopicPartition(topic, n) for n in range(partitions)], "read_uncommitted")
    return [(span.start, span.end) for _, span in sorted(found.items())]


def commit(settings: ConnectionSettings, group: str, topic: str, offsets: dict[int, int]) -> None:
    with GroupOffsets(settings) as groups:
        positions = {TopicPartition(topic, n): CommittedPosition(each, "mark") for n, each in offsets.items()}
        assert groups.commit(group, positions) == {}


def held(settings: ConnectionSettings, group: str) -> dict[TopicPartition, CommittedPosition]:
    with GroupOffsets(settings) as groups:
        return dict(groups.held([group])[group].positions)


@pytest.fixture
def source_topic(kafka_pair, topic_name: str) -> Iterator[str]:
    """Two codecs, headers, nulls, timestamps, transactions, a log start within a batch, and an empty partition."""
    settings = settings_of(kafka_pair)["onprem"]
    with Admin(settings) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, CONFIGS)
    for codec, start in (("zstd", 0), ("lz4", 2_000)):
        sending = producer(settings, **{"compression.type": codec})
        for number in range(start, start + 2_000):
            headers = [("n", str(number).encode()), ("empty", None)] if number % 5 == 0 else None
            value = None if number % 97 == 0 else b"value %d" % number
            sending.produce(topic_name, value, b"key %d" % number, partition=0, timestamp=OLD + number, headers=headers)
        sending.flush()
    delete_below(settings, topic_name, 0, 333)
    return topic_name


def test_an_archive_comes_back_with_equal_offsets(
    kafka_pair, source_topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, file, folder = settings_of(kafka_pair), write_file(kafka_pair, tmp_path), tmp_path / "archive"
    mixed = f"{source_topic}-mixed"
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(mixed, 2, 1)
    assert transactions(settings["onprem"], mixed, 12) > 0
    commit(settings["onprem"], f"{source_topic}-group", source_topic, {0: 1_234, 1: 0})
    commit(settings["onprem"], f"{source_topic}-group", mixed, {1: 3})
    asked = ["--cluster", "onprem", "--topics", f"{source_topic}*"]

    assert run("archive", file, *asked, "--to", folder, "--dry-run", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["objects"] == 3
    assert not (folder / MANIFEST_FILE).exists()
    assert run("archive", file, *asked, "--to", folder) == 0
    manifest = require_manifest(FolderStorage(folder))
    here = {topic: read_all(settings["onprem"], topic, count) for topic, count in ((source_topic, 3), (mixed, 2))}
    assert sum(each.records for each in manifest.objects) == sum(
        len(rows) for found in here.values() for rows in found.values()
    )
    assert run("archive", "--check", folder) == 0
    assert run("archive", file, "--cluster", "onprem", "--compare", folder) == 0
    assert run("archive", file, *asked, "--to", folder) == 0
    assert require_manifest(FolderStorage(folder)) == manifest  # nothing new: no new version

    capsys.readouterr()
    assert run("restore", file, "--cluster", "cloud", "--from", folder) == 0, capsys.readouterr().err
    told = capsys.readouterr()
    assert "offsets equal" in told.out
    for topic, rows in here.items():
        assert read_all(settings["cloud"], topic, len(rows)) == rows
        assert log_ranges(settings["cloud"], topic, len(rows)) == log_ranges(settings["onprem"], topic, len(rows))
    with Admin(settings["onprem"]) as source, Admin(settings["cloud"]) as target:
        names = [source_topic, mixed]
        assert target.topic_configs(names) == source.topic_configs(names)
    group = f"{source_topic}-group"
    assert held(settings["cloud"], group) == held(settings["onprem"], group)
    assert run("archive", file, "--cluster", "cloud", "--compare", folder, "--format", "json") == 0
    told = capsys.readouterr()
    assert {each["is_equal"] for each in json.loads(told.out)["partitions"]} == {True}

    # Again: nothing is written twice. What is new at the source follows.
    assert run("restore", file, "--cluster", "cloud", "--from", folder) == 0
    assert log_ranges(settings["cloud"], source_topic) == log_ranges(settings["onprem"], source_topic)
    put(into := producer(settings["onprem"]), source_topic, 500)
    into.flush()
    assert run("archive", file, *asked, "--to", folder) == 0
    assert require_manifest(FolderStorage(folder)).version == 2
    assert run("restore", file, "--cluster", "cloud", "--from", folder) == 0
    assert read_all(settings["cloud"], source_topic, 3) == read_all(settings["onprem"], source_topic, 3)


@pytest.mark.soak
def test_compaction_holes_come_back_as_holes(kafka_pair, topic_name: str, tmp_path: Path) -> None:
    settings, file, folder = settings_of(kafka_pair), write_file(kafka_pair, tmp_path), tmp_path / "archive"
    compact(settings["onprem"], topic_name)
    assert run("archive", file, "--cluster", "onprem", "--topics", topic_name, "--to", folder) == 0
    assert run("restore", file, "--cluster", "cloud", "--from", folder, "--offsets", "equal") == 0
    here = read_all(settings["onprem"], topic_name, 1)
    assert any(b - a > 1 for (a, _), (b, _) in pairwise(here[0]))
    assert read_all(settings["cloud"], topic_name, 1) == here
    with Admin(settings["onprem"]) as source, Admin(settings["cloud"]) as target:
        assert target.topic_configs([topic_name]) == source.topic_configs([topic_name])


def test_mapped_offsets_have_a_map_and_groups_land_on_the_same_record(
    kafka_pair, source_topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, file, folder = settings_of(kafka_pair), write_file(kafka_pair, tmp_path), tmp_path / "archive"
    copy, written = f"{source_topic}-copy", tmp_path / "map.json"
    commit(settings["onprem"], f"{source_topic}-group", source_topic, {0: 1_000})
    assert run("archive", file, "--cluster", "onprem", "--topics", source_topic, "--to", folder) == 0
    restoring = ["restore", file, "--cluster", "cloud", "--from", folder, "--rename", f"{source_topic}={copy}"]
    restoring += ["--offsets", "mapped", "--map", written]
    assert run(*restoring) == 0
    here, there = read_all(settings["onprem"], source_topic, 3), read_all(settings["cloud"], copy, 3)
    assert [record for _, record in there[0]] == [record for _, record in here[0]]
    assert there[0][0][0] == 0
    [position] = held(settings["cloud"], f"{source_topic}-group").values()
    assert dict(there[0])[position.offset] == dict(here[0])[1_000]
    comparing = ["archive", file, "--cluster", "cloud", "--compare", folder, "--rename", f"{source_topic}={copy}"]
    assert run(*comparing, "--map", written) == 0
    assert run(*comparing) == 1  # without the map offsets differ
    assert run(*restoring) == 0
    assert read_all(settings["cloud"], copy, 3) == there
    capsys.readouterr()


def test_what_does_not_fit_is_refused_before_anything_is_written(
    kafka_pair, source_topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, file, folder = settings_of(kafka_pair), write_file(kafka_pair, tmp_path), tmp_path / "archive"
    archiving = ["archive", file, "--cluster", "onprem", "--topics", source_topic, "--to", folder]
    assert run(*archiving) == 0
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    [first] = [each.path for each in require_manifest(FolderStorage(broken)).objects]
    content = bytearray((broken / first).read_bytes())
    content[len(content) // 2] ^= 1
    (broken / first).write_bytes(content)
    restoring = ["restore", file, "--cluster", "cloud", "--rename", f"{source_topic}={source_topic}-new"]
    capsys.readouterr()
    assert run(*restoring, "--from", broken) == 1
    assert str(broken / first) in capsys.readouterr().err
    (broken / first).unlink()
    assert run(*restoring, "--from", broken) == 1
    assert "is missing" in capsys.readouterr().err
    with Admin(settings["cloud"]) as admin:
        assert admin.topic(f"{source_topic}-new") is None
        admin.create_topic(f"{source_topic}-used", PARTITIONS, 1)
        admin.create_topic(f"{source_topic}-narrow", 1, 1)
    put(into := producer(settings["cloud"]), f"{source_topic}-used", 10)
    into.flush()
    before = log_ranges(settings["cloud"], f"{source_topic}-used")
    restoring = ["restore", file, "--cluster", "cloud", "--from", folder, "--rename"]
    assert run(*restoring, f"{source_topic}={source_topic}-used") == 2
    assert "Restore it under another name" in capsys.readouterr().err
    assert log_ranges(settings["cloud"], f"{source_topic}-used") == before
    assert run(*restoring, f"{source_topic}={source_topic}-narrow") == 2
    assert "has 1 partitions, the archive holds 3" in capsys.readouterr().err
    put(into := producer(settings["onprem"]), source_topic, 100)
    into.flush()
    delete_below(settings["onprem"], source_topic, 0, log_ranges(settings["onprem"], source_topic)[0][1])
    assert run(*archiving) == 2
    assert "were deleted (retention) before they were archived" in capsys.readouterr().err


def kill_when(words: list[object], is_reached: Callable[[], bool]) -> bool:
    """Starts the command and kills it with -9 once it has come so far; False where it ended before."""
    with subprocess.Popen(
        [sys.executable, "-m", "watershed.cli.main", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as started:
        deadline = time.monotonic() + 240
        while started.poll() is None and not is_reached():
            assert time.monotonic() < deadline
            time.sleep(0.002)
        was_running = started.poll() is None
        started.kill()
    return was_running


@pytest.mark.soak
@pytest.mark.parametrize("age", ["young", "old"])
def test_killed_again_and_again_everything_is_there_once(kafka_pair, topic_name: str, tmp_path: Path, age: str) -> None:
    """Old: brokers may forget the producer at any time, so each run waits until nothing can be under way."""
    settings, file, folder = settings_of(kafka_pair), write_file(kafka_pair, tmp_path), tmp_path / "archive"
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1, {"retention.ms": "-1"})
    committed = transactions(settings["onprem"], topic_name, 6)
    stamp = int(time.time() * 1000) if age == "young" else OLD
    sending = producer(settings["onprem"], **{"batch.size": 20_000})
    for number in range(120_000):
        sending.produce(topic_name, b"%d" % number + b"." * 200, partition=number % 2, timestamp=stamp)
        if number % 1_000 == 0:
            sending.flush()
    sending.flush()
    committed += transactions(settings["onprem"], topic_name, 6) + 120_000
    chance = random.Random(age)
    archiving: list[object] = ["archive", file, "--cluster", "onprem", "--topics", topic_name, "--to", folder]
    archiving += ["--object-size", "1MiB", "--max-rate", "40MiB/s"]
    for objects in sorted(chance.sample(range(1, 24), 5)):
        kill_when(archiving, lambda least=objects: len(list(folder.rglob("*.parquet"))) >= least)
        assert not (folder / MANIFEST_FILE).exists()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet") if not path.name.startswith(".")}
    assert before
    assert run(*archiving) == 0
    assert before.items() <= {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")}.items()
    assert run("archive", "--check", folder) == 0
    assert sum(each.records for each in require_manifest(FolderStorage(folder)).objects) == committed

    restoring: list[object] = ["restore", file, "--cluster", "cloud", "--from", folder]
    kills = 0
    with Admin(settings["cloud"]) as admin:

        def has_reached(least: int) -> bool:
            if topic_name not in admin.shapes():
                return False
            places = [TopicPartition(topic_name, number) for number in range(2)]
            return sum(span.end for span in admin.offsets(places, "read_uncommitted").values()) >= least

        for least in sorted(chance.sample(range(120_000), 5 if age == "young" else 2)):
            kills += kill_when(restoring, lambda least=least: has_reached(least))
    assert kills
    assert run(*restoring) == 0
    here = read_all(settings["onprem"], topic_name, 2)
    assert sum(map(len, here.values())) == committed
    assert read_all(settings["cloud"], topic_name, 2) == here
    assert log_ranges(settings["cloud"], topic_name, 2) == log_ranges(settings["onprem"], topic_name, 2)


@pytest.mark.soak
def test_schemas_open_transactions_and_a_topic_that_is_created_again(
    kafka_pair, registry_pair, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, file, folder = settings_of(kafka_pair), write_file(kafka_pair, tmp_path), tmp_path / "archive"
    url = registry_pair[0].url
    file.write_text(file.read_text().replace('"]}\n', f'"], schema_registry: {{url: "{url}"}}}}\n', 1))
    with RegistryClient(RegistrySettings("onprem", url)) as client:
        ids, key = registered(client, topic_name)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1)
    put(sending := producer(settings["onprem"]), topic_name, 50)
    sending.flush()
    writing = producer(settings["onprem"], **{"transactional.id": f"{topic_name}-open"})
    writing.init_transactions()
    writing.begin_transaction()
    put(writing, topic_name, 7)
    writing.flush()
    archiving = ["archive", file, "--cluster", "onprem", "--topics", topic_name, "--to", folder]
    assert run(*archiving) == 0
    assert f"open transactions: {topic_name}-0 has 7 offsets behind 50" in capsys.readouterr().out
    manifest = require_manifest(FolderStorage(folder))
    found = {(each.subject, each.version): each.id for each in manifest.schemas}
    assert found.pop((f"{topic_name}-address", 1))  # the values refer to it
    value = f"{topic_name}-value"
    assert found == {(value, 1): ids[0], (value, 2): ids[1], (f"{topic_name}-key", 1): key}
    restoring = ["restore", file, "--cluster", "cloud", "--from", folder]
    assert run(*restoring) == 1
    assert "the file declares no schema registry for cluster cloud" in capsys.readouterr().err
    declared = f'"], schema_registry: {{url: "{registry_pair[1].url}"}}}}\nflows'
    file.write_text(file.read_text().replace('"]}\nflows', declared))
    with RegistryClient(RegistrySettings("cloud", registry_pair[1].url)) as client:
        client.register(f"{topic_name}-of-another", Schema('"string"'))
        assert (
            run(*restoring) == 1
        )  # this registry gives ids of its own; one in memory that does not: test_archive_schemas
        told = capsys.readouterr()
        assert "schemas: 0 registered, 0 there already, 4 left alone" in told.out
        assert f"schema not restored: {value}, version 1: the registry of cloud has no mode IMPORT" in told.err
    assert run(*restoring, "--no-schemas") == 0
    writing.commit_transaction()
    wait_decided(settings["onprem"], topic_name)
    assert run(*archiving) == 0
    assert sum(each.records for each in require_manifest(FolderStorage(folder)).objects) == 57

    deleting = AdminClient(settings["onprem"].librdkafka({}))  # a future of a client that is gone never ends well
    deleting.delete_topics([topic_name])[topic_name].result()
    with Admin(settings["onprem"]) as admin:
        deadline = time.monotonic() + 60
        while admin.topic(topic_name) is not None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        admin.create_topic(topic_name, 1, 1)
    put(sending, topic_name, 90)
    sending.flush()
    capsys.readouterr()
    assert run(*archiving) == 2
    assert "was deleted and created again" in capsys.readouterr().err
    assert run("archive", "--check", folder) == 0
