"""The bar of a partition that is being filled."""

from __future__ import annotations

import pytest

from watershed.cli.alignment_progress import render_alignment_progress


@pytest.mark.parametrize(
    ("at", "text"),
    [
        ((0, 5_000_000, 0.0, None), "[--------------------]   0%, 0 of 5,000,000 offsets"),
        (
            (1_250_000, 5_000_000, 9e5, 4.2),
            "[#####---------------]  25%, 1,250,000 of 5,000,000 offsets, about 4 s left",
        ),
        ((0, 3e9, 1e6, 3_000.0), "[--------------------]   0%, 0 of 3,000,000,000 offsets, about 50 min left"),
        ((7, 7, 1.0, 0.0), "[####################] 100%, 7 of 7 offsets, about 0 s left"),
    ],
)
def test_the_bar(at: tuple[float, float, float, float | None], text: str) -> None:
    assert render_alignment_progress(dict(zip(("done", "of", "rate", "seconds_left"), at, strict=True))) == text
