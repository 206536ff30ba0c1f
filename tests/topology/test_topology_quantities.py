"""Amounts as text: what is written is what people would write, and reads back to the same number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import integers

from watershed.topology.quantities import (
    FOREVER_MS,
    parse_duration,
    parse_rate,
    parse_retention,
    parse_size,
    render_duration,
    render_rate,
    render_size,
)

AMOUNTS = integers(min_value=0, max_value=FOREVER_MS)


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
        (FOREVER_MS, "forever"),
        (FOREVER_MS + 1, "forever"),
    ],
)
def test_durations(ms: int, text: str) -> None:
    assert render_duration(ms) == text


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
    assert render_size(size) == text


def test_rates() -> None:
    assert render_rate(60 * 2**20) == "60MiB/s"


@given(AMOUNTS)
def test_what_is_written_reads_back(amount: int) -> None:
    assert parse_retention(render_duration(amount)) == amount
    assert parse_size(render_size(amount)) == amount
    assert parse_rate(render_rate(amount)) == amount


@given(integers(min_value=0, max_value=FOREVER_MS - 1))
def test_a_duration_that_ends_reads_back_as_a_duration(ms: int) -> None:
    assert parse_duration(render_duration(ms)) == ms
