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


def is_repartition_topic(topic: str) -> bool:
    """Whether records pass an application here on their way from one of its steps to the next. While it runs, it
    deletes those that it has processed, every 30 s by default (`repartition.purge.interval.ms`)."""
    return is_streams_internal_topic(topic) and not is_changelog_topic(topic)


def find_streams_topics(application: str, topics: Iterable[str], others: Iterable[str] = ()) -> tuple[str, ...]:
    """Those that may be of the application with that id, sorted. others: ids of other applications. Names alone do not
    tell `shop-eu-total-changelog` of the application `shop` from that of `shop-eu`; where both ids are known, the topic
    belongs to the longer one."""
    begin = f"{application}-"
    longer = [f"{each}-" for each in others if each.startswith(begin)]
    return tuple(
        sorted(
            each
            for each in topics
            if _is_topic_of(begin, each) and not any(_is_topic_of(other, each) for other in longer)
        )
    )


def _is_topic_of(begin: str, topic: str) -> bool:
    return topic.startswith(begin) and is_streams_internal_topic(topic.removeprefix(begin))
