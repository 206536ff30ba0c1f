"""Standing still: noticed by whoever runs first, and told to everybody who asks."""

from __future__ import annotations

from watershed.replicator.transport.stall_detector import StallDetector


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_process_that_is_asked_often_enough_has_not_stood_still() -> None:
    clock = Clock()
    pulse = StallDetector(5.0, clock=clock)
    for _ in range(100):
        clock.now += 5.0
        assert pulse.count_stalls() == (0,)


def test_everybody_hears_of_a_stop_whoever_noticed_it() -> None:
    clock = Clock()
    pulse = StallDetector(5.0, clock=clock)
    before = pulse.count_stalls()
    clock.now += 5.1
    assert pulse.count_stalls() != before  # the thread that beats
    assert pulse.count_stalls() != before  # a thread that comes later
    again = pulse.count_stalls()
    assert pulse.count_stalls() == again


def test_one_that_waits_for_a_broker_while_others_run_has_not_stood_still() -> None:
    clock = Clock()
    pulse = StallDetector(5.0, clock=clock)
    before = pulse.count_stalls()
    for _ in range(80):  # the thread that beats, while a thread waits 40 s for an answer
        clock.now += 0.5
        pulse.count_stalls()
    assert pulse.count_stalls() == before


def test_a_stall_counts_for_each_limit_that_it_passes() -> None:
    clock = Clock()
    pulse = StallDetector(5.0, 10.0, clock=clock)
    clock.now += 7.0
    assert pulse.count_stalls() == (1, 0)
    clock.now += 11.0
    assert pulse.count_stalls() == (2, 1)
