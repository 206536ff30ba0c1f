"""Fixtures of the cluster tests: the cluster in memory, a real one, and both in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clusters.sites import FakeSite, RealSite, Site
from watershed.clusters.settings import ConnectionSettings
from watershed.lab.secured_cluster import PASSWORD, USER, SecuredCluster, create_scram_user, run_secured_cluster


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


@pytest.fixture(scope="package")
def secured_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    """One broker with a listener for every way to connect; the user `ann` has the same password everywhere."""
    with run_secured_cluster(tmp_path_factory.mktemp("secured")) as found:
        create_scram_user(found, USER, PASSWORD)
        yield found
