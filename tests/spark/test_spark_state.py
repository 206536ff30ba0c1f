"""The state of compacted logs against an oracle: whatever a cleaner may take away on one side is no difference."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.spark.logs import packed
from tests.spark.memory import CLUSTER, Stored
from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.fingerprint import ConsumedRecord, RecordFingerprints, fingerprint_records
from watershed.spark.judging import key_state_reading
from watershed.spark.judging.key_state import (
    KeyState,
    KeyStateDifference,
    add_key_differences,
    compare_key_states,
    find_last_by_key,
    join_key_states,
    split_by_key_hash,
)
from watershed.spark.judging.key_state_reading import KeyStateJob, KeyStateResult, compare_states_locally
from watershed.spark.judging.proof import ComparisonOutcome, compare_and_judge
from watershed.spark.judging.proof_inputs import ProofPartition
from watershed.spark.judging.proof_window import ObservedPartition, PartitionPair, fix_window
from watershed.spark.reading.range_requests import QuarantinedOffset

PLACE = PartitionPair("onprem-to-cloud", "t", "t", 0)
IDS = (uuid.UUID(int=1), uuid.UUID(int=2))
Entry = tuple[int, int, int | None]  # offset, key, value (None: a tombstone)


class World(NamedTuple):
    """A log of which everything below `end` was proven to be copied, what each cleaner left of it, and of its copy."""

    log: list[Entry]
    end: int
    source: list[Entry]
    target: list[Entry]


def prints(log: list[Entry]) -> RecordFingerprints:
    records = [ConsumedRecord(b"%d" % key, None if value is None else b"%d" % value, 5) for _, key, value in log]
    found = fingerprint_records(records)
    found.offset[:] = [offset for offset, _, _ in log]
    return found


@st.composite
def cleaned(draw: st.DrawFn, log: list[Entry]) -> list[Entry]:
    """What a cleaner may leave: the last record of every key stays, unless it is a tombstone, which may go together
    with all before it."""
    newest = {key: offset for offset, key, _ in log}
    dead = {key for offset, key, value in log if newest[key] == offset and value is None}
    gone = {key for key in sorted(dead) if draw(st.booleans())}
    return [e for e in log if e[1] not in gone and (newest[e[1]] == e[0] or draw(st.booleans()))]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    values = st.tuples(st.integers(0, 8), st.one_of(st.none(), st.integers(0, 3)))
    log = [(at, *each) for at, each in enumerate(draw(st.lists(values, max_size=40)))]
    return World(log, draw(st.integers(0, len(log))), draw(cleaned(log)), draw(cleaned(log)))


def compared(source: list[Entry], target: list[Entry], end: int, buckets: int = 1, cuts: int = 7) -> KeyStateDifference:
    def state(log: list[Entry]) -> list[KeyState]:
        inside = [e for e in log if e[0] < end]
        parts = [find_last_by_key(prints([e for e in inside if a <= e[0] < a + cuts])) for a in range(0, end + 1, cuts)]
        return split_by_key_hash(join_key_states(parts[::-1]), buckets)

    behind = prints([e for log in (source, target) for e in log if e[0] >= end])

    def rewritten(kh: np.ndarray) -> np.ndarray:
        return np.isin(kh, behind.kh)

    pairs = zip(state(source), state(target), strict=True)
    return add_key_differences([compare_key_states(one, two, rewritten, limit=50) for one, two in pairs], 50)


def live(log: list[Entry], end: int) -> dict[int, int]:
    state = {key: value for offset, key, value in log if offset < end}
    return {key: value for key, value in state.items() if value is not None}


BEHIND: list[Entry] = [(0, 3, 0), (1, 3, None), (2, 3, None)]


@settings(deadline=None)
@example(World(BEHIND, 2, BEHIND[::2], BEHIND[::2]), 1)
@given(worlds(), st.integers(1, 3))
def test_two_cleaners_that_work_apart_make_no_difference(world: World, buckets: int) -> None:
    found = compared(world.source, world.target, world.end, buckets).difference
    assert (found.missing, found.altered, found.foreign, found.unverifiable) == (0, 0, 0, 0)
    later = {key for offset, key, _ in world.log if offset >= world.end}
    keys = set(live(world.log, world.end))
    # A key that is written again behind the end may count as proven by an older record that both sides still have.
    assert len(keys - later) <= found.proven
    assert found.proven + found.pending <= len(keys | later)


@settings(deadline=None)
@given(worlds(), st.data())
def test_a_key_that_was_lost_or_altered_or_came_from_elsewhere_is_named(world: World, data: st.DataObject) -> None:
    later = {key for offset, key, _ in world.log if offset >= world.end}
    keys = sorted(set(live(world.log, world.end)) - later)
    if not keys:
        return
    key, kind = data.draw(st.sampled_from(keys)), data.draw(st.sampled_from(("missing", "altered", "foreign")))
    newest = max(e[0] for e in world.target if e[1] == key)
    source, target = world.source, world.target
    if kind == "missing":
        target = [e for e in target if e[1] != key]
    elif kind == "altered":
        target = [(*e[:2], 9) if e[0] == newest else e for e in target]
    else:
        source = [e for e in source if e[1] != key]
    found = compared(source, target, world.end).difference
    assert (found.missing + found.altered + found.foreign, getattr(found, kind)) == (1, 1)
    [example] = found.examples
    assert (example.kind, example.components) == (kind, ("value",) if kind == "altered" else ())
    offsets = {"missing": (newest, None), "altered": (newest, newest), "foreign": (None, newest)}
    assert (example.source_offset, example.target_offset) == offsets[kind]


def test_a_tombstone_that_never_came_leaves_a_foreign_key() -> None:
    found = compared([(0, 1, 7), (1, 1, None)], [(0, 1, 7)], 2).difference
    assert (found.foreign, found.examples[0].source_offset, found.examples[0].target_offset) == (1, 1, 0)


def test_a_tombstone_that_expired_on_one_side_only_is_no_difference() -> None:
    assert compared([(0, 1, 7), (1, 1, None)], [], 2).difference.foreign == 0
    assert compared([], [(1, 1, None)], 2).difference.missing == 0


def test_what_expired_on_the_other_side_is_unverifiable() -> None:
    def later(kh: np.ndarray) -> np.ndarray:
        return np.zeros(len(kh), dtype=np.bool_)

    one, two = (find_last_by_key(prints(log)) for log in ([(3, 1, 7), (9, 2, 7)], [(4, 3, 7), (8, 4, 7)]))
    found = compare_key_states(one, two, later, low=(5, 6), limit=9).difference
    assert (found.unverifiable, found.missing, found.foreign) == (2, 1, 1)


def test_an_aligned_key_stands_at_its_offset() -> None:
    def later(kh: np.ndarray) -> np.ndarray:
        return np.zeros(len(kh), dtype=np.bool_)

    one, two = (find_last_by_key(prints(log)) for log in ([(3, 1, 7)], [(4, 1, 7)]))
    assert compare_key_states(one, two, later, limit=9).difference.proven == 1
    found = compare_key_states(one, two, later, in_place=True, limit=9).difference
    assert (found.altered, found.components) == (1, ("offset",))


def test_records_without_a_key_are_counted_apart() -> None:
    keyless = fingerprint_records(
        [ConsumedRecord(None, b"v", 1), ConsumedRecord(b"k", b"v", 1), ConsumedRecord(None, b"w", 1)]
    )
    found = find_last_by_key(keyless)
    assert (len(found), found.keyless) == (1, 2)
    assert join_key_states([found, found]).keyless == 4


class Compacted:
    """A topic in memory whose source and target are read by the real reader, and judged as Spark's tasks do it."""

    def __init__(self, source: list[ConsumedRecord], target: list[ConsumedRecord]) -> None:
        self.stored = Stored()
        self.ends = [
            self.stored.put((alias, "t", 0), packed(log, (7, 3)))
            for alias, log in (("onprem", source), ("cloud", target))
        ]
        self.asked = 0

    def prove(
        self, barrier: int | None = None, kept: tuple[QuarantinedOffset, ...] = (), timestamps: bool = True
    ) -> ComparisonOutcome:
        end = self.ends[0] if barrier is None else barrier
        logs = LogRange(0, self.ends[0]), LogRange(0, min(end, self.ends[1]))
        window = fix_window(ObservedPartition(PLACE, *logs, OffsetMap.of([(0, 0)]), end, IDS))
        subject = ProofPartition(
            window,
            OffsetMap.of([(0, 0)]),
            ("onprem", "cloud"),
            compacted=True,
            timestamps=timestamps,
            chunk=20,
            kept=kept,
        )
        with self.stored.in_place_of_clusters() as readers, patch.object(key_state_reading, "Admin", self.admin):
            return compare_and_judge([subject], replace(readers, states=self.states))

    def states(self, jobs: Sequence[KeyStateJob]) -> list[KeyStateResult]:
        self.asked += 1
        return compare_states_locally(jobs, CLUSTER.__getitem__)

    @contextmanager
    def admin(self, settings: ConnectionSettings) -> Iterator[Any]:
        end = self.ends[settings.alias == "cloud"]
        yield SimpleNamespace(offsets=lambda wanted: {key: LogRange(0, end) for key in wanted})


