"""A flow with `transform` that begins and ends in the middle of batches, on real brokers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.sessions.test_real_transform import (
    PARTITIONS,
    consume,
    expect,
    normalise,
    produce,
    read_partitions,
    transform_worker,
    write_topology,
)
from tests.spark.sessions.test_spark_replicate import run, until
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.soak
def test_a_transformed_flow_begins_and_ends_where_the_file_says(
    kafka_pair: Lab, topic_name: str, tmp_path: Path
) -> None:
    spans = {0: (0, 333), 1: (17, 334), 2: (0, 1)}
    path = write_topology(kafka_pair, topic_name, tmp_path)
    bounds = (
        f"start: {{offsets: {{{topic_name}: {{1: 17}}}}}}, end: {{offsets: {{{topic_name}: {{0: 333, 1: 334, 2: 1}}}}}}"
    )
    path.write_text(path.read_text().replace("delivery: {rejected: stop}", f"delivery: {{rejected: stop, {bounds}}}"))
    assert "end:" in path.read_text()
    with Admin(ConnectionSettings("onprem", (kafka_pair.clusters["onprem"].bootstrap,))) as admin:
        admin.create_topic(topic_name, PARTITIONS, 1, {})
    produce(kafka_pair, topic_name, range(3_000))
    run("-m", "watershed.cli.main", "apply", str(path), "--yes")
    with transform_worker(path, tmp_path / "log"):
        until(lambda: [each["state"] for each in read_partitions(path)] == ["complete"] * PARTITIONS, 120)
    before, after = consume(kafka_pair, "onprem", topic_name), consume(kafka_pair, "cloud", topic_name)
    for partition, (first, end) in spans.items():
        records = [record for offset, record in before[partition].items() if first <= offset < end]
        wanted = [changed for record in records if (changed := expect(record)) is not None]
        assert [*map(normalise, after[partition].values())] == [*map(normalise, wanted)], partition
