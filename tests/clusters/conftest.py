"""Fixtures of the cluster tests: the cluster in memory, a real one, and both in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusters.settings import ConnectionSettings
from tests.clusters.sites import FakeSite, RealSite, Site


@pytest.fixture(scope="session")
def onprem(request: pytest.FixtureRequest) -> ConnectionSettings:
    """A real single-broker cluster, shared with all other tests."""
    pair = request.getfixturevalue("kafka_pair")
    return ConnectionSettings("onprem", tuple(pair.clusters["onprem"].bootstrap.split(",")))


@pytest.fixture(scope="session")
def real_site(onprem: ConnectionSettings) -> RealSite:
    return RealSite(onprem)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    place = FakeSite() if request.param == "fake" else request.getfixturevalue("real_site")
    yield place
    place.end()
