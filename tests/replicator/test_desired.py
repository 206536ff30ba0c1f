"""Desired state of others, and of other versions: what cannot be read is told and changes nothing."""

from __future__ import annotations

import json
import logging

import pytest

from clusters.errors import ProtocolError
from clusters.flows import FlowRecord
from clusters.settings import ConnectionSettings
from replicator.desired import DesiredState
from replicator.guards import paths_in
from topology.plan import PlanFlow
from topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "orders"),)))
RECORD = FlowRecord(FLOW, "sha256:0", "shop", producer_id=7)
WRITTEN = json.dumps(RECORD.to_json()).encode()


@pytest.fixture
def desired():
    state = DesiredState(ConnectionSettings("b", ("127.0.0.1:1",)))
    yield state
    state.close()


@pytest.mark.parametrize(
    ("key", "payload"),
    [
        ("a-to-b", b"not json"),
        ("a-to-b", b"\xff\xfe"),
        ("a-to-b", b"[]"),
        ("a-to-b", b'{"schema": 99}'),
        ("a-to-b", b'{"schema": 1, "flow": 5}'),
        ("order|x", b"3"),
        ("fleet/x", b"[1]"),
        ("placement|x", b'"text"'),
        ("producer|5", b"null"),
    ],
)
def test_a_record_that_cannot_be_read_is_told_and_the_last_one_counts(desired, caplog, key, payload):
    desired._take("a-to-b", WRITTEN)
    with caplog.at_level(logging.ERROR, "watershed.worker"):
        desired._take(key, payload)
    assert desired.flows == {"a-to-b": RECORD}
    assert list(desired.unreadable) == [key]
    assert [(each.message, each.key) for each in caplog.records] == [("record unreadable", key)]
    desired._take(key, None)
    assert desired.unreadable == {}


def test_the_loop_guard_does_without_orders_and_placements_only(desired):
    desired._take("order|x", b"3")
    paths_in(desired)
    desired._take("a-to-b", b"not json")
    with pytest.raises(ProtocolError, match=r"loop guard needs every record .* a-to-b"):
        paths_in(desired)
    desired._take("a-to-b", WRITTEN)
    paths_in(desired)
