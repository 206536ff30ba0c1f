"""Who sends next: weights between flows, turns between the partitions of one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watershed.replicator.transport.fair_scheduling import FairScheduler


@dataclass(frozen=True, slots=True)
class Part:
    flow: str
    number: int
    weight: int = 1
    size: int = 100_000


def parts(flow: str, count: int, weight: int = 1, size: int = 100_000) -> list[Part]:
    return [Part(flow, number, weight, size) for number in range(count)]


def requests(shares: FairScheduler[Part], count: int, most: int = 8 << 20) -> list[list[Part]]:
    """Every part always has one more batch to send."""
    made = []
    for _ in range(count):
        request: list[Part] = []
        while (size := sum(part.size for part in request)) < most and (part := shares.next(size)) is not None:
            request.append(part)
            shares.spent(part, part.size)
            shares.put(part)
        shares.complete()
        made.append(request)
    return made


def sent(made: list[list[Part]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for request in made:
        for part in request:
            total[part.flow] += part.size
    return total


@pytest.mark.parametrize(
    ("many", "few", "large", "small"),
    [(4, 4, 100_000, 100_000), (50, 1, 100_000, 100_000), (1, 50, 100_000, 100_000), (1, 50, 900_000, 20_000)],
)
def test_flows_share_by_weight_whatever_their_partitions_and_batches(
    many: int, few: int, large: int, small: int
) -> None:
    shares: FairScheduler[Part] = FairScheduler()
    for part in (*parts("heavy", many, 3, large), *parts("light", few, 1, small)):
        shares.put(part)
    total = sent(requests(shares, 3_000, most=2 << 20))
    assert total["heavy"] / total["light"] == pytest.approx(3, rel=0.1)


def test_a_flow_that_cannot_use_its_share_does_not_hold_the_others() -> None:
    shares: FairScheduler[Part] = FairScheduler()
    for part in (*parts("large", 50, 1, 900_000), *parts("tiny", 1, 1_000, 100)):
        shares.put(part)
    made = requests(shares, 1_000)
    assert all(Part("tiny", 0, 1_000, 100) in request for request in made)
    assert sent(made)["large"] >= 900_000 * 1_000


def test_partitions_of_a_flow_take_turns() -> None:
    shares: FairScheduler[Part] = FairScheduler()
    for part in parts("flow", 7):
        shares.put(part)
    turns = Counter(part.number for request in requests(shares, 100, most=250_000) for part in request)
    assert max(turns.values()) - min(turns.values()) <= 1


def test_a_flow_that_was_idle_gets_no_arrears() -> None:
    shares: FairScheduler[Part] = FairScheduler()
    shares.put(Part("busy", 0))
    requests(shares, 1_000)
    shares.put(Part("late", 0))
    assert sent(requests(shares, 100))["busy"] >= 40 * 100_000


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=60), st.integers(1, 5))
def test_a_part_has_one_turn_a_request_and_none_is_forgotten(wakes: list[tuple[int, int]], each: int) -> None:
    """Parts are woken at any time, also while a request is made and after their turn."""
    shares: FairScheduler[Part] = FairScheduler()
    known = {(flow, number): Part(f"flow{flow}", number) for flow in range(3) for number in range(5)}
    woken: set[Part] = set()
    served: set[Part] = set()
    pending = list(wakes)
    while pending or shares:
        request: list[Part] = []
        for _ in range(each):
            if pending:
                part = known[pending.pop()]
                shares.put(part)
                woken.add(part)
            turn = shares.next(sum(part.size for part in request))
            if turn is not None:
                request.append(turn)
                shares.spent(turn, turn.size)
        shares.complete()
        assert len(request) == len(set(request))
        served.update(request)
    assert served == woken
