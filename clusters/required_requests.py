"""Whether every broker of a cluster takes the requests that a copy needs of it: asked before anything is begun.

A release is not asked for, since vendors' brokers have none of Apache's: each broker says which requests it takes.
While a cluster is upgraded its brokers differ, and any of them may lead a partition, so all are asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import closing
from typing import Final, Literal

from clusters.errors import Unreachable
from clusters.settings import ConnectionSettings
from clusters.wire.connection import open_connection
from clusters.wire.metadata_requests import OF_FETCH_BY_ID
from clusters.wire.versions import Api, ApiVersions

ClusterEnd = Literal["source", "target"]
_SOURCE: Final[Mapping[Api, int]] = {Api.METADATA: OF_FETCH_BY_ID, Api.FETCH: 0, Api.LIST_OFFSETS: 0}
# request → the lowest version that says what we need
_NEEDED: Final[Mapping[ClusterEnd, Mapping[Api, int]]] = {
    "source": _SOURCE,
    "target": {**_SOURCE, Api.PRODUCE: 0, Api.INIT_PRODUCER_ID: 0, Api.DESCRIBE_PRODUCERS: 0},
}


def require_requests(settings: ConnectionSettings, end: ClusterEnd) -> None:
    """Raises RequestRefused for the first request that a broker does not take: it names the broker, the versions, and
    the release that has them. Raises Unreachable where no broker answers. One that is down is left out: whoever
    connects to it later is refused in the same words."""
    with closing(open_connection(settings)) as connection:
        addresses = connection.brokers().values()
        _check(connection.versions, end)
        connection.metadata()  # refuses a cluster that gives topics no ids, whatever its brokers' release
    for address in addresses:
        with contextlib.suppress(Unreachable), closing(open_connection(settings, address)) as connection:
            _check(connection.versions, end)


def _check(versions: ApiVersions, end: ClusterEnd) -> None:
    for api, lowest in _NEEDED[end].items():
        versions.pick(api, lowest)
