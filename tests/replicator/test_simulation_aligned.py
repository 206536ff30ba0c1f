"""Workers race, crash in the middle of fills and gaps, and wake up late: every record stands where it should."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from tests.replicator.aligned_model import AlignedSimulation
from tests.replicator.model import WentHalted
from watershed.replicator.copy.aligned import log_end

SETTINGS = settings(max_examples=choose_examples(25, 300), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True, scope="module")
def _without_pauses():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_end, "_PAUSE_S", 0.0)
        patch.setattr(log_end, "RIVAL_MARKER_WAIT_S", 0.0)
        patch.setattr(log_end, "MAX_MARKERS_PER_REQUEST", 3)
        patch.setattr("watershed.replicator.copy.transactions.transactional_producer.COORDINATOR_PAUSE_S", 0.0)
        patch.setattr("watershed.replicator.copy.aligned.target_log._PAUSE_S", 0.0)
        yield


def run(script: bytes, workers: int = 3, *, first: int = 0, compaction: bool = False, markers: bool = True) -> bool:
    """Whether it was exact; otherwise the partition said that it was not."""
    simulation = AlignedSimulation(workers, first=first, compaction=compaction, markers=markers)
    try:
        for at in range(0, len(script) - 1, 2):
            simulation.step(script[at], script[at + 1])
        simulation.drain()
    except WentHalted as halt:
        if not compaction or halt.state != "duplicated":  # see test_simulation_compaction
            raise
        return False
    simulation.check_aligned()
    return True


@SETTINGS
@given(st.binary(min_size=60, max_size=400), st.sampled_from([0, 9]), st.booleans())
def test_whatever_happens_every_record_keeps_its_offset(script: bytes, first: int, markers: bool) -> None:
    assert run(script, first=first, markers=markers)


@pytest.mark.parametrize("seed", range(3))
def test_long_runs(seed: int) -> None:
    chance = random.Random(seed)
    for number in range(3):
        assert run(chance.randbytes(1200), workers=chance.choice((1, 2, 3)), first=chance.choice((0, 5)) * (number % 2))


@pytest.mark.parametrize("seed", range(2))
def test_compaction_meanwhile(seed: int) -> None:
    chance = random.Random(seed)
    exact = [run(chance.randbytes(1000), workers=chance.choice((1, 2, 2, 3)), compaction=True) for _ in range(3)]
    assert sum(exact) >= 2