def values(*pairs: tuple[int, int | None]) -> list[ConsumedRecord]:
    return [ConsumedRecord(b"%d" % key, None if value is None else b"%d" % value, 5) for key, value in pairs]


LOG = values(*((n % 9, n) for n in range(60)))
FILL = ConsumedRecord(b"fill", b"", 5)


def holes(log: list[ConsumedRecord], *gone: int) -> list[ConsumedRecord]:
    """The log with other records where some were cleaned away: what stands there does not matter to the state."""
    return [FILL if n in gone else r for n, r in enumerate(log)] + [FILL]


@pytest.mark.parametrize("bucket", [1, 7, 1_000_000])
def test_a_partition_with_a_chunk_that_differs_is_judged_by_its_keys(bucket: int) -> None:
    with patch.object(key_state_reading, "_BUCKET", bucket):
        found = Compacted([*LOG, FILL], holes(LOG, 3, 30, 31)).prove()
        assert (found.judgement.verdict, found.judgement.total.proven) == ("proven", 10)
        assert found.judgement.by_state == {PLACE}
        assert {row.status for row in found.rows} == {"equal", "state"}
        found = Compacted([*LOG, FILL], holes(LOG, 3, 55)).prove()
    assert (found.judgement.verdict, found.judgement.total.altered) == ("different", 1)
    [example] = found.confirmed[0].difference.examples
    assert (example.source_offset, example.target_offset) == (55, 46)


