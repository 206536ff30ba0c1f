"""The loop guard: by the producer id in the header, with a registry that is read again for unknown ids."""

from __future__ import annotations

import uuid

import pytest

from tests.replicator.build import batch_of, data
from watershed.clusters.claim_rules import ClaimedPartition
from watershed.clusters.errors import Unreachable
from watershed.replicator.batch.filler_batch import build_filler_batch
from watershed.replicator.copy.loop_guard import MAX_KNOWN_PRODUCER_IDS, ClusterPath, LoopGuard, PartitionLoopGuard
from watershed.replicator.errors import ForeignWrite
from watershed.replicator.partition_states import OffsetSpan

BACK, OTHER, FAR = 11, 12, 13  # of flows into our source: from our target, from a third cluster, through that from ours
REGISTRY: dict[int, ClusterPath] = {BACK: ("cloud",), OTHER: ("branch",), FAR: ("cloud", "branch")}


def written_by(producer_id: int):
    return batch_of(data(0, 2, producer_id=producer_id))


HERE = ClaimedPartition("orders", uuid.UUID(int=1), 0)


def guard_of(
    forward: str = "all", registry=lambda: REGISTRY, claims=lambda _where, _batch: True, passed=None, **more
) -> PartitionLoopGuard:
    return LoopGuard("onprem", "cloud", forward, registry, claims, **more).at(HERE, passed)


@pytest.mark.parametrize(
    ("forward", "producer_id", "left_out"),
    [
        ("all", BACK, True),
        ("all", OTHER, False),
        ("all", FAR, True),
        ("all", 999, False),
        ("all", -1, False),
        ("local", BACK, True),
        ("local", OTHER, True),
        ("local", FAR, True),
        ("local", 999, False),
        ("local", -1, False),
    ],
)
def test_what_travels_on(forward: str, producer_id: int, left_out: bool) -> None:
    assert guard_of(forward)(written_by(producer_id)) is left_out


@pytest.mark.parametrize("forward", ["all", "local"])
@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("paths", [True, False])
def test_whose_batches_need_not_be_asked_for_one_by_one(forward: str, guarded: bool, paths: bool) -> None:
    def claims(_where: object, _batch: object) -> bool:
        raise AssertionError("a ledger was asked")

    guard = guard_of(forward, claims=claims, guarded=guarded, paths=paths)
    taken = {producer for producer in (-1, 999, BACK, OTHER, FAR) if guard.takes_all_of(producer)}
    assert {-1, 999} <= taken
    assert (BACK in taken) == (FAR in taken) == (forward == "all" and not guarded)
    assert (OTHER in taken) == (forward == "all" and not (guarded and paths))
    for producer in taken:
        assert not guard(written_by(producer))
        assert guard.path_of(written_by(producer)) == ("onprem",)


def test_a_producer_of_whom_nothing_can_be_read_is_judged_batch_by_batch() -> None:
    def unreachable() -> dict[int, ClusterPath]:
        raise Unreachable("nobody answers", alias="onprem")

    guard = guard_of(registry=unreachable)
    assert not guard.takes_all_of(999)
    with pytest.raises(Unreachable):
        guard(written_by(999))


def test_without_a_guard_only_local_forwarding_leaves_something_out() -> None:
    assert not guard_of(guarded=False)(written_by(BACK))
    assert guard_of("local", guarded=False)(written_by(BACK))


def test_the_way_of_a_batch_is_its_producers_way_and_the_source() -> None:
    telling = guard_of(paths=True)
    assert telling.path_of(written_by(OTHER)) == ("branch", "onprem")
    assert telling.path_of(written_by(999)) == ("onprem",)
    assert telling.path_of(written_by(-1)) == ("onprem",)


