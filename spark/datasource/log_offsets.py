"""What a cluster says about topics and the ends of their logs, asked over raw connections (one a broker)."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from watershed.clusters.errors import ClusterError, RequestRefused, TopicMissing, Unauthorised, Unreachable
from watershed.clusters.settings import ConnectionSettings, build_wrong_cluster_error
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.broker_pool import BrokerPool
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.messages import READ_COMMITTED, READ_UNCOMMITTED, ClusterMetadata
from watershed.spark.datasource.options import IsolationOption
from watershed.topology.selectors import TopicSelection

_PATIENCE_S = 30.0  # for a leader that moves, or a broker that restarts
_PAUSE_S = 0.2

Result = TypeVar("Result")


class LogIdentity(NamedTuple):
    """One partition, by names that stay what they are when a topic is made anew."""

    topic: str
    topic_id: uuid.UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class _Again(Exception):
    """The answer may be another one in a moment."""


@dataclass(slots=True)
class LogOffsetReader:
    """`close` it when done. Every method waits out what passes by itself, and raises ClusterError for the rest."""

    settings: ConnectionSettings
    patience_s: float = _PATIENCE_S
    _pool: BrokerPool[Connection] = field(init=False)
    _metadata: ClusterMetadata | None = None

    def __post_init__(self) -> None:
        self._pool = BrokerPool(partial(open_connection, self.settings))

    def __enter__(self) -> LogOffsetReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; the next question opens them again."""
        self._pool.close()
        self._metadata = None

    def selected(self, topics: TopicSelection) -> list[LogIdentity]:
        """The partitions of all topics that are selected, sorted. A topic that is named and not there: TopicMissing."""
        return self._patiently(lambda: self._selected(topics))

    def offsets(
        self, logs: Iterable[LogIdentity], timestamp: int, isolation: IsolationOption
    ) -> dict[LogIdentity, int]:
        """Offset for a timestamp in ms (-2 earliest, -1 latest of this isolation); -1: there is no such record."""
        wanted = list(logs)
        level = READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED
        return self._patiently(lambda: self._offsets(wanted, timestamp, level)) if wanted else {}

    def leader(self, topic: str, partition: int) -> tuple[str, int]:
        """(host, port) of the broker that leads a partition."""

        def asked() -> tuple[str, int]:
            leaders = self._leaders({topic})
            if (topic, partition) not in leaders:
                raise _Again(f"{topic}-{partition} has no leader just now")
            return leaders[topic, partition]

        return self._patiently(asked)

    def _patiently(self, ask: Callable[[], Result]) -> Result:
        deadline = time.monotonic() + self.patience_s
        while True:
            try:
                return ask()
            except (_Again, Unreachable) as error:
                self.close()
                if time.monotonic() > deadline:
                    raise self.settings.unreachable(str(error)) if isinstance(error, _Again) else error from None
                time.sleep(_PAUSE_S)

    def _selected(self, topics: TopicSelection) -> list[LogIdentity]:
        named = tuple(selector.text for selector in topics.include if selector.kind == "literal")
        only_names = len(named) == len(topics.include)
        answer = self._asked(named if only_names else None)
        for topic in answer.topics:
            if topic.error and (only_names or topics.selects(topic.name)):
                self._refuse(topic.error, topic.name)
        found = {topic.name: topic for topic in answer.topics if not topic.error and topics.selects(topic.name)}
        if missing := sorted(set(named) - set(found)):
            self._refuse(error_codes.UNKNOWN_TOPIC_OR_PARTITION, ", ".join(missing))
        return sorted(
            LogIdentity(name, topic.topic_id, each.partition)
            for name, topic in found.items()
            for each in topic.partitions
        )

    def _asked(self, topics: tuple[str, ...] | None) -> ClusterMetadata:
        answer = self._pool.get_any().metadata(topics)
        if self.settings.cluster_id not in (None, answer.cluster_id):
            raise build_wrong_cluster_error(self.settings, answer.cluster_id)
        self._metadata = answer
        return answer

    def _offsets(self, logs: list[LogIdentity], timestamp: int, level: int) -> dict[LogIdentity, int]:
        by_broker: dict[tuple[str, int], list[LogIdentity]] = defaultdict(list)
        leaders = self._leaders({log.topic for log in logs})
        for log in logs:
            if (log.topic, log.partition) not in leaders:
                raise _Again(f"{log} has no leader just now")
            by_broker[leaders[log.topic, log.partition]].append(log)
        found: dict[LogIdentity, int] = {}
        for address, here in by_broker.items():
            asked = tuple((log.topic, log.partition) for log in here)
            by_name = {(log.topic, log.partition): log for log in here}
            for answer in self._pool.get(address).list_offsets(asked, timestamp, isolation=level):
                if answer.error:
                    self._refuse(answer.error, answer.topic)
                found[by_name[answer.topic, answer.partition]] = answer.offset
        if len(found) < len(logs):
            raise _Again("the end of a log was not told")
        return found

    def _leaders(self, topics: set[str]) -> dict[tuple[str, int], tuple[str, int]]:
        known = self._metadata
        if known is None or topics - {topic.name for topic in known.topics}:
            known = self._asked(tuple(sorted(topics)))
        return {
            (topic.name, each.partition): known.brokers[each.node]
            for topic in known.topics
            for each in topic.partitions
            if each.node in known.brokers
        }

    def _refuse(self, error: int, topic: str) -> None:
        alias = self.settings.alias
        if error == error_codes.UNKNOWN_TOPIC_OR_PARTITION:
            raise TopicMissing(
                f"cluster {alias} has no topic {topic} (or does not show it to us: that takes DESCRIBE)",
                alias=alias,
                topic=topic,
            )
        if error in error_codes.REINSPECT_CODES or error == error_codes.OFFSET_NOT_AVAILABLE:
            raise _Again(f"topic {topic} answers {error_codes.describe_error_code(error)}")
        if error == error_codes.TOPIC_AUTHORIZATION_FAILED:
            raise Unauthorised(
                f"cluster {alias} does not let us read topic {topic} ({error_codes.describe_error_code(error)}); "
                f"READ and DESCRIBE on it "
                "are needed",
                alias=alias,
                topic=topic,
            )
        refused: ClusterError = RequestRefused(
            f"topic {topic} on cluster {alias}: {error_codes.describe_error_code(error)}", alias=alias
        )
        raise refused
