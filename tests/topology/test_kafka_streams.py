"""Which topics a Kafka Streams application has made for itself, by their names."""

from __future__ import annotations

import pytest

from watershed.topology.kafka_streams import find_streams_topics, is_repartition_topic

TOPICS = ("shop", "shop-eu-total-changelog", "shop-joins-repartition", "shop-notes", "other-total-changelog")


@pytest.mark.parametrize(
    ("application", "others", "found"),
    [
        ("shop", (), ("shop-eu-total-changelog", "shop-joins-repartition")),
        ("shop", ("shop-eu", "other"), ("shop-joins-repartition",)),
        ("shop-eu", ("shop",), ("shop-eu-total-changelog",)),
        ("none", (), ()),
    ],
)
def test_whose_a_topic_is(application: str, others: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert find_streams_topics(application, TOPICS, others) == found


def test_repartition_topics_are_those_that_records_pass() -> None:
    assert is_repartition_topic("shop-joins-repartition")
    assert is_repartition_topic("shop-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic")
    assert not is_repartition_topic("shop-total-changelog")
    assert not is_repartition_topic("orders")
