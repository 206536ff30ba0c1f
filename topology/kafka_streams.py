"""The topics that an application of Kafka Streams makes for itself, under its application id, which is its group id."""

from __future__ import annotations

import re
from collections.abc import Iterable

# apache/kafka StreamsResetter.java, matchesInternalTopicFormat; KIP-213 for foreign-key joins
_INTERNAL = re.compile(
    r".+-(changelog|repartition|subscription-(registration|response)-topic"
    r"|KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-[0-9]+-topic)"
)


def is_streams_internal_topic(topic: str) -> bool:
    """Whether a Streams application made this topic for itself, by its name."""
    return _INTERNAL.fullmatch(topic) is not None


def is_changelog_topic(topic: str) -> bool:
    """What a state store is restored from; nobody commits positions in it. The other internal topics hold records on
    their way through the application."""
    return topic.endswith("-changelog")


def find_streams_topics(application: str, topics: Iterable[str]) -> tuple[str, ...]:
    """Those that may be of the application with that id, sorted: names do not tell `shop-eu-total-changelog` of the
    application `shop` from that of `shop-eu`."""
    begin = f"{application}-"
    return tuple(
        sorted(
            each for each in topics if each.startswith(begin) and is_streams_internal_topic(each.removeprefix(begin))
        )
    )
