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


def run(script: bytes, workers: int = 3) -> Simulation:
    simulation = Simulation(workers)
    for at in range(0, len(script) - 1, 2):
        simulation.step(script[at], script[at + 1])
    simulation.drain()
    simulation.check_copy()
    return simulation


@SETTINGS
@given(st.binary(min_size=60, max_size=400))
def test_whatever_happens_the_copy_is_exact(script: bytes) -> None:
    run(script)


@pytest.mark.parametrize(
    ("seed", "runs"), [(0, 15), (1, 15), *(pytest.param(seed, 40, marks=pytest.mark.soak) for seed in range(10))]
)
def test_long_runs(seed: int, runs: int) -> None:
    """Longer than what hypothesis makes by itself: 600 steps a run."""
    chance = random.Random(seed)
    for _ in range(runs):
        run(chance.randbytes(1200), workers=chance.choice((1, 2, 2, 3)))
