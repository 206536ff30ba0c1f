"""A worker copies nothing of a flow whose clusters cannot give what it was promised, and says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watershed.clusters.capabilities import BrokerAnswers
from watershed.clusters.errors import (
    ClusterError,
    ProtocolError,
    RequestRefused,
    Unauthorised,
    Unreachable,
    WrongCluster,
)
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.versions import Api, ApiVersions
from watershed.replicator.apply_refusals import CannotApply, combine_with_probes, keep_guarantee, require_guarantee
from watershed.replicator.worker import guarantee_check
from watershed.replicator.worker.guarantee_check import GuaranteeCheck
from watershed.topology.cluster_capabilities import ClusterCapabilities, TriedCapability
from watershed.topology.delivery_guarantee import AT_LEAST_ONCE
from watershed.topology.errors import UnreadableInventory
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("glob", "t*"),)))
RECORD = FlowRecord(FLOW, "sha256:0", "shop")
IN_TRANSACTIONS = replace(RECORD, flow=replace(FLOW, delivery="transactions"))
EVERYTHING = {int(api): (0, 30) for api in Api}
REPEATING = replace(RECORD, flow=replace(FLOW, allows_repeats=True), guarantee=AT_LEAST_ONCE)
EXACT = replace(RECORD, flow=REPEATING.flow, guarantee="exactly_once: sequence")


class Brokers:
    """alias → what its one broker takes; counts how often each was asked."""

    def __init__(self) -> None:
        self.ranges = {"a": dict(EVERYTHING), "b": dict(EVERYTHING)}
        self.asked: list[str] = []
        self.errors: dict[str, ClusterError] = {}

    def ask(self, settings: ConnectionSettings) -> BrokerAnswers:
        self.asked.append(settings.alias)
        if settings.alias in self.errors:
            raise self.errors[settings.alias]
        if settings.alias not in self.ranges:
            raise Unreachable.at(settings.alias, ("k:1",), "it is down")
        versions = ApiVersions(settings.alias, "k:1", self.ranges[settings.alias])
        versions.pick(Api.METADATA, 4)  # as `ask_brokers` does, to learn who else there is
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
    assert hold.remedy.startswith("Upgrade b to Kafka 0.11 or newer")
    assert "Upgrade b" not in hold.error


def test_a_source_counts_too(brokers, check):
    brokers.ranges["a"][Api.FETCH] = (0, 3)
    hold = check.find_hold(RECORD)
    assert hold is not None
    assert "the source needs fetch" in hold.error


def test_an_upgrade_is_seen(brokers, check, monkeypatch):
    brokers.ranges["b"][Api.INIT_PRODUCER_ID] = (0, 1)
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


def test_a_source_below_the_oldest_release_is_unsupported_until_it_is_upgraded(brokers, check, monkeypatch):
    now = 1_000.0
    monkeypatch.setattr(guarantee_check.time, "monotonic", lambda: now)
    brokers.ranges["a"] = {int(Api.METADATA): (0, 2), int(Api.FETCH): (0, 3)}
    hold = check.find_hold(RECORD)
    assert hold is not None
    assert (hold.state, hold.remedy) == (
        "unsupported",
        "Upgrade a to Kafka 0.11 or newer. The workers ask again by themselves",
    )
    assert "flow a-to-b cannot be copied: k:1 of cluster a is too old to be asked metadata" in hold.error
    assert "Upgrade" not in hold.error
    now += 29
    assert check.find_hold(RECORD) == hold
    brokers.ranges["a"] = EVERYTHING
    now += 2
    assert check.find_hold(RECORD) is None
    assert brokers.asked == ["a", "b", "a"]


@pytest.mark.parametrize("error", [Unauthorised("expired"), RequestRefused("busy"), ProtocolError("odd")])
def test_what_is_known_outlasts_other_errors_too(brokers, check, monkeypatch, error):
    now = 1_000.0
    monkeypatch.setattr(guarantee_check.time, "monotonic", lambda: now)
    brokers.errors["b"] = error
    with pytest.raises(type(error)):
        check.find_hold(RECORD)
    del brokers.errors["b"]
    assert check.find_hold(RECORD) is None
    brokers.errors["b"] = error
    now += 301
    assert check.find_hold(RECORD) is None


def test_another_cluster_at_the_same_address_is_not_taken_for_the_one_that_is_known(brokers, check, monkeypatch):
    now = 1_000.0
    monkeypatch.setattr(guarantee_check.time, "monotonic", lambda: now)
    assert check.find_hold(RECORD) is None
    brokers.errors["b"] = WrongCluster("b is another cluster")
    now += 301
    with pytest.raises(WrongCluster):
        check.find_hold(RECORD)


def able(brokers: Brokers, *probed: ClusterCapabilities) -> tuple[ClusterCapabilities, ClusterCapabilities]:
    found = combine_with_probes({alias: brokers.ask(settings_of(alias)) for alias in ("a", "b")}, probed)
    return found["a"], found["b"]


def test_apply_refuses_what_the_flow_needs_and_no_more(brokers):
    require_guarantee(IN_TRANSACTIONS.flow, *able(brokers))
    del brokers.ranges["b"][Api.ADD_PARTITIONS_TO_TXN]
    require_guarantee(FLOW, *able(brokers))
    with pytest.raises(CannotApply, match=r"`exactly_once: transactions`: the target needs add_partitions_to_txn"):
        require_guarantee(IN_TRANSACTIONS.flow, *able(brokers))


def test_apply_refuses_what_a_probe_saw_fail(brokers):
    tried = {"sequence_check": TriedCapability(False, "a batch that was sent twice is stored twice")}
    probed = ClusterCapabilities("b", "id", 1, 1, 1, tried=tried)
    with pytest.raises(CannotApply, match="does not have a check of sequence numbers: a batch that was sent twice"):
        require_guarantee(FLOW, *able(brokers, probed))
    require_guarantee(IN_TRANSACTIONS.flow, *able(brokers, probed))
    unknown = replace(probed, tried={"sequence_check": TriedCapability(None, "WRITE is missing")})
    require_guarantee(FLOW, *able(brokers, unknown))


@pytest.mark.parametrize(
    ("alias", "cluster_id", "told"),
    [
        ("b", "another", "cluster another was probed as b, and b here is cluster id"),
        ("c", "id", r"is not a cluster here \(a, b\)"),
    ],
)
def test_a_probe_of_another_cluster_is_refused(brokers, alias, cluster_id, told):
    with pytest.raises(UnreadableInventory, match=told):
        able(brokers, ClusterCapabilities(alias, cluster_id, 1, 1, 1))


def test_a_flow_with_repeats_is_copied_where_its_target_gives_no_more_and_where_it_gives_more_by_now(brokers, check):
    assert check.find_hold(REPEATING) is None
    del brokers.ranges["b"][Api.INIT_PRODUCER_ID]
    assert GuaranteeCheck(settings_of("b"), settings_of, brokers.ask).find_hold(REPEATING) is None


def test_a_flow_that_was_applied_exactly_once_never_copies_with_repeats(brokers, check):
    del brokers.ranges["b"][Api.INIT_PRODUCER_ID]
    hold = check.find_hold(EXACT)
    assert hold is not None
    assert hold.state == "unsupported"
    assert "was applied with `exactly_once: sequence`, and its clusters give `at_least_once, proven` now" in hold.error
    hold = check.find_hold(RECORD)
    assert hold is not None
    assert "`delivery.semantics: at_least_once` allows it" in hold.error


def test_what_was_copied_decides_the_guarantee_from_then_on():
    flow = REPEATING.flow
    assert keep_guarantee(flow, AT_LEAST_ONCE, None, lambda: True) == AT_LEAST_ONCE
    assert keep_guarantee(flow, "exactly_once: sequence", REPEATING, lambda: False) == "exactly_once: sequence"
    assert keep_guarantee(flow, "exactly_once: sequence", REPEATING, lambda: True) == AT_LEAST_ONCE
    assert keep_guarantee(flow, AT_LEAST_ONCE, EXACT, lambda: False) == AT_LEAST_ONCE
    with pytest.raises(CannotApply, match="can give `at_least_once, proven` only now"):
        keep_guarantee(flow, AT_LEAST_ONCE, EXACT, lambda: True)
    with pytest.raises(CannotApply, match="does not allow it any more"):
        keep_guarantee(FLOW, "exactly_once: sequence", REPEATING, lambda: True)
    with pytest.raises(CannotApply, match="`offsets: aligned` cannot hold"):
        keep_guarantee(replace(flow, offsets="aligned"), "exactly_once: sequence", REPEATING, lambda: True)
