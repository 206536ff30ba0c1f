"""Every Python example of docs/kafka-batches.md runs, in order, on real clusters."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.replicator.real import producer, read_all, settings_of
from watershed.clusters.admin import Admin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.soak]

PAGE = Path(__file__).parents[3] / "docs" / "kafka-batches.md"
TOPOLOGY = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: example, owner: team-example}}
clusters:
  onprem: {{bootstrap: ["{onprem}"]}}
  cloud: {{bootstrap: ["{cloud}"]}}
pattern:
  active_standby:
    active: onprem
    standby: cloud
    topics: {{include: [orders]}}
    failback: {{reverse: declared_paused}}
"""
RECORDS = 300
BEGIN = time.time_ns() // 1_000_000 - 60_000  # ms; the same on both clusters


def test_every_example_runs(
    kafka_pair, topic_name: str, tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(kafka_pair)
    filled(settings, topic_name)
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY.format(**{alias: each.bootstrap[0] for alias, each in settings.items()}))
    names = {
        '"topology.yaml"': repr(str(path)),
        '"orders-again"': repr(f"{topic_name}-again"),
        '"orders"': repr(topic_name),
        '"checkpoint"': repr(str(tmp_path / "checkpoint")),
    }
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(examples) >= 7
    known: dict[str, Any] = {"spark": spark}
    for code in examples:
        for said, meant in names.items():
            code = code.replace(said, meant)
        exec(compile(code, str(PAGE), "exec"), known)
    told = capsys.readouterr().out
    assert "0 partitions differ" in told
    assert re.search(rf"\|\s*-?\d+\|\s*zstd\|\s*{2 * RECORDS}\|", told), told  # one producer, its codec, its records
    assert read_all(settings["cloud"], f"{topic_name}-again", 2) == read_all(settings["onprem"], topic_name, 2)


def filled(settings: dict[str, Any], topic: str) -> None:
    """The same records on both clusters, in batches of different sizes; an empty topic to write to."""
    for alias, size in (("onprem", 25), ("cloud", 40)):
        with Admin(settings[alias]) as admin:
            admin.create_topic(topic, 2)
            if alias == "cloud":
                admin.create_topic(f"{topic}-again", 2)
        sending = producer(settings[alias], **{"compression.type": "zstd", "batch.num.messages": size})
        for number in range(RECORDS):
            for partition in range(2):
                stamp = BEGIN + number
                sending.produce(topic, f"{number}".encode() * 10, f"{number % 7}".encode(), partition, timestamp=stamp)
        sending.flush()
