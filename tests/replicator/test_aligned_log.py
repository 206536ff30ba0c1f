"""A target log whose brokers have not all heard of its topic, or have heard that it is gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.replicator.aligning import TOPIC, Requests, cluster
from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.errors import TopicMissing
from watershed.clusters.wire import error_codes


def unheard(execute: Callable[[], Any]) -> Any:
    """A broker that does not know the topic: its metadata leave it out."""
    return replace(execute(), topics=())


def unknown(execute: Callable[[], Any]) -> Any:
    """The leader itself does not know the topic's id yet."""
    return [replace(each, error=error_codes.UNKNOWN_TOPIC_ID) for each in execute()]


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watershed.replicator.copy.aligned.target_log._PAUSE_S", 0.0)


@pytest.mark.parametrize(("at", "event"), [(0, unheard), (1, unknown)], ids=["metadata", "leader"])
def test_a_new_topic_is_waited_for_until_every_broker_knows_it(at, event) -> None:
    assert Requests(cluster(), at, event).log().range() == LogRange(0, 0)


def test_a_topic_that_is_gone_or_another_one_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watershed.replicator.copy.aligned.target_log._HEARD_S", 0.05)
    there = cluster()
    log = Requests(there).log()
    there.delete_topic(TOPIC)
    with pytest.raises(TopicMissing, match="any more"):
        log.range()
    there.create_topic(TOPIC, 1)
    with pytest.raises(TopicMissing, match="any more"):
        log.range()
