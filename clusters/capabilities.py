"""Asks every broker of a cluster for its versions (ApiVersions), and says what the cluster as a whole can be asked.

While a cluster is upgraded its brokers differ, and any of them may lead a partition: what counts is what all of them
take. A broker that is down is left out; whoever connects to it later is refused in the same words.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from watershed.clusters.errors import Unreachable
from watershed.clusters.kafka_release import detect_release, parse_release
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.topic_names import is_stand_in_id
from watershed.clusters.wire.versions import Api, ApiVersions
from watershed.topology.cluster_capabilities import ClusterCapabilities, RequestVersions
from watershed.topology.delivery_guarantee import ClusterEnd, Delivery, list_request_needs

_AT_ONCE: Final = 8  # brokers that are asked at once
_ANSWER_S: Final = 10.0  # one that hangs must not hold up what waits for the others


@dataclass(frozen=True, slots=True)
class BrokerAnswers:
    """What the brokers of one cluster said of themselves at `taken_ms`. brokers: how many there are. without_id: a
    topic that has no id, None where there is none; has_topics: whether the cluster showed any."""

    alias: str
    cluster_id: str
    taken_ms: int
    brokers: int
    answers: tuple[ApiVersions, ...]
    without_id: str | None = None
    has_topics: bool = False


def read_capabilities(settings: ConnectionSettings) -> ClusterCapabilities:
    """What this cluster can be asked. Raises as `ask_brokers`."""
    return combine_answers(ask_brokers(settings))


def ask_brokers(settings: ConnectionSettings) -> BrokerAnswers:
    """Asks all brokers, and waits 10 s at most for each.

    Raises Unreachable where none answers, Unauthorised, WrongCluster, and RequestRefused below Kafka 0.11.
    """
    with closing(open_connection(settings)) as connection:
        others = sorted(connection.brokers().values())
        answers = {connection.address: connection.versions}
        cluster_id, without_id, has_topics = read_topic_ids(connection)
    missing = [address for address in others if address not in answers]
    if missing:
        with ThreadPoolExecutor(min(_AT_ONCE, len(missing))) as pool:
            told = pool.map(lambda address: _ask_broker(settings, address), missing)
            answers |= {address: versions for address, versions in zip(missing, told, strict=True) if versions}
    found = tuple(answers[address] for address in others if address in answers) or tuple(answers.values())
    return BrokerAnswers(
        settings.alias, cluster_id, int(time.time() * 1000), len(others), found, without_id, has_topics
    )


def _ask_broker(settings: ConnectionSettings, address: tuple[str, int]) -> ApiVersions | None:
    """None where it does not answer."""
    try:
        with closing(open_connection(settings, address, timeout_s=_ANSWER_S)) as connection:
            return connection.versions
    except Unreachable:
        return None


def read_topic_ids(connection: Connection) -> tuple[str, str | None, bool]:
    """The cluster's id, a topic without an id, and whether there are topics. Brokers of any release give no ids while
    they speak an older protocol among themselves."""
    metadata = connection.metadata()
    without = next((topic.name for topic in metadata.topics if is_stand_in_id(topic.topic_id)), None)
    return metadata.cluster_id, without, bool(metadata.topics)


def combine_answers(found: BrokerAnswers) -> ClusterCapabilities:
    """What all brokers that answered have in common."""
    releases = sorted(
        {name for each in found.answers if (name := detect_release(each.ranges, each.supported))}, key=parse_release
    )
    features = {name for each in found.answers for name in each.finalized}
    return ClusterCapabilities(
        alias=found.alias,
        cluster_id=found.cluster_id,
        taken_ms=found.taken_ms,
        brokers=found.brokers,
        answered=len(found.answers),
        requests={
            api.name.lower(): shared for api in Api if (shared := _find_shared_versions(api, found.answers)) is not None
        },
        features={
            name: min(each.finalized[name] for each in found.answers if name in each.finalized)
            for name in sorted(features)
        },
        topic_ids=found.without_id is None if found.has_topics else None,
        oldest_release=releases[0] if releases else None,
        newest_release=releases[-1] if releases else None,
    )


def check_requests(
    found: BrokerAnswers, end: ClusterEnd, delivery: Delivery = "sequence", *, allows_repeats: bool = False
) -> None:
    """Raises RequestRefused for the first request that a broker does not take: it names the broker, the versions, and
    the release that has them. allows_repeats: some flow has `at_least_once, proven`, which needs less of its target."""
    for each in found.answers:
        for need in list_request_needs(end, delivery, allows_repeats=allows_repeats):
            each.pick(Api[need.request.upper()], need.lowest)


def _find_shared_versions(api: Api, answers: Iterable[ApiVersions]) -> RequestVersions | None:
    ranges = [each.ranges.get(api) for each in answers]
    known = [each for each in ranges if each is not None]
    if not known or len(known) < len(ranges):
        return None
    lowest, highest = max(low for low, _ in known), min(high for _, high in known)
    return RequestVersions(lowest, highest) if lowest <= highest else None
