"""What a worker's routes keep of partitions and brokers that are gone: records that were refused, links."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.settings import ConnectionSettings
from replicator.partition import PartitionKey
from replicator.routes import Routes

CLOUD = ConnectionSettings("cloud", ("127.0.0.1:1",))
KEY = PartitionKey("onprem-to-cloud", "orders", "orders", 0)


@pytest.fixture
def routes() -> Routes:
    unused: Any = None  # nothing is written, guarded or discovered here
    return Routes(CLOUD, lambda _alias: CLOUD, unused, unused, 86_400_000, unused, unused)


def test_refused_records_are_forgotten_once_they_are_settled(routes: Routes) -> None:
    routes._refused[KEY] = {offset: "INVALID_RECORD" for offset in range(100)}
    before = routes._refused[KEY]
    assert sorted(routes._still_refused(KEY, 90)) == list(range(90, 100))
    assert sorted(routes._refused[KEY]) == list(range(90, 100))
    assert len(before) == 100  # a fetch lane may be reading it
    assert routes._still_refused(KEY, 100) == {}
    assert KEY not in routes._refused
