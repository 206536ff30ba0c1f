"""What files of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.replicator.faults import AUTHORIZER, Faulty, faulty_clusters


@pytest.fixture(scope="session")
def faulty_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    """`onprem` and `cloud` with one broker each, which the tests kill, slow down and take rights from. One process has
    all files that use it (`tests/process_groups.py`); a test leaves it as it was."""
    with faulty_clusters(tmp_path_factory.mktemp("faulty"), {"onprem": 1, "cloud": 1}, AUTHORIZER) as clusters:
        yield clusters


@pytest.fixture
def faulty(faulty_pair: Faulty) -> Iterator[Faulty]:
    yield faulty_pair
    for each in faulty_pair.proxies.values():
        each.heal()