def test_a_flow_that_need_not_tell_the_way_has_one_way_only() -> None:
    def never() -> dict[int, ClusterPath]:
        raise AssertionError("the registry was read")

    assert guard_of(registry=never).path_of(written_by(OTHER)) == ("onprem",)
    assert guard_of(registry=never, guarded=False, paths=True).path_of(written_by(OTHER)) == ("onprem",)


def test_a_flow_that_was_added_later_is_found() -> None:
    registry: dict[int, ClusterPath] = {}
    guard = guard_of(registry=lambda: dict(registry))
    assert not guard(written_by(5))
    registry[BACK] = ("cloud",)
    assert guard(written_by(BACK))


def test_the_registry_is_read_once_an_id_and_never_for_batches_without_one() -> None:
    reads: list[int] = []

    def registry() -> dict[int, ClusterPath]:
        reads.append(1)
        return {BACK: ("cloud",), OTHER: ("branch",)}

    guard = guard_of(registry=registry, paths=True)
    for _ in range(3):
        for producer_id in (-1, BACK, OTHER, 999):
            guard(written_by(producer_id))
            guard.path_of(written_by(producer_id))
    assert len(reads) == 2  # one told of both flows


def test_an_unreadable_registry_decides_nothing() -> None:
    answers: list[dict[int, ClusterPath] | Exception] = [OSError("gone"), {BACK: ("cloud",)}]

    def registry() -> dict[int, ClusterPath]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    guard = guard_of(registry=registry)
    with pytest.raises(OSError, match="gone"):
        guard(written_by(BACK))
    assert guard(written_by(BACK))


def test_applications_that_come_and_go_do_not_fill_the_memory() -> None:
    guard = guard_of()
    for producer_id in range(1_000, 1_000 + MAX_KNOWN_PRODUCER_IDS + 50):
        assert not guard(written_by(producer_id))
    assert len(guard.guard._known) <= MAX_KNOWN_PRODUCER_IDS + len(REGISTRY)
    assert guard(written_by(BACK))


@pytest.mark.parametrize("guarded", [True, False])
def test_what_a_topic_is_filled_with_is_nobodys_record(guarded: bool) -> None:
    filler = batch_of(b"".join(build_filler_batch(1_000, 999, 0, 0)))
    assert guard_of(guarded=guarded)(filler)
    assert not guard_of(guarded=guarded)(written_by(999))


@pytest.mark.parametrize(
    ("forward", "producer_id", "paths", "asked"),
    [
        ("all", BACK, False, True),
        ("all", OTHER, False, False),  # nothing depends on whether it is
        ("all", OTHER, True, True),  # the way that is told on does
        ("all", 999, True, False),
        ("local", OTHER, False, True),
        ("local", 999, False, False),
    ],
)
def test_an_id_is_believed_only_where_its_flow_claims_the_batch(
    forward: str, producer_id: int, paths: bool, asked: bool
) -> None:
    def claims(where: ClaimedPartition, batch) -> bool:
        assert (where, batch.producer_id) == (HERE, producer_id)
        return False

    guard = guard_of(forward, claims=claims, paths=paths)
    if not asked:
        assert not guard(written_by(producer_id))
        return
    with pytest.raises(ForeignWrite, match=f"producer id {producer_id} .* source offsets 0 to 1"):
        guard(written_by(producer_id))


def test_where_a_person_looked_no_id_is_believed() -> None:
    def none(_where: ClaimedPartition, _batch) -> bool:
        return False

    guard = guard_of(claims=none, passed=OffsetSpan(0, 2), paths=True)
    assert not guard(written_by(BACK))
    assert guard.path_of(written_by(BACK)) == ("onprem",)
    behind = batch_of(data(2, 2, producer_id=BACK))
    with pytest.raises(ForeignWrite):
        guard(behind)


def test_without_a_guard_nobodys_claim_is_asked() -> None:
    def never(_where: ClaimedPartition, _batch) -> bool:
        raise AssertionError("the ledger was asked")

    assert not guard_of(claims=never, guarded=False)(written_by(BACK))
