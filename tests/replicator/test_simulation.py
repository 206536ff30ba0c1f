"""Workers race, crash, lose connections and answers; the copy must be exact all the same (young regime)."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from tests.replicator.model import Simulation

pytestmark = pytest.mark.slow
SETTINGS = settings(max_examples=choose_examples(100), deadline=None, suppress_health_check=list(HealthCheck))


def run(
    script: bytes,
    workers: int = 3,
    *,
    describes: bool = True,
    forgets: bool = False,
    refuses: bool = False,
    end: int | None = None,
) -> Simulation:
    simulation = Simulation(workers, describes=describes, forgets=forgets, refuses=refuses, end=end)
    for at in range(0, len(script) - 1, 2):
        simulation.step(script[at], script[at + 1])
    simulation.drain()
    simulation.check_copy()
    return simulation


@SETTINGS
@given(st.binary(min_size=60, max_size=400))
def test_whatever_happens_the_copy_is_exact(script: bytes) -> None:
    run(script)


@SETTINGS
@given(st.binary(min_size=60, max_size=400), st.booleans(), st.booleans())
def test_a_target_that_tells_nothing_of_producers_gets_the_same(script: bytes, forgets: bool, refuses: bool) -> None:
    """Kafka below 2.8. A batch of a worker that is gone lands late, also behind a takeover that saw nothing move."""
    run(script, describes=False, forgets=forgets, refuses=refuses)


@SETTINGS
@given(st.binary(min_size=60, max_size=400), st.integers(1, 60))
def test_a_copy_that_ends_is_exact_up_to_its_end(script: bytes, end: int) -> None:
    run(script, end=end)


def test_ends_are_reached_in_what_is_tried() -> None:
    chance = random.Random(3)
    found = [run(chance.randbytes(600), end=end) for end in (1, 5, 12, 20)]
    assert all(each.complete or each.find_copied_end() == end for each, end in zip(found, (1, 5, 12, 20), strict=True))
    assert any(each.source.log("orders", 0).end > 30 for each in found)


def test_such_a_target_is_written_to_late_and_forgets_in_what_is_tried() -> None:
    """Otherwise the test before this one would try nothing."""
    chance, late, forgot, epochs = random.Random(7), 0, 0, 0
    for forgets in (False, True) * 4:
        found = run(chance.randbytes(900), describes=False, forgets=forgets, refuses=forgets)
        late += sum(step.startswith("late request") for step in found.trace)
        forgot += found.forgot
        remembered, _ = found.remembered()
        epochs += 0 if remembered is None else remembered.identity.epoch
    assert late > 0
    assert forgot > 0
    assert epochs > 0


@pytest.mark.parametrize("describes", [True, False])
@pytest.mark.parametrize(
    ("seed", "runs"), [(0, 15), (1, 15), *(pytest.param(seed, 40, marks=pytest.mark.soak) for seed in range(10))]
)
def test_long_runs(seed: int, runs: int, describes: bool) -> None:
    """Longer than what hypothesis makes by itself: 600 steps a run."""
    chance = random.Random(seed)
    for _ in range(runs):
        refuses = not describes and chance.random() < 0.5
        run(
            chance.randbytes(1200),
            workers=chance.choice((1, 2, 2, 3)),
            describes=describes,
            forgets=not describes,
            refuses=refuses,
        )
