"""Administrative requests to brokers of any age: the version of each is the newest that both sides know.

The data plane (`clusters.wire.connection`) asks each request in one version, because it must know what that does to a
log. A scan looks at whatever cluster is there, and what it asks has meant the same since its first version.
"""

from __future__ import annotations

from typing import Any

from clusters.admin import build_wrong_cluster_error
from clusters.errors import ProtocolError, RequestRefused, Unauthorised, Unreachable
from clusters.settings import ConnectionSettings
from clusters.wire import error_codes
from clusters.wire.bootstrap import connect_to_any, remember_lost
from clusters.wire.request_codec import RequestExchange
from clusters.wire.secured_transport import open_transport
from clusters.wire.versions import Api

_REFUSALS = frozenset(
    {
        error_codes.TOPIC_AUTHORIZATION_FAILED,
        error_codes.GROUP_AUTHORIZATION_FAILED,
        error_codes.CLUSTER_AUTHORIZATION_FAILED,
    }
)


def open_admin_connection(settings: ConnectionSettings, *, timeout_s: float = 15.0) -> AdminConnection:
    """Connects to the first bootstrap address that answers.

    Raises what `AdminConnection` raises, and WrongCluster where settings pin another cluster.
    """

    def connect(address: tuple[str, int]) -> AdminConnection:
        found = AdminConnection(settings, address, timeout_s=timeout_s)
        try:
            actual = found.cluster_id() if settings.cluster_id is not None else None
            if actual != settings.cluster_id:
                raise build_wrong_cluster_error(settings, str(actual))
        except BaseException:
            found.close()
            raise
        return found

    return connect_to_any(settings, connect)


class AdminConnection:
    """A connection to one broker, whose `versions` are what it answered about itself.

    Raises Unreachable when the connection fails, Unauthorised when either side is not who it should be, RequestRefused
    for what this broker is too old for, ProtocolError for an answer that cannot be understood. Not thread-safe.
    """

    def __init__(self, settings: ConnectionSettings, address: tuple[str, int], *, timeout_s: float = 15.0) -> None:
        self.alias, self.address = settings.alias, address
        try:
            self._frames, self.versions = open_transport(settings, address, timeout_s=timeout_s)
        except (Unreachable, ProtocolError):
            remember_lost(address)
            raise
        self._exchange = RequestExchange(self._frames, self.alias)

    def __enter__(self) -> AdminConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; twice is once."""
        self._frames.close()

    def knows(self, api_key: int, version: int) -> bool:
        """Whether the broker can be asked in this version."""
        return self.versions.has_version(Api(api_key), version)

    def ask(self, api_key: int, *, lowest: int = 0, highest: int = 1 << 15, **values: Any) -> Any:
        """Returns the answer, in the newest version between `lowest` and `highest`; values that a version has no field
        for are left out. Raises RequestRefused for what the broker is too old for."""
        api = Api(api_key)
        return self._exchange.ask(api.name.lower(), self.versions.pick(api, lowest, highest), values)

    def topics(self) -> list[str]:
        """The names of all topics that are shown to us, sorted; none is created by asking."""
        return sorted(str(topic.name) for topic in self._metadata(None).topics)

    def cluster_id(self) -> str:
        """Returns the id that this broker reports. Raises RequestRefused below Kafka 0.11 (Metadata 4)."""
        return str(self._metadata(()).cluster_id)

    def brokers(self) -> dict[int, tuple[str, int]]:
        """Broker id → address, of those that live."""
        return {int(each.node_id): (str(each.host), int(each.port)) for each in self._metadata(()).brokers}

    def _metadata(self, topics: tuple[()] | None) -> Any:
        return self.ask(
            Api.METADATA,
            lowest=4,
            topics=topics,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    def check(self, error_code: int, doing: str) -> None:
        """Raise for an error in an answer: Unauthorised or RequestRefused."""
        if error_code in _REFUSALS:
            raise Unauthorised(
                f"cluster {self.alias} refused {doing} ({error_codes.describe_error_code(error_code)})",
                alias=self.alias,
            )
        if error_code:
            error = RequestRefused(
                f"cluster {self.alias} answered {error_codes.describe_error_code(error_code)} while {doing}",
                alias=self.alias,
            )
            error.code = error_code
            raise error
