"""The limit in bytes a second, in a time of its own."""

from __future__ import annotations

import pytest

from watershed.replicator.transport.rate_limit import QUOTA_BURST_S, FlowRateLimits, RateLimit


def taken(rate: RateLimit, seconds: float, batch: int, step: float = 0.001) -> int:
    """Bytes of a source that always has more, whose batches are not cut: at least one comes, as many as fit."""
    now, total = 100.0, 0
    while now < 100.0 + seconds:
        allowance = rate.allowance(now)
        assert allowance is not None
        if allowance:
            size = max(allowance // batch, 1) * batch
            rate.spend(size, now)
            total += size
            now += step
        else:
            pause = rate.wait(now)
            assert pause > 0
            now += pause
    return total


@pytest.mark.parametrize("quota", [100_000, 1_000_000, 60_000_000])
@pytest.mark.parametrize("batch", [500, 16_000, 100_000])
def test_holds_within_five_in_a_hundred(quota: int, batch: int) -> None:
    seconds = max(10.0, 60 * batch / quota)
    assert taken(RateLimit(quota), seconds, batch) == pytest.approx(quota * seconds, rel=0.05)


def test_a_pause_is_made_up_for_by_a_short_burst_only() -> None:
    rate = RateLimit(1_000_000)
    assert rate.allowance(0.0) == 0
    assert rate.allowance(3600.0) == 1_000_000 * QUOTA_BURST_S


def test_what_came_in_beyond_the_limit_is_waited_for() -> None:
    rate = RateLimit(1_000)
    rate.allowance(0.0)
    rate.spend(5_000, 0.0)
    assert rate.allowance(4.9) == 0
    assert rate.wait(4.9) == pytest.approx(0.2)  # 5 s for the debt, a tenth for the least that may be asked for
    assert rate.allowance(5.2) == 100


def test_without_a_limit() -> None:
    rate = RateLimit(None)
    rate.spend(10**12, 0.0)
    assert rate.allowance(0.0) is None
    assert rate.wait(0.0) == 0.0


def test_the_workers_of_a_flow_share_its_quota() -> None:
    rates = FlowRateLimits()
    rates.share({"orders": 0.25})
    rate = rates.of("orders", 1_000_000)
    assert rate.quota == 250_000
    assert rates.of("orders", 1_000_000) is rate
    rates.share({"orders": 1.0})
    assert rate.quota == 1_000_000
    assert rates.of("free", None).quota is None
    rates.forget("orders")
    assert rates.of("orders", 8_000) is not rate
