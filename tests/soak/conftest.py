"""The long runs of `make soak`; `make test` never collects them."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak-minutes", type=float, default=None, help="how long tests/soak runs")
    parser.addoption("--soak-proofs", type=int, default=200, help="how many proofs of live traffic tests/soak makes")


@pytest.fixture
def minutes(request: pytest.FixtureRequest) -> float:
    chosen = request.config.getoption("--soak-minutes")
    if chosen is None:
        pytest.skip("a soak needs --soak-minutes (make soak)")
    return float(chosen)
