"""Chunks by bytes: how many offsets make one, and where their sizes come from."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replicator.real import producer, put, settings_of
from watershed.clusters.admin import Admin
from watershed.clusters.errors import Unauthorised
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import admin_reads
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.judging.partition_sizes import read_partition_bytes
from watershed.spark.judging.proof_window import (
    DEFAULT_CHUNK_OFFSETS,
    LARGEST_CHUNK,
    SMALLEST_CHUNK,
    TARGET_CHUNK_BYTES,
    choose_chunk_offsets,
    cut_chunks,
)
from watershed.spark.reading.offset_range import OffsetRange


@given(st.integers(1, 1 << 45), st.integers(1, 1 << 40))
def test_a_chunk_is_a_power_of_two_of_some_64_mib(size: int, offsets: int) -> None:
    chunk = choose_chunk_offsets(size, offsets)
    assert chunk & (chunk - 1) == 0
    assert SMALLEST_CHUNK <= chunk <= LARGEST_CHUNK
    if SMALLEST_CHUNK < chunk < LARGEST_CHUNK:
        assert chunk * size / offsets * (1 + 2 / SMALLEST_CHUNK) >= TARGET_CHUNK_BYTES / 2
        assert chunk * size / offsets <= TARGET_CHUNK_BYTES


def test_where_nothing_is_known_of_sizes() -> None:
    assert (
        choose_chunk_offsets(None, 10)
        == choose_chunk_offsets(0, 10)
        == choose_chunk_offsets(5, 0)
        == DEFAULT_CHUNK_OFFSETS
    )


def test_a_partition_that_grew_is_cut_at_the_same_places() -> None:
    """1 KiB records: the chunk stays while their size does, and where it halves or doubles, cuts are shared."""
    map_ = OffsetMap.of([(0, 0)])

    def cuts(offsets: int, size: int) -> set[int]:
        chunk = choose_chunk_offsets(size, offsets)
        whole = OffsetRange(0, offsets)
        return {source.start for source, _ in cut_chunks(whole, whole, map_, chunk)}

    before, after = cuts(300_000, 300_000 << 10), cuts(900_000, 905_000 << 10)
    assert before == {0, 65_536, 131_072, 196_608, 262_144}
    assert before <= after
    halved = cuts(900_000, 900_000 << 11)
    assert after <= halved
    assert cuts(60_000, 60_000 << 10) == {0}


@pytest.mark.kafka
def test_brokers_tell_how_large_logs_are(kafka_pair, topic_name: str) -> None:
    settings = settings_of(kafka_pair)["onprem"]
    with Admin(settings) as admin:
        admin.create_topic(topic_name, 2, 1)
    sending = producer(settings)
    put(sending, topic_name, 2_000, size=500)
    sending.flush()
    sizes = read_partition_bytes(settings, [topic_name])
    assert set(sizes) == {TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)}
    assert 2_000 * 100 < sum(sizes.values()) < 2_000 * 2_000
    with patch.object(admin_reads, "read_log_sizes", side_effect=Unauthorised("no")):
        assert read_partition_bytes(settings, [topic_name]) == {}
