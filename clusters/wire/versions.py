"""Which requests this client sends, in which versions, and which of them a broker takes.

`SUPPORT` is the one table: request → versions we can encode, and why none newer. `ApiVersions` is what one broker
answered about itself; `pick` takes the newest version that the table, the broker and the caller share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from watershed.clusters.errors import RequestRefused, RequestUnsupported
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.request_codec import RequestExchange

ANY_VERSION: Final = 32_767  # the largest int16: no limit of the caller's


class Api(IntEnum):
    """Requests by their Kafka api key (https://kafka.apache.org/protocol#protocol_api_keys)."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    DESCRIBE_GROUPS = 15
    JOIN_GROUP = 11
    SYNC_GROUP = 14
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    INCREMENTAL_ALTER_CONFIGS = 44
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_DESCRIBE = 69
    SHARE_GROUP_DESCRIBE = 77
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91


class ApiSupport(NamedTuple):
    """The versions of a request that we encode, read and have tested. why: what keeps us from a newer or an older one.

    releases: version → the first Kafka release that surely has it, for the versions without which we cannot go on.
    """

    lowest: int
    highest: int
    why: str = ""
    releases: Mapping[int, str] = {}

    def find_release(self, version: int) -> str | None:
        """A release that has this version or a newer one; None where the table does not tell."""
        return next((release for known, release in sorted(self.releases.items()) if known >= version), None)


# For an older broker: lower `lowest`, teach the codec or the reader of the answer that version, and test it.
SUPPORT: Final[Mapping[Api, ApiSupport]] = {
    Api.PRODUCE: ApiSupport(3, 13, "3 brought record batches (KIP-98)", {3: "0.11", 9: "2.8", 13: "4.1"}),
    Api.FETCH: ApiSupport(4, 13, "4 brought transactions (KIP-98)", {4: "0.11", 12: "2.7", 13: "3.1"}),
    Api.LIST_OFFSETS: ApiSupport(2, 7, "8 and newer are for tiered logs", {2: "0.11", 7: "3.0"}),
    Api.METADATA: ApiSupport(0, 13, "", {4: "0.11", 8: "2.3", 10: "2.8", 12: "3.1"}),
    Api.OFFSET_COMMIT: ApiSupport(2, 8, "9 is for members with an epoch, 10 names topics by id"),
    Api.OFFSET_FETCH: ApiSupport(2, 9, "10 names topics by id"),
    Api.FIND_COORDINATOR: ApiSupport(0, 6, "", {4: "3.0"}),
    Api.DESCRIBE_GROUPS: ApiSupport(0, 6, "", {3: "2.3"}),
    Api.JOIN_GROUP: ApiSupport(0, 9, "sent by tests only: we join groups by librdkafka"),
    Api.SYNC_GROUP: ApiSupport(0, 5, "sent by tests only"),
    Api.LIST_GROUPS: ApiSupport(0, 5),
    Api.SASL_HANDSHAKE: ApiSupport(1, 1, "0 sends tokens without a Kafka frame", {1: "1.0"}),
    Api.API_VERSIONS: ApiSupport(0, 4),
    Api.CREATE_TOPICS: ApiSupport(2, 7, "", {4: "2.4"}),
    Api.DELETE_RECORDS: ApiSupport(0, 2, "", {0: "0.11", 2: "2.8"}),
    Api.INIT_PRODUCER_ID: ApiSupport(
        0, 5, "6 is for two-phase commits of others (KIP-939)", {0: "0.11", 2: "2.4", 3: "2.5", 5: "3.8"}
    ),
    Api.OFFSET_FOR_LEADER_EPOCH: ApiSupport(2, 4, "older ones do not say which epoch they speak of", {2: "2.1"}),
    Api.ADD_PARTITIONS_TO_TXN: ApiSupport(0, 3, "4 and 5 are between brokers", {0: "0.11", 3: "2.8"}),
    Api.ADD_OFFSETS_TO_TXN: ApiSupport(0, 4, "", {0: "0.11", 3: "2.8"}),
    Api.END_TXN: ApiSupport(0, 5, "5 bumps the epoch (KIP-890)", {0: "0.11", 3: "2.8", 5: "4.0"}),
    Api.WRITE_TXN_MARKERS: ApiSupport(
        1, 1, "2 says which transactions are of version 2, which a bare marker is not", {1: "2.8"}
    ),
    Api.TXN_OFFSET_COMMIT: ApiSupport(
        0, 4, "5 makes the group part of the transaction itself (KIP-890)", {0: "0.11", 3: "2.5"}
    ),
    Api.DESCRIBE_ACLS: ApiSupport(0, 3, "", {0: "0.11", 1: "2.0"}),
    Api.CREATE_ACLS: ApiSupport(0, 3, "", {0: "0.11", 1: "2.0"}),
    Api.DELETE_ACLS: ApiSupport(0, 3, "", {0: "0.11", 1: "2.0"}),
    Api.DESCRIBE_CONFIGS: ApiSupport(0, 4, "", {0: "0.11", 1: "1.1"}),
    Api.DESCRIBE_LOG_DIRS: ApiSupport(0, 5, "", {0: "1.0"}),
    Api.SASL_AUTHENTICATE: ApiSupport(0, 2, "", {0: "1.0"}),
    Api.INCREMENTAL_ALTER_CONFIGS: ApiSupport(0, 1, "", {0: "2.3"}),
    Api.DESCRIBE_CLIENT_QUOTAS: ApiSupport(0, 1, "", {0: "2.6"}),
    Api.ALTER_CLIENT_QUOTAS: ApiSupport(0, 1, "", {0: "2.6"}),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: ApiSupport(0, 0, "", {0: "2.7"}),
    Api.ALTER_USER_SCRAM_CREDENTIALS: ApiSupport(0, 0, "", {0: "2.7"}),
    Api.UPDATE_FEATURES: ApiSupport(0, 2, "sent by tests only"),
    Api.DESCRIBE_CLUSTER: ApiSupport(0, 1, "2 lists fenced brokers, too", {0: "2.8"}),
    Api.DESCRIBE_PRODUCERS: ApiSupport(0, 0, "", {0: "2.8"}),
    Api.DESCRIBE_TRANSACTIONS: ApiSupport(0, 0, "", {0: "3.0"}),
    Api.LIST_TRANSACTIONS: ApiSupport(0, 0, "1 and 2 bring filters that we do not need", {0: "3.0"}),
    Api.CONSUMER_GROUP_DESCRIBE: ApiSupport(0, 1),
    Api.SHARE_GROUP_DESCRIBE: ApiSupport(1, 1),
    Api.STREAMS_GROUP_HEARTBEAT: ApiSupport(0, 0, "sent by tests only"),
    Api.STREAMS_GROUP_DESCRIBE: ApiSupport(0, 0),
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: ApiSupport(0, 1, "", {0: "4.1"}),
    Api.ALTER_SHARE_GROUP_OFFSETS: ApiSupport(0, 0, "", {0: "4.1"}),
}

NEWEST_API_VERSIONS: Final = SUPPORT[Api.API_VERSIONS].highest
_FIRST_WITH_FEATURES: Final = 3  # of ApiVersions (KIP-584)


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """What one broker says of itself. ranges: api key → (lowest, highest version). supported: feature → the highest
    level of its software; finalized: feature → the level that its cluster uses now (both empty with ZooKeeper)."""

    alias: str
    address: str
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    supported: Mapping[str, int] = field(default_factory=dict)
    finalized: Mapping[str, int] = field(default_factory=dict)

    def pick(self, api: Api, lowest: int = 0, highest: int = ANY_VERSION) -> int:
        """Returns the newest version that the table, the broker and the caller share.

        Raises RequestUnsupported, which names broker, request and versions, when there is none.
        """
        ours, (low, high) = SUPPORT[api], self.ranges.get(api, (0, -1))
        oldest, newest = max(ours.lowest, lowest), min(ours.highest, highest)
        if max(oldest, low) > min(newest, high):
            theirs = f"it takes {_span(low, high)}" if low <= high else "it does not know the request"
            age, release = ("new", None) if low > newest else ("old", ours.find_release(oldest))
            has = f"; Kafka {release} and newer have it" if release else ""
            unsupported = RequestUnsupported(
                f"{self.address} of cluster {self.alias} is too {age} to be asked {api.name.lower()} in "
                f"{_span(oldest, newest)}: {theirs}{has}",
                alias=self.alias,
            )
            unsupported.release = release
            raise unsupported
        return min(newest, high)

    def has_version(self, api: Api, version: int) -> bool:
        """Whether the broker takes this version of the request."""
        low, high = self.ranges.get(api, (0, -1))
        return low <= version <= high

    @property
    def transaction_version(self) -> int:
        """The finalized level of `transaction.version`; 0 where brokers do not know the feature (before Kafka 4)."""
        return self.finalized.get("transaction.version", 0)


def read_api_versions(
    exchange: RequestExchange, alias: str, address: str, first: int = NEWEST_API_VERSIONS
) -> ApiVersions:
    """Asks a broker for its versions, in version `first` of the question; an older broker answers which it knows
    (KIP-511), and one that answers features in a newer version is asked again in the newest that both know.

    Raises RequestRefused, ProtocolError, Unreachable.
    """
    values = {"client_software_name": "watershed", "client_software_version": "1"}
    answer = exchange.ask("api_versions", first, values)
    known = max((int(each.max_version) for each in answer.api_keys if int(each.api_key) == Api.API_VERSIONS), default=0)
    if int(answer.error_code) == error_codes.UNSUPPORTED_VERSION or first < _FIRST_WITH_FEATURES <= known:
        answer = exchange.ask("api_versions", min(known, NEWEST_API_VERSIONS), values)
    code = int(answer.error_code)
    if code:
        refused = RequestRefused(
            f"{address} of cluster {alias} answered {error_codes.describe_error_code(code)} when asked for its API "
            "versions",
            alias=alias,
        )
        refused.code = code
        raise refused
    supported, finalized = getattr(answer, "supported_features", ()), getattr(answer, "finalized_features", ())
    return ApiVersions(
        alias,
        address,
        {int(each.api_key): (int(each.min_version), int(each.max_version)) for each in answer.api_keys},
        {str(each.name): int(each.max_version) for each in supported},
        {str(each.name): int(each.max_version_level) for each in finalized},
    )


def _span(low: int, high: int) -> str:
    return f"version {low}" if low == high else f"versions {low} to {high}"
