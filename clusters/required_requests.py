"""Whether every broker of a cluster takes the requests that a copy needs of it: asked before anything is begun.

A release is not asked for, since vendors' brokers have none of Apache's: each broker says which requests it takes.
While a cluster is upgraded its brokers differ, and any of them may lead a partition, so all are asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import closing
from typing import Final, Literal

from clusters.errors import RequestRefused, Unreachable
from clusters.settings import ConnectionSettings
from clusters.wire.connection import Connection, open_connection
from clusters.wire.metadata_requests import NO_AUTO_CREATION, WITH_TOPIC_IDS
from clusters.wire.topic_names import is_stand_in_id
from clusters.wire.versions import Api, ApiVersions

ClusterEnd = Literal["source", "target"]
_SOURCE: Final[Mapping[Api, int]] = {Api.METADATA: NO_AUTO_CREATION, Api.FETCH: 0, Api.LIST_OFFSETS: 0}
# request → the lowest version that says what we need
_NEEDED: Final[Mapping[ClusterEnd, Mapping[Api, int]]] = {
    "source": _SOURCE,
    "target": {
        **_SOURCE,
        Api.METADATA: WITH_TOPIC_IDS,
        Api.PRODUCE: 0,
        Api.INIT_PRODUCER_ID: 0,
        Api.DESCRIBE_PRODUCERS: 0,
    },
}


def require_requests(settings: ConnectionSettings, end: ClusterEnd) -> None:
    """Raises RequestRefused for the first request that a broker does not take: it names the broker, the versions, and
    the release that has them. Raises Unreachable where no broker answers. One that is down is left out: whoever
    connects to it later is refused in the same words."""
    with closing(open_connection(settings)) as connection:
        addresses = connection.brokers().values()
        _check(connection.versions, end)
        if end == "target":
            _require_topic_ids(connection)
    for address in addresses:
        with contextlib.suppress(Unreachable), closing(open_connection(settings, address)) as connection:
            _check(connection.versions, end)


def _require_topic_ids(connection: Connection) -> None:
    """Brokers of any release give none while they speak an older protocol among themselves."""
    for topic in connection.metadata().topics:
        if is_stand_in_id(topic.topic_id):
            raise RequestRefused(
                f"cluster {connection.alias} gives topic {topic.name} no id, so a topic that is deleted and created "
                "again could not be told apart: set inter.broker.protocol.version to 2.8 or newer there (KIP-516)",
                alias=connection.alias,
                topic=topic.name,
            )


def _check(versions: ApiVersions, end: ClusterEnd) -> None:
    for api, lowest in _NEEDED[end].items():
        versions.pick(api, lowest)
