"""A worker copies nothing of a flow whose clusters cannot give what it was promised, and says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusters.capabilities import BrokerAnswers
from clusters.errors import Unreachable
from clusters.flow_records import FlowRecord
from clusters.settings import ConnectionSettings
from clusters.wire.versions import Api, ApiVersions
from replicator.apply_refusals import CannotApply, require_guarantee
from replicator.worker import guarantee_check
from replicator.worker.guarantee_check import GuaranteeCheck
from topology.plan import PlanFlow
from topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("glob", "t*"),)))
RECORD = FlowRecord(FLOW, "sha256:0", "shop")
IN_TRANSACTIONS = replace(RECORD, flow=replace(FLOW, delivery="transactions"))
EVERYTHING = {int(api): (0, 30) for api in Api}


class Brokers:
    """alias → what its one broker takes; counts how often each was asked."""

    def __init__(self) -> None:
        self.ranges = {"a": dict(EVERYTHING), "b": dict(EVERYTHING)}
        self.asked: list[str] = []

    def ask(self, settings: ConnectionSettings) -> BrokerAnswers:
        self.asked.append(settings.alias)
        if settings.alias not in self.ranges:
            raise Unreachable.at(settings.alias, ("k:1",), "it is down")
        versions = ApiVersions(settings.alias, "k:1", self.ranges[settings.alias])
        return BrokerAnswers(settings.alias, "id", 1, 1, (versions,))


def settings_of(alias: str) -> ConnectionSettings:
    return ConnectionSettings(alias=alias, bootstrap=("k:1",))


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def check(brokers: Brokers) -> GuaranteeCheck:
    return GuaranteeCheck(settings_of("b"), settings_of, brokers.ask)


def test_clusters_are_asked_once_for_all_flows(brokers, check):
    assert [check.find_hold(each) for each in (RECORD, IN_TRANSACTIONS, RECORD)] == [None] * 3
    assert brokers.asked == ["a", "b"]


def test_only_flows_that_need_what_is_missing_wait(brokers, check):
    del brokers.ranges["b"][Api.END_TXN]
    assert check.find_hold(RECORD) is None
    hold = check.find_hold(IN_TRANSACTIONS)
    assert hold is not None
    assert hold.state == "unsupported"
    assert "flow a-to-b cannot have `exactly_once: transactions`: the target needs end_txn" in hold.error
    assert "Upgrade b to Kafka 2.8 or newer" in hold.remedy


def test_a_source_counts_too(brokers, check):
    brokers.ranges["a"][Api.FETCH] = (0, 3)
    hold = check.find_hold(RECORD)
    assert hold is not None
    assert "the source needs fetch" in hold.error


def test_an_upgrade_is_seen(brokers, check, monkeypatch):
    del brokers.ranges["b"][Api.DESCRIBE_PRODUCERS]
    now = 1_000.0
    monkeypatch.setattr(guarantee_check.time, "monotonic", lambda: now)
    assert check.find_hold(RECORD) is not None
    brokers.ranges["b"] = EVERYTHING
    now += 29
    assert check.find_hold(RECORD) is not None
    now += 2
    assert check.find_hold(RECORD) is None
    assert brokers.asked == ["a", "b", "b"]


def test_what_is_known_of_a_cluster_outlasts_an_outage(brokers, check, monkeypatch):
    now = 1_000.0
    monkeypatch.setattr(guarantee_check.time, "monotonic", lambda: now)
    assert check.find_hold(RECORD) is None
    ranges = brokers.ranges.pop("a")
    now += 301
    assert check.find_hold(RECORD) is None
    assert brokers.asked == ["a", "b", "a", "b"]
    brokers.ranges["a"] = ranges | {int(Api.FETCH): (0, 3)}
    now += 301
    assert check.find_hold(RECORD) is not None


def test_a_cluster_that_does_not_answer_is_no_refusal(brokers, check):
    del brokers.ranges["a"]
    with pytest.raises(Unreachable):
        check.find_hold(RECORD)


def test_apply_refuses_what_the_flow_needs_and_no_more(brokers):
    def answers(alias: str) -> BrokerAnswers:
        return brokers.ask(settings_of(alias))

    require_guarantee(IN_TRANSACTIONS.flow, answers("a"), answers("b"))
    del brokers.ranges["b"][Api.ADD_PARTITIONS_TO_TXN]
    require_guarantee(FLOW, answers("a"), answers("b"))
    with pytest.raises(CannotApply, match=r"`exactly_once: transactions`: the target needs add_partitions_to_txn"):
        require_guarantee(IN_TRANSACTIONS.flow, answers("a"), answers("b"))
