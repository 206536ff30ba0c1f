"""How far a flow has copied, from logs and ledger: never more than what is durable, never more than is exact."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition, ListedGroup, LogOffsets
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.explicit_runs import ExplicitRunMap
from watershed.replicator.ledger.foreign_part import ForeignPart, JoinedOffsetMap
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap, OffsetRun, build_offset_map
from watershed.replicator.ledger.offset_translation import OffsetNotCopied
from watershed.replicator.mirrormaker_records import (
    Checkpoint,
    Heartbeat,
    OffsetSync,
    decode_checkpoint,
    decode_offset_sync,
    encode_checkpoint,
    encode_heartbeat,
    encode_offset_sync,
)
from watershed.replicator.sync.checkpoints import list_checkpoints
from watershed.replicator.sync.copied_positions import compute_round_interval, find_copied_positions, find_offset_syncs
from watershed.replicator.sync.group_decisions import GroupObservation, TranslatedPosition
from watershed.replicator.sync.group_translation import CopiedLogs

HERE, THERE = TopicPartition("orders", 0), TopicPartition("onprem.orders", 0)
SOURCE_ID, TARGET_ID = uuid.UUID(int=1), uuid.UUID(int=2)


def copies(map_: OffsetMap, *, stable: int, end: int | None = None, start: int = 0, **ids: uuid.UUID) -> CopiedLogs:
    here = LogOffsets(str(ids.get("source", SOURCE_ID)), start, 10_000, 10_000)
    there = LogOffsets(str(TARGET_ID), 0, stable, stable if end is None else end)
    return CopiedLogs({}, {HERE: here}, {THERE: there}, {("f", HERE): (map_, (SOURCE_ID, TARGET_ID))})


def position(logs: CopiedLogs) -> int | None:
    return find_copied_positions("f", logs, {HERE: THERE}).get(HERE)


def sync(logs: CopiedLogs) -> OffsetSync | None:
    return find_offset_syncs("f", logs, {HERE: THERE}).get(HERE)


def test_a_run_that_is_announced_and_not_written_does_not_count() -> None:
    """100 records without a gap, then a marker at source offset 100; the run behind it is announced."""
    logs = copies(OffsetMap.of([(0, 0), (100, 101)]), stable=60)
    assert position(logs) == 60
    assert sync(logs) == OffsetSync("orders", 0, 59, 59)
    assert position(copies(OffsetMap.of([(0, 0), (100, 101)]), stable=100)) == 101
    assert sync(copies(OffsetMap.of([(0, 0), (100, 101)]), stable=100)) == OffsetSync("orders", 0, 99, 99)


def test_records_of_an_open_transaction_do_not_count() -> None:
    runs = ExplicitRunMap.over([ExplicitRun(0, 0, 10), ExplicitRun(12, 10, 10)], OffsetRun(0, 0), 25)
    assert position(copies(runs, stable=11, end=23)) == 10
    assert sync(copies(runs, stable=11, end=23)) == OffsetSync("orders", 0, 9, 9)
    assert position(copies(runs, stable=23)) == 25
    assert sync(copies(runs, stable=23)) == OffsetSync("orders", 0, 19, 21)


def test_records_that_another_tool_copied_count() -> None:
    foreign = ForeignPart("MirrorMaker 2", 12, 10, (ExplicitRun(1, 0, 10),))
    joined = JoinedOffsetMap.over(foreign, OffsetMap.of([(12, 10)]))
    assert sync(copies(joined, stable=12)) == OffsetSync("orders", 0, 9, 10)
    assert sync(copies(joined, stable=15)) == OffsetSync("orders", 0, 12, 14)
    assert position(copies(joined, stable=15)) == 13


@pytest.mark.parametrize(
    "logs",
    [
        pytest.param(copies(OffsetMap(()), stable=0), id="nothing is copied"),
        pytest.param(copies(OffsetMap.of([(0, 0)]), stable=9, source=uuid.UUID(int=9)), id="another topic by now"),
        pytest.param(copies(OffsetMap.of([(0, 0)]), stable=9, start=50), id="the log begins behind it"),
        pytest.param(copies(build_offset_map([OffsetRun(5, 9), OffsetRun(6, 3)]), stable=9), id="a broken map"),
        pytest.param(CopiedLogs({}, {}, {}, {}), id="no leader answers"),
    ],
)
def test_where_nothing_is_known_nothing_is_told(logs: CopiedLogs) -> None:
    assert position(logs) is None


@st.composite
def logs_with_gaps(draw: Any) -> tuple[list[int], int]:
    """Source offsets of the records that are copied, in order, and how many of them stand at the target."""
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 5]), min_size=1, max_size=40))
    offsets, at = [], draw(st.integers(0, 3))
    for step in steps:
        offsets.append(at)
        at += step
    return offsets, draw(st.integers(0, len(offsets)))


@given(logs_with_gaps(), st.integers(0, 220))
def test_neither_goes_further_than_the_copy_and_than_exact_positions(found: tuple[list[int], int], group: int) -> None:
    """As MirrorMaker reads a sync: at its record, or the one after it (OffsetSyncStore.translateDownstream)."""
    offsets, copied = found
    starts = [(0, offsets[0])] + [
        (at, offset) for at, offset in enumerate(offsets) if at and offset != offsets[at - 1] + 1
    ]
    logs = copies(OffsetMap.of(starts), stable=copied)
    told = position(logs)
    assert told is not None
    assert all(offset >= told for offset in offsets[copied:])
    assert copied == 0 or told > offsets[copied - 1]
    pair = sync(logs)
    assert (pair is None) == (copied == 0)
    if pair is not None and group >= pair.upstream:
        assert offsets[pair.downstream] == pair.upstream
        reader = pair.downstream + (group > pair.upstream)
        assert all(offset < group for offset in offsets[:reader])


def test_many_partitions_are_looked_at_less_often() -> None:
    assert [compute_round_interval(partitions) for partitions in (0, 2_000, 10_000)] == [5_000, 5_000, 25_000]


def observation(landing: TranslatedPosition, **more: Any) -> GroupObservation:
    group = ListedGroup("billing", "Empty", more.pop("type", "classic"))
    held = CommittedOffsets({HERE: CommittedPosition(40, "note")})
    return GroupObservation(
        "f", "billing", "renamed", group, None, held, CommittedOffsets(), {HERE: landing}, "", "", "b"
    )


def test_a_checkpoint_is_the_exact_translation_under_the_sources_group() -> None:
    [found] = list_checkpoints(observation(TranslatedPosition(THERE, 33)))
    assert found == Checkpoint("billing", "onprem.orders", 0, 40, 33, "note")


def test_a_group_ahead_of_the_copy_gets_the_copys_end_and_the_offset_that_belongs_to_it() -> None:
    ahead = TranslatedPosition(THERE, 20, OffsetNotCopied(HERE, 40, 25), 25)
    [found] = list_checkpoints(observation(ahead))
    assert (found.upstream, found.downstream) == (25, 20)


def test_no_checkpoint_without_a_place_and_none_of_a_share_group() -> None:
    assert list(list_checkpoints(observation(TranslatedPosition(THERE, None, why="not there yet")))) == []
    assert list(list_checkpoints(observation(TranslatedPosition(THERE, 33), type="share"))) == []


def test_records_are_those_of_mirrormaker() -> None:
    """Bytes as the schemas of Heartbeat, Checkpoint and OffsetSync give them; a real client reads them in
    tests/replicator/brokers/test_real_mirror_client.py."""
    key, value = encode_heartbeat(Heartbeat("a", "bc", 258))
    assert (key, value) == (b"\0\1a\0\2bc", b"\0\0\0\0\0\0\0\0\1\2")
    held = Checkpoint("gründe", "a.t", 7, 40, 33, "note")
    assert decode_checkpoint(*encode_checkpoint(held)) == held
    pair = OffsetSync("t", 3, 1 << 40, 9)
    assert decode_offset_sync(*encode_offset_sync(pair)) == pair
