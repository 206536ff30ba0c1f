"""Amounts as text: what is written is what people would write, and reads back to the same number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import integers

from topology.quantities import (
    FOREVER,
    duration_ms,
    duration_text,
    rate_bytes,
    rate_text,
    retention_ms,
    size_bytes,
    size_text,
)

AMOUNTS = integers(min_value=0, max_value=FOREVER)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (1, "1ms"),
        (1_500, "1500ms"),
        (30_000, "30s"),
        (90_000, "90s"),
        (300_000, "5m"),
        (3_600_000, "1h"),
        (604_800_000, "7d"),
        (1_209_600_000, "14d"),
        (FOREVER, "forever"),
        (FOREVER + 1, "forever"),
    ],
)
def test_durations(ms: int, text: str) -> None:
    assert duration_text(ms) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (512, "512B"),
        (16_000, "16kB"),
        (2**20, "1MiB"),
        (10**6, "1MB"),
        (1_048_588, "1048588B"),
        (3 * 2**29, "1536MiB"),
        (2**40, "1TiB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


def test_rates() -> None:
    assert rate_text(60 * 2**20) == "60MiB/s"


@given(AMOUNTS)
def test_what_is_written_reads_back(amount: int) -> None:
    assert retention_ms(duration_text(amount)) == amount
    assert size_bytes(size_text(amount)) == amount
    assert rate_bytes(rate_text(amount)) == amount


@given(integers(min_value=0, max_value=FOREVER - 1))
def test_a_duration_that_ends_reads_back_as_a_duration(ms: int) -> None:
    assert duration_ms(duration_text(ms)) == ms
