"""A large archive: killed with -9 and resumed, damaged, restored with more kills, and compared with the source.

What both clusters tell an ordinary consumer is compared as well, record by record, without any code of the archive.
SOAK_ARCHIVE_MB: of record values (default 1,000), SOAK_ARCHIVE_KILLS: of each of the two commands (5),
SOAK_ARCHIVE_SEED: the same kills and faults again.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as Place

from tests.replicator.brokers.test_real_copy import transactions
from tests.replicator.real import producer, settings_of
from tests.spark.brokers.test_archive_restore import (
    commit,
    delete_below,
    held,
    kill_when,
    log_ranges,
    run,
    write_file,
)
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.spark.archive.archive_reader import require_manifest
from watershed.spark.archive.manifest import MANIFEST_FILE
from watershed.spark.archive.storage import FolderStorage

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(0)]

MEGABYTES = int(os.environ.get("SOAK_ARCHIVE_MB", "1000"))
KILLS = int(os.environ.get("SOAK_ARCHIVE_KILLS", "5"))
SEED = int(os.environ.get("SOAK_ARCHIVE_SEED", "0")) or random.randrange(1, 1 << 32)
PARTITIONS = 4
CONFIGS = {"retention.ms": "-1", "max.message.bytes": "1200000", "segment.bytes": "268435456"}


def fill(settings: ConnectionSettings, topic: str, megabytes: int, chance: random.Random) -> int:
    """Records of 1 to 8 KB in batches of all codecs, with headers and nulls; how many."""
    noise, count = chance.randbytes(1 << 20), 0
    for codec in ("none", "lz4", "zstd", "snappy"):
        more = {"batch.size": 900_000, "linger.ms": 50, "queue.buffering.max.kbytes": 65_536}
        into = producer(settings, **{"compression.type": codec} | more)
        left = megabytes * 1_000_000 // 4
        while left > 0:
            size, at = chance.randrange(1_000, 8_000), chance.randrange(1 << 19)
            headers = [("n", str(count).encode()), ("empty", None)] if count % 5 == 0 else None
            value = None if count % 997 == 0 else noise[at : at + size]
            while True:
                try:
                    into.produce(topic, value, b"key %d" % count, partition=count % PARTITIONS, headers=headers)
                    break
                except BufferError:
                    into.poll(0.1)
            count, left = count + 1, left - size
        assert into.flush(300) == 0
    return count


def digest(settings: ConnectionSettings, topic: str, isolation: str = "read_committed") -> dict[int, tuple[int, str]]:
    """How many records a consumer reads of each partition, and a hash over their offsets and all that they hold."""
    ends = dict(enumerate(log_ranges(settings, topic, PARTITIONS)))
    reader = Consumer(
        settings.librdkafka(
            {
                "group.id": "soak-reader",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": 65_536,
            }
        )
    )
    reader.assign([Place(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found = {number: (0, hashlib.sha256()) for number in range(PARTITIONS)}
    still = {number for number, (start, end) in ends.items() if end > start}
    deadline = time.monotonic() + 900
    while still:
        assert time.monotonic() < deadline
        for message in reader.consume(5_000, 5):
            number = message.partition()
            if message.error() is not None:
                still.discard(number)  # the end of the partition
                continue
            count, hashed = found[number]
            told = (message.offset(), message.timestamp(), message.headers(), message.key())
            hashed.update(repr(told).encode())
            hashed.update(message.value() or b"")
            found[number] = count + 1, hashed
    reader.close()
    return {number: (count, hashed.hexdigest()) for number, (count, hashed) in found.items()}


def damage(folder: Path, chance: random.Random) -> tuple[Path, Path]:
    """Changes a byte of one object, and takes another away."""
    changed, missing = chance.sample(sorted(each.path for each in require_manifest(FolderStorage(folder)).objects), 2)
    content = bytearray((folder / changed).read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    (folder / changed).unlink()  # it may be a link to the whole archive's
    (folder / changed).write_bytes(content)
    (folder / missing).unlink()
    return folder / changed, folder / missing


def test_a_large_archive_survives_kills_and_damage_and_comes_back_equal(
    kafka_pair, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, file, folder = settings_of(kafka_pair), write_file(kafka_pair, tmp_path), tmp_path / "archive"
    chance = random.Random(SEED)
    source, target = settings["onprem"], settings["cloud"]
    told = [f"seed {SEED}, {MEGABYTES} MB"]
    with Admin(source) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, CONFIGS)
    transactions(source, topic_name, 12)
    records = fill(source, topic_name, MEGABYTES, chance)
    transactions(source, topic_name, 12)
    delete_below(source, topic_name, 1, 777)
    ends = [end for _, end in log_ranges(source, topic_name, PARTITIONS)]
    groups = {
        f"{topic_name}-{name}": {number: chance.randrange(1_000, end) for number, end in enumerate(ends)}
        for name in "abc"
    }
    for group, offsets in groups.items():
        commit(source, group, topic_name, offsets)

    archiving: list[object] = ["archive", file, "--cluster", "onprem", "--topics", topic_name, "--to", folder]
    archiving += ["--object-size", "8MiB"]
    began, kills = time.monotonic(), 0
    wanted = MEGABYTES // 12  # objects, at least
    for least in sorted(chance.sample(range(1, max(wanted, KILLS + 2)), KILLS)):
        kills += kill_when(archiving, lambda least=least: len(list(folder.rglob("[0-9]*.parquet"))) >= least)
        assert not (folder / MANIFEST_FILE).exists()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("[0-9]*.parquet")}
    assert run(*archiving) == 0
    assert before.items() <= {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")}.items()
    manifest = require_manifest(FolderStorage(folder))
    size = sum(each.size for each in manifest.objects)
    told.append(
        f"archive: {len(manifest.objects)} objects, {size / 1e6:,.0f} MB, {kills} kills, "
        f"{len(before)} objects kept, {time.monotonic() - began:.0f} s"
    )
    assert kills == KILLS

    broken = tmp_path / "broken"
    shutil.copytree(folder, broken, copy_function=os.link)
    damaged = damage(broken, chance)
    capsys.readouterr()
    assert run("restore", file, "--cluster", "cloud", "--from", broken) == 1
    refused = capsys.readouterr().err
    assert all(str(path) in refused for path in damaged)
    assert len(refused.splitlines()) == 2
    with Admin(target) as admin:
        assert admin.topic(topic_name) is None  # nothing was written
    assert run("archive", "--check", broken) == 1
    capsys.readouterr()

    restoring: list[object] = ["restore", file, "--cluster", "cloud", "--from", folder]
    began, kills = time.monotonic(), 0
    whole = sum(end - start for start, end in log_ranges(source, topic_name, PARTITIONS))
    with Admin(target) as admin:

        def has_reached(least: int) -> bool:
            if topic_name not in admin.shapes():
                return False
            places = [TopicPartition(topic_name, number) for number in range(PARTITIONS)]
            return sum(span.end for span in admin.offsets(places, "read_uncommitted").values()) >= least

        for least in sorted(chance.sample(range(whole * 9 // 10), KILLS)):
            kills += kill_when(restoring, lambda least=least: has_reached(least))
    assert run(*restoring) == 0
    told.append(f"restore: {kills} kills, {time.monotonic() - began:.0f} s")
    assert kills

    assert log_ranges(target, topic_name, PARTITIONS) == log_ranges(source, topic_name, PARTITIONS)
    here = digest(source, topic_name)
    assert sum(count for count, _ in here.values()) > records - 1_000
    assert digest(target, topic_name) == here
    assert digest(target, topic_name, "read_uncommitted") == here  # aborted records did not come along
    for group in groups:
        assert held(target, group) == held(source, group)
    with Admin(source) as one, Admin(target) as other:
        assert other.topic_configs([topic_name]) == one.topic_configs([topic_name])
    for cluster in ("onprem", "cloud"):
        assert run("archive", file, "--cluster", cluster, "--compare", folder) == 0
    told.append(f"equal: {sum(count for count, _ in here.values()):,} records")
    with capsys.disabled():
        print("\n" + "\n".join(told))
