"""Following the control topics of a real cluster: everything once, then what is new, then a tombstone."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from watershed.clusters.admin import Admin
from watershed.clusters.control_follower import ControlFollower, FollowedRecord
from watershed.clusters.control_topics import STATUS_TOPIC, ControlWriter, ensure_control_topics
from watershed.clusters.errors import Unreachable
from watershed.clusters.partition_status_records import PartitionStatus, delete_partition_status, write_partition_status
from watershed.clusters.settings import ConnectionSettings
from watershed.lab.clusters import Lab

pytestmark = pytest.mark.kafka


def until(following: ControlFollower, wanted: Callable[[FollowedRecord], bool], timeout: float = 180) -> FollowedRecord:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        following.ask(15.0)
        for record in following.read(0.2):
            if wanted(record):
                return record
    raise AssertionError("it did not come")


def test_what_is_there_and_what_comes(kafka_pair: Lab, topic_name: str) -> None:
    settings = ConnectionSettings("onprem", (kafka_pair.cluster("onprem").bootstrap,))
    with Admin(settings) as admin:
        ensure_control_topics(admin)
    told = PartitionStatus(topic_name, "t", "t", 0, "paused")
    with ControlWriter(settings) as writer, ControlFollower(settings) as following:
        assert not following.complete
        write_partition_status(writer, told)
        writer.flush()
        first = until(following, lambda record: record.key == told.key)
        assert (first.topic, b"paused" in (first.payload or b"")) == (STATUS_TOPIC, True)
        while not following.complete:
            following.read(0.2)
        delete_partition_status(writer, told)
        writer.flush()
        assert until(following, lambda record: record.key == told.key).payload is None


def test_a_cluster_that_is_not_there_is_named() -> None:
    with ControlFollower(ConnectionSettings("gone", ("127.0.0.1:9",))) as following:
        with pytest.raises(Unreachable, match="cluster gone does not answer"):
            following.ask(0.5)
        assert not following.complete
