"""The loop guard: by the producer id in the header, with a registry that is read again for unknown ids."""

from __future__ import annotations

import pytest

from replicator.guard import Guard
from tests.replicator.build import batch_of, data

BACK, OTHER = 11, 12  # producer ids of flows into our source: from our target, from a third cluster


@pytest.mark.parametrize(
    ("forward", "producer_id", "left_out"),
    [
        ("all", BACK, True),
        ("all", OTHER, False),
        ("all", 999, False),
        ("all", -1, False),
        ("local", BACK, True),
        ("local", OTHER, True),
        ("local", 999, False),
        ("local", -1, False),
    ],
)
def test_what_travels_on(forward: str, producer_id: int, left_out: bool) -> None:
    guard = Guard("cloud", forward, lambda: {BACK: "cloud", OTHER: "branch"})
    assert guard(batch_of(data(0, 2, producer_id=producer_id))) is left_out


def test_a_flow_that_was_added_later_is_found() -> None:
    registry: dict[int, str] = {}
    guard = Guard("cloud", "all", lambda: dict(registry))
    assert not guard(batch_of(data(0, producer_id=5)))
    registry[BACK] = "cloud"
    assert guard(batch_of(data(1, producer_id=BACK)))


def test_the_registry_is_read_once_an_id_and_never_for_batches_without_one() -> None:
    reads: list[int] = []

    def origins() -> dict[int, str]:
        reads.append(1)
        return {BACK: "cloud"}

    guard = Guard("cloud", "all", origins)
    for _ in range(3):
        for producer_id in (-1, BACK, 999):
            guard(batch_of(data(0, producer_id=producer_id)))
    assert len(reads) == 2


def test_an_unreadable_registry_decides_nothing() -> None:
    answers: list[dict[int, str] | Exception] = [OSError("gone"), {BACK: "cloud"}]

    def origins() -> dict[int, str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    guard = Guard("cloud", "all", origins)
    batch = batch_of(data(0, producer_id=BACK))
    with pytest.raises(OSError, match="gone"):
        guard(batch)
    assert guard(batch)
