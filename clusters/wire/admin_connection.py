"""Administrative requests to brokers of any age: the version of each is the newest that both sides know.

The data plane (`clusters.wire.connection`) speaks fixed versions, because it must know what they do to a log. A scan
looks at whatever cluster is there, and what it asks has meant the same since its first version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kio.schema.index import api_key_map, schema_name_map

from clusters.admin import build_wrong_cluster_error
from clusters.errors import ClusterError, ProtocolError, RequestRefused, Unauthorised, Unreachable
from clusters.settings import ConnectionSettings
from clusters.wire import error_codes
from clusters.wire.request_codec import RequestExchange
from clusters.wire.secured_transport import open_transport

_METADATA, _API_VERSIONS = 3, 18
_UNSUPPORTED = 35  # the answer to an ApiVersions newer than the broker, in version 0, with the versions it knows
_REFUSALS = frozenset({error_codes.TOPIC_AUTHORIZATION_FAILED, error_codes.CLUSTER_AUTHORIZATION_FAILED, 30})


def open_admin_connection(settings: ConnectionSettings, *, timeout_s: float = 15.0) -> AdminConnection:
    """To the first bootstrap address that answers. Raises what `AdminConnection` raises, and WrongCluster where
    settings pin
    another cluster."""
    last: ClusterError = settings.unreachable("no bootstrap address is given")
    for host, _, port in (each.rpartition(":") for each in settings.bootstrap):
        try:
            found = AdminConnection(settings, (host.strip("[]"), int(port)), timeout_s=timeout_s)
            try:
                actual = found.cluster_id() if settings.cluster_id is not None else None
                if actual != settings.cluster_id:
                    raise build_wrong_cluster_error(settings, str(actual))
            except BaseException:
                found.close()
                raise
        except (Unreachable, ProtocolError) as error:
            last = error
            continue
        return found
    raise last


class AdminConnection:
    """A connection to one broker. versions: api key → (lowest, highest) that the broker knows; supported: feature →
    highest level its software can; finalized: feature → level the cluster uses now (empty with ZooKeeper).

    Raises Unreachable when the connection fails, Unauthorised when either side is not who it should be, RequestRefused
    for what this broker is too old for, ProtocolError for an answer that cannot be understood. Not thread-safe.
    """

    def __init__(self, settings: ConnectionSettings, address: tuple[str, int], *, timeout_s: float = 15.0) -> None:
        self.alias = settings.alias
        self._frames = open_transport(settings, address, timeout_s=timeout_s)
        self._exchange = RequestExchange(self._frames, self.alias)
        self.versions: dict[int, tuple[int, int]] = {}
        try:
            answer = self._handshake()
        except BaseException:
            self.close()
            raise
        self.versions = {int(each.api_key): (int(each.min_version), int(each.max_version)) for each in answer.api_keys}
        supported, finalized = getattr(answer, "supported_features", ()), getattr(answer, "finalized_features", ())
        self.supported: Mapping[str, int] = {each.name: int(each.max_version) for each in supported}
        self.finalized: Mapping[str, int] = {each.name: int(each.max_version_level) for each in finalized}

    def __enter__(self) -> AdminConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._frames.close()

    def knows(self, api_key: int, version: int) -> bool:
        """Whether the broker can be asked in this version."""
        low, high = self.versions.get(api_key, (0, -1))
        return low <= version <= high

    def ask(self, api_key: int, *, lowest: int = 0, highest: int = 1 << 15, **values: Any) -> Any:
        """The answer, in the newest version between `lowest` and `highest`; values that a version has no field for
        are left out."""
        name = api_key_map[api_key]
        low, high = self.versions.get(api_key, (0, -1))
        ours = [each for each in schema_name_map[name] if max(low, lowest) <= each <= min(high, highest)]
        if not ours:
            raise RequestRefused(
                f"{self._frames.address} of cluster {self.alias} is too old (or too new) to be asked {name}",
                alias=self.alias,
            )
        return self._exchange.ask(name, max(ours), values)

    def topics(self) -> list[str]:
        """The names of all topics that are shown to us, sorted; none is created by asking."""
        return sorted(str(topic.name) for topic in self._metadata(None).topics)

    def cluster_id(self) -> str:
        return str(self._metadata(()).cluster_id)

    def brokers(self) -> dict[int, tuple[str, int]]:
        """Broker id → address, of those that live."""
        return {int(each.node_id): (str(each.host), int(each.port)) for each in self._metadata(()).brokers}

    def _metadata(self, topics: tuple[()] | None) -> Any:
        return self.ask(
            _METADATA,
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

    def _handshake(self) -> Any:
        values = {"client_software_name": "watershed", "client_software_version": "1"}
        newest = max(schema_name_map["api_versions"])
        answer = self._exchange.ask("api_versions", newest, values)
        if int(answer.error_code) == _UNSUPPORTED:
            known = [int(each.max_version) for each in answer.api_keys if int(each.api_key) == _API_VERSIONS]
            answer = self._exchange.ask("api_versions", min(max(known, default=0), newest), values)
        self.check(int(answer.error_code), "being asked for its API versions")
        return answer