def test_where_all_chunks_are_equal_records_count() -> None:
    topic = Compacted(LOG, LOG)
    found = topic.prove()
    assert (found.judgement.total.proven, found.judgement.by_state, topic.asked) == (60, frozenset(), 0)


def test_keys_that_were_written_behind_the_window_are_pending() -> None:
    log = [*LOG, FILL]
    found = Compacted([*log, *values((1, 99))], [*holes(LOG, 55), *values((1, 99))]).prove(barrier=61)
    assert (found.judgement.verdict, found.judgement.total.pending, found.judgement.total.proven) == (
        "incomplete",
        1,
        9,
    )


def test_what_expires_under_the_reading_is_unverifiable_and_read_again() -> None:
    """The target's log begins at 57 by the time it is read: the source's keys whose last record stands before are not
    there any more."""
    topic = Compacted([*LOG, FILL], holes(LOG, 3))
    topic.stored.starts["cloud", "t", 0] = 57
    found = topic.prove()
    assert topic.asked == 2
    assert (found.judgement.verdict, found.judgement.total.unverifiable) == ("incomplete", 6)
    assert found.judgement.total.proven == 4
    topic = Compacted([*LOG, FILL], holes(LOG, 3))
    topic.stored.starts["onprem", "t", 0] = 57
    total = topic.prove().judgement.total
    assert (total.difference_count, total.unverifiable, total.proven) == (0, 6, 4)


def test_records_without_a_key_are_told_unless_they_are_in_quarantine() -> None:
    bare = ConsumedRecord(None, b"v", 5)
    source, target = [*LOG, bare, FILL], [*LOG, FILL]
    found = Compacted(source, target).prove()
    assert found.judgement.total.unverifiable == 1
    assert "1 records without a key on the source and 0 on the target" in found.judgement.blocks[0]
    kept = QuarantinedOffset(60, (int(fingerprint_records([bare]).fp[0]),), keyless=True)
    found = Compacted(source, target).prove(kept=(kept,))
    assert (found.judgement.total.quarantined, found.judgement.total.unverifiable) == (1, 0)
    assert not found.judgement.blocks
    other = QuarantinedOffset(60, (7,), keyless=True)
    assert Compacted(source, target).prove(kept=(other,)).judgement.total.unverifiable == 1


def test_keys_that_differ_have_the_stored_times_where_the_target_stamps_append_times() -> None:
    copy = [replace(record, timestamp=77) for record in LOG]
    copy[-1] = replace(copy[-1], value=b"other")
    [confirmed] = Compacted(LOG, copy).prove(timestamps=False).confirmed
    [example] = confirmed.difference.examples
    assert (example.kind, example.source_ts, example.target_ts) == ("altered", 5, 77)
    assert example.components == ("value",)
