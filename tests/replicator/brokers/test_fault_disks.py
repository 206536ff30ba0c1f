"""Disks that are full, and disks that lie."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replicator.faults import QUICK_BROKER, wait_reports
from tests.replicator.real import (
    applied,
    assert_exact_copy,
    plan_for,
    producer,
    put,
    read_all,
    settings_of,
    wait_copied,
    workers,
)
from watershed.clusters.admin import Admin
from watershed.clusters.record_batch import RECORD_BATCH_HEADER_BYTES
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab import clusters as lab_clusters
from watershed.replicator.batch.record_batch import decode_batches

pytestmark = pytest.mark.kafka

SMALL = 24 << 20


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of SMALL bytes; skips, saying so, where this process may not mount one."""
    where = tmp_path / "small"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(where)]
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root to mount it")
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


@pytest.mark.soak
def test_the_targets_disk_is_full(tmp_path, small_disk, topic_name, kafka_pair):
    """The broker drops what lies on the full disk (KAFKA_STORAGE_ERROR); partitions on its other disk go on. With room
    and a restart, everything is there exactly.

    The small disk comes when all else, control topics too, has its place: new partitions go to the emptier disk."""
    home, partitions = tmp_path / "clusters", 3
    large, small = f"{topic_name}-large", f"{topic_name}-small"
    try:
        lab = lab_clusters.start_clusters(home, ["full"], settings=QUICK_BROKER)
        settings = settings_of(kafka_pair) | settings_of(lab)
        with Admin(settings["onprem"]) as admin:
            admin.create_topic(large, partitions, 1, {"retention.ms": "-1"})
        sending = producer(settings["onprem"])
        flow = {"routes": (("onprem", "full"),), "configs_set": (("segment.bytes", "4194304"),)}
        plan = applied(settings, plan_for(settings, topic_name, large, small, **flow))
        with workers(plan, "full", tmp_path) as start:
            start()
            put(sending, large, 300)
            wait_copied(settings, plan, large, partitions)
            lab_clusters.stop_lab_broker(home, "full")
            another_disk(home, small_disk)
            lab_clusters.restart_lab_broker(home, "full")
            with Admin(settings["onprem"]) as admin:
                admin.create_topic(small, partitions, 1, {"retention.ms": "-1"})
            put(sending, small, 8_000, size=8_000)  # 64 MB
            sending.flush()
            until = time.monotonic() + 180
            while free(small_disk) > 1 << 20:
                assert time.monotonic() < until, "the disk never became full"
                time.sleep(0.2)
            assert on_disk(small_disk, small) == list(range(partitions))
            assert not on_disk(small_disk, large)
            put(sending, large, 2_000, start=300, size=500)
            sending.flush()
            wait_copied(settings, plan, large, partitions)
            lab_clusters.kill_lab_broker(home, "full")
            subprocess.run(["mount", "-o", "remount,size=512m", str(small_disk)], check=True)
            lab_clusters.restart_lab_broker(home, "full")
            wait_copied(settings, plan, small, partitions)
        assert assert_exact_copy(settings, plan, large, partitions) == 2_300
        assert assert_exact_copy(settings, plan, small, partitions) == 8_000
    finally:
        lab_clusters.end_clusters(home)


def another_disk(home: Path, disk: Path) -> None:
    """The broker's directories from its next start on. The first one holds the cluster's metadata."""
    state = home / "lab.json"
    document = json.loads(state.read_text())
    [broker] = document["clusters"][0]["brokers"]
    broker["settings"] |= {"log.dirs": f"{{home}}/data,{disk}", "metadata.log.dir": "{home}/data"}
    state.write_text(json.dumps(document))
    formatted = (Path(broker["home"]) / "data" / "meta.properties").read_text().splitlines(keepends=True)
    (disk / "meta.properties").write_text("".join(line for line in formatted if not line.startswith("directory.id")))


def on_disk(directory: Path, topic: str) -> list[int]:
    return sorted(int(each.name.rpartition("-")[2]) for each in directory.iterdir() if each.name.startswith(topic))


def free(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


@pytest.mark.soak
def test_a_batch_that_the_sources_disk_has_damaged(tmp_path, topic_name, faulty):
    """Copied up to it, then the partition stops and says where; the other partition is copied whole. The checksum is
    never made good on the way."""
    settings = faulty.settings
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1)
    sending = producer(settings["onprem"], **{"batch.size": 2_000})
    put(sending, topic_name, 2_000)
    sending.flush()
    lab_clusters.stop_lab_broker(faulty.home, "onprem")  # in good order: it checks nothing when it starts again
    (segment,) = (faulty.lab.cluster("onprem").brokers[0].data / f"{topic_name}-0").glob("*.log")
    first, records = damage(segment)
    lab_clusters.restart_lab_broker(faulty.home, "onprem")
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        found = wait_reports(settings["cloud"], plan, lambda told: 0 in told and told[0].state == "rejected")
        wait_reports(
            settings["cloud"],
            plan,
            lambda told: 1 in told and told[1].state == "running" and told[1].lag_records == 0,
        )
    assert f"{first} to {first + records - 1}" in str(found[0].error)
    assert found[0].target_end == first
    copied = read_all(settings["cloud"], topic_name, 2)
    assert len(copied[0]) == first
    with Admin(settings["onprem"]) as admin:
        other = TopicPartition(topic_name, 1)
        assert len(copied[1]) == admin.offsets([other])[other].end


def damage(segment: Path) -> tuple[int, int]:
    """Flips one bit in the payload of a batch in the middle of the file. Returns its first offset and its records."""
    stored = bytearray(segment.read_bytes())
    batches = list(decode_batches(memoryview(bytes(stored))))
    victim = batches[len(batches) // 2]
    at = bytes(stored).index(bytes(victim.data)) + RECORD_BATCH_HEADER_BYTES + 20
    stored[at] ^= 0x10
    segment.write_bytes(stored)
    return victim.base, victim.records
