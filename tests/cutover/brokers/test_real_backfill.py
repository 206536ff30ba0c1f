"""Real brokers: a part is copied and ends, is killed and goes on; then the flow goes on behind it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.replicator.brokers.test_real_adoption import Scene
from tests.replicator.brokers.test_real_bounds import BEGAN, PARTITIONS, fill, select_records
from tests.replicator.real import applied, producer, read_all, wait_copied, workers
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.topic_partition import TopicPartition
from watershed.topology.copy_bounds import render_instant

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.soak]


def test_a_part_is_copied_once_and_the_flow_goes_on_behind_it(
    kafka_pair, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"{topic_name}.part"
    scene = Scene(kafka_pair, f"b{topic_name[-8:]}", tmp_path, topic)
    there = scene.there(topic)
    with Admin(scene.source) as admin:
        admin.create_topic(topic, PARTITIONS, 1, {"retention.ms": "-1"})
    fill(sending := producer(scene.source), topic, 0, 6_000)
    bounds = ["--from", render_instant(BEGAN + 1_000), "--to", render_instant(BEGAN + 5_000)]
    asked = ["backfill", str(scene.path), "--flow", scene.flow, *bounds]
    capsys.readouterr()
    assert main([*asked, "--max-rate", "100KiB/s", "--dry-run", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(part["first"], part["end"]) for part in document["partitions"]] == [(500, 2_500)] * PARTITIONS
    assert document["offsets"] == 4_000
    assert document["bytes"] > 4_000 * 100
    assert document["seconds"] > 0

    def run(*more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "watershed.cli.main", *asked, "--yes", *more]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    # A rate that takes longer than a test; killed in the middle, and run again without it.
    killed = run("--max-rate", "20KiB/s")
    deadline = time.monotonic() + 90
    with Admin(scene.target) as admin:
        places = [TopicPartition(there, number) for number in range(PARTITIONS)]
        while admin.topic(there) is None or not sum(span.end for span in admin.offsets(places).values()):
            assert killed.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        killed.kill()
        killed.wait(30)
        assert sum(span.end for span in admin.offsets(places).values()) < 4_000
    again = run()
    assert again.wait(150) == 0
    here = read_all(scene.source, topic, PARTITIONS)
    copied = {n: [record for _, record in rows] for n, rows in read_all(scene.target, there, PARTITIONS).items()}
    assert copied == select_records(here, dict.fromkeys(range(PARTITIONS), (500, 2_500)))

    capsys.readouterr()
    early = ["backfill", str(scene.path), "--flow", scene.flow, "--from", "earliest", "--to", "latest", "--dry-run"]
    assert main(early) == 2
    assert "offset 0 cannot be put in front of them" in capsys.readouterr().err
    fill(sending, topic, 6_000, 6_400)
    applied(scene.settings, scene.plan)  # without an end
    with workers(scene.plan, "cloud", tmp_path) as start:
        start()
        wait_copied(scene.settings, scene.plan, topic, PARTITIONS)
    here = read_all(scene.source, topic, PARTITIONS)
    copied = {n: [record for _, record in rows] for n, rows in read_all(scene.target, there, PARTITIONS).items()}
    assert copied == select_records(here, dict.fromkeys(range(PARTITIONS), (500, 3_200)))
    assert main(early) == 2
    assert "was applied without an end and has copied 2 partitions" in capsys.readouterr().err
