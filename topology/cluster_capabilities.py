"""What a cluster can be asked and what it was seen to do: plain data, from ApiVersions and from `topology probe`.

`clusters.capabilities` asks for it; an inventory holds it for each cluster. A release is only an estimate, since
vendors' brokers have none of Apache's: what decides is which requests all brokers take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

# What `topology probe` tries; the names are those of its record.
SEQUENCE_CHECK: Final = "sequence_check"
IDEMPOTENCE: Final = "idempotence"
TRANSACTIONS: Final = "transactions"
MARKERS: Final = "markers"
DELETE_RECORDS: Final = "delete_records"
DESCRIBE_PRODUCERS: Final = "describe_producers"
TIMESTAMPS: Final = "timestamps"
COMPACTION: Final = "compaction"
LARGEST_BATCH: Final = "largest_batch"
BYTE_FOR_BYTE: Final = "byte_for_byte"
LOG_ENDS: Final = "log_ends"
CHECKSUMS: Final = "checksums"


@dataclass(frozen=True, slots=True)
class RequestVersions:
    """The versions of one request that every broker takes that answered."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        return f"version {self.lowest}" if self.lowest == self.highest else f"versions {self.lowest} to {self.highest}"


@dataclass(frozen=True, slots=True)
class TriedCapability:
    """What `topology probe` saw. works: None where the cluster did not let it be tried; told: what was seen, in words;
    number: the size in bytes where there is one (`largest_batch`)."""

    works: bool | None
    told: str
    number: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterCapabilities:
    """One cluster's capabilities at `taken_ms` (ms since 1970).

    brokers: how many the cluster has; answered: how many of them told their versions. requests: name as in Kafka's
    protocol (`init_producer_id`) → versions that all of these take; a request that one of them lacks is not there.
    features: name → the lowest finalized level (empty with ZooKeeper). topic_ids: whether topics have ids; None where
    the cluster showed no topic. oldest_release, newest_release: Kafka releases as the versions show them, None below
    0.11. tried: what `topology probe` tried, by the names above; empty without a probe.
    """

    alias: str
    cluster_id: str
    taken_ms: int
    brokers: int
    answered: int
    requests: Mapping[str, RequestVersions] = field(default_factory=lambda: MappingProxyType({}))
    features: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    topic_ids: bool | None = None
    oldest_release: str | None = None
    newest_release: str | None = None
    tried: Mapping[str, TriedCapability] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def releases(self) -> str:
        """`Kafka 3.9`, `Kafka 2.8 to 3.9` while the cluster is upgraded, or that it is not known."""
        if self.oldest_release is None:
            return "a Kafka release that is not known"
        if self.newest_release in (None, self.oldest_release):
            return f"Kafka {self.oldest_release}"
        return f"Kafka {self.oldest_release} to {self.newest_release}"

    def has_failed(self, name: str) -> bool:
        """Whether a probe tried this and saw that it does not work."""
        tried = self.tried.get(name)
        return tried is not None and tried.works is False
