"""The guarantee of a flow: what decides it, and what is said where a flow cannot have what it asks for."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from watershed.topology.cluster_capabilities import (
    IDEMPOTENCE,
    LOG_ENDS,
    SEQUENCE_CHECK,
    TRANSACTIONS,
    ClusterCapabilities,
    RequestVersions,
    TriedCapability,
)
from watershed.topology.delivery_guarantee import (
    AT_LEAST_ONCE,
    Delivery,
    decide_guarantee,
    explain_refusal,
    list_request_needs,
    name_guarantee,
)
from watershed.topology.egress_compression import CODEC_LEVELS, CompressionCodec, build_egress_compression
from watershed.topology.plan import PlanFlow
from watershed.topology.repeat_obstacles import decide_flow_guarantee, explain_repeat_obstacle
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import NO_SYNC

EVERYTHING = {need.request: RequestVersions(0, 99) for need in list_request_needs("target", "transactions")}
FULL = ClusterCapabilities("b", "id-b", 1, 3, 3, EVERYTHING, topic_ids=True, oldest_release="4.3", newest_release="4.3")
SOURCE = replace(
    FULL, alias="a", requests={each.request: EVERYTHING[each.request] for each in list_request_needs("source")}
)
DELIVERIES: tuple[Delivery, ...] = ("sequence", "transactions")


def without(*names: str) -> ClusterCapabilities:
    return replace(FULL, requests={name: each for name, each in EVERYTHING.items() if name not in names})


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_clusters_that_can_do_everything_give_what_the_delivery_is_for(delivery: Delivery) -> None:
    decision = decide_guarantee(delivery, SOURCE, FULL)
    assert (decision.guarantee, decision.missing, decision.is_executed) == (name_guarantee(delivery), (), True)
    assert explain_refusal("a-to-b", "exactly_once", decision) == ""


@pytest.mark.parametrize(("delivery", "request_name"), list(product(DELIVERIES, sorted(EVERYTHING))))
def test_each_request_that_is_missing_counts_where_it_is_needed(delivery: Delivery, request_name: str) -> None:
    decision = decide_guarantee(delivery, SOURCE, without(request_name))
    needed = request_name in {each.request for each in list_request_needs("target", delivery)}
    assert decision.is_executed is not needed
    assert [each.what for each in decision.missing] == ([f"{request_name} at b"] if needed else [])
    if needed:
        always = request_name in {each.request for each in list_request_needs("target", allows_repeats=True)}
        assert decision.guarantee == (None if always else AT_LEAST_ONCE)
        text = explain_refusal("a-to-b", "exactly_once", decision)
        for part in (
            "flow a-to-b",
            f"`{name_guarantee(delivery)}`",
            "exactly_once)",
            "cluster b (Kafka 4.3)",
            request_name,
        ):
            assert part in text
        assert "Upgrade b to Kafka" in text
        assert ("`delivery.semantics: at_least_once` allows it" in text) is not always


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_versions_count_and_not_only_names(delivery: Delivery) -> None:
    for need in list_request_needs("target", delivery):
        for low, high, enough in (
            (0, need.lowest - 1, False),
            (0, need.lowest, True),
            (need.highest, 99, True),
            (need.highest + 1, 99, False),
        ):
            if high >= low:
                target = replace(FULL, requests=EVERYTHING | {need.request: RequestVersions(low, high)})
                assert decide_guarantee(delivery, SOURCE, target).is_executed is enough, (need, low, high)


def test_a_cluster_that_is_newer_than_watershed_is_not_to_be_upgraded() -> None:
    target = replace(FULL, requests=EVERYTHING | {"produce": RequestVersions(14, 20)})
    text = explain_refusal("a-to-b", "", decide_guarantee("sequence", SOURCE, target))
    assert "take versions 14 to 20" in text
    assert "Update Watershed" in text
    assert "Upgrade b" not in text


@pytest.mark.parametrize("request_name", [each.request for each in list_request_needs("source")])
def test_a_source_that_cannot_be_read_gives_nothing(request_name: str) -> None:
    source = replace(SOURCE, requests={name: each for name, each in SOURCE.requests.items() if name != request_name})
    decision = decide_guarantee("sequence", source, FULL)
    assert decision.guarantee is None
    assert "the source needs" in explain_refusal("a-to-b", "at_least_once", decision)


def test_what_is_not_known_is_not_held_against_a_cluster() -> None:
    assert decide_guarantee("transactions", None, None).is_executed
    assert decide_guarantee("sequence", None, replace(FULL, topic_ids=None)).is_executed


def test_what_a_target_does_not_tell_costs_time_and_no_guarantee() -> None:
    told = replace(FULL, requests=EVERYTHING | {"describe_producers": RequestVersions(0, 0)})
    assert decide_guarantee("sequence", SOURCE, told).notes == ()
    [waits] = decide_guarantee("sequence", SOURCE, FULL).notes
    assert "each takeover of a partition, after a crash or a lost connection, waits 35 s" in waits
    assert decide_guarantee("transactions", SOURCE, FULL).notes == ()  # a coordinator fences there
    for delivery in DELIVERIES:
        without_ids = decide_guarantee(delivery, SOURCE, replace(told, topic_ids=False))
        assert without_ids.is_executed
        assert ["b gives topics no ids" in note for note in without_ids.notes] == [True]


def test_targets_begin_at_kafka_2_4() -> None:
    """The versions are those that brokers answered (docs/research/kafka-versions.md)."""
    of_2_4 = {"metadata": 9, "fetch": 11, "list_offsets": 5, "produce": 8, "init_producer_id": 2, "find_coordinator": 3}
    requests = {name: RequestVersions(0, newest) for name, newest in of_2_4.items()}
    requests |= {name: RequestVersions(0, 1) for name in ("add_partitions_to_txn", "end_txn")}
    for delivery in DELIVERIES:
        assert decide_guarantee(delivery, SOURCE, replace(FULL, requests=requests, topic_ids=False)).is_executed
        before = replace(
            FULL,
            requests=requests | {"init_producer_id": RequestVersions(0, 1)},
            oldest_release="2.1",
            newest_release="2.1",
        )
        refused = explain_refusal("a-to-b", "", decide_guarantee(delivery, SOURCE, before))
        assert "the target needs init_producer_id in versions 2 to 5" in refused
        assert "(Kafka 2.1) take versions 0 to 1; Kafka 2.4 and newer have it. Upgrade b to Kafka 2.4" in refused


@pytest.mark.parametrize(
    ("delivery", "name", "works"),
    list(product(DELIVERIES, (IDEMPOTENCE, SEQUENCE_CHECK, TRANSACTIONS), (True, False, None))),
)
def test_a_probe_overrules_what_brokers_list(delivery: Delivery, name: str, works: bool | None) -> None:
    target = replace(FULL, tried={name: TriedCapability(works, "it was stored twice")})
    decision = decide_guarantee(delivery, SOURCE, target)
    counts = name != (TRANSACTIONS if delivery == "sequence" else SEQUENCE_CHECK)
    assert decision.is_executed is not (works is False and counts)
    if decision.missing:
        assert "it was stored twice" in explain_refusal("a-to-b", "", decision)


def test_a_cluster_that_does_not_tell_where_a_log_ends_can_have_no_flow() -> None:
    """What is copied could not be compared: Tansu 0.6.0 leaves the end of the last batch out."""
    wrong = {LOG_ENDS: TriedCapability(False, "it ends at 4, not at 6")}
    for source, target in ((replace(SOURCE, tried=wrong), FULL), (SOURCE, replace(FULL, tried=wrong))):
        decision = decide_guarantee("sequence", source, target)
        assert (decision.guarantee, decision.is_executed) == (None, False)
        refusal = explain_refusal("a-to-b", "", decision)
        assert "does not have the right end of a log: it ends at 4, not at 6" in refusal


def test_releases_are_told_as_they_are() -> None:
    assert FULL.releases == "Kafka 4.3"
    assert replace(FULL, oldest_release="2.8").releases == "Kafka 2.8 to 4.3"
    assert replace(FULL, oldest_release=None).releases == "a Kafka release that is not known"


WITHOUT_IDS = without("init_producer_id", "describe_producers")
PLAIN = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "t"),)), allows_repeats=True)


def test_at_least_once_is_executed_only_where_the_file_asks_for_it() -> None:
    decision = decide_flow_guarantee(PLAIN, SOURCE, WITHOUT_IDS)
    assert (decision.guarantee, decision.is_executed) == (AT_LEAST_ONCE, True)
    assert explain_refusal("a-to-b", "at_least_once", decision) == ""
    asked_for_more = decide_flow_guarantee(replace(PLAIN, allows_repeats=False), SOURCE, WITHOUT_IDS)
    assert not asked_for_more.is_executed
    assert "`delivery.semantics: at_least_once` allows it" in explain_refusal("a-to-b", "", asked_for_more)


def test_where_clusters_can_give_more_more_is_used() -> None:
    decision = decide_flow_guarantee(PLAIN, SOURCE, FULL)
    assert (decision.guarantee, decision.is_executed) == ("exactly_once: sequence", True)


TRANSLATED = replace(NO_SYNC, schemas=replace(NO_SYNC.schemas, mode="once", ids="translate"))
ONWARD = replace(PLAIN, id="b-to-c", source="b", target="c")


@pytest.mark.parametrize(
    ("flow", "others", "named"),
    [
        (replace(PLAIN, delivery="transactions", delivery_reason="x writes t in b, too"), (), "x writes t in b, too"),
        (replace(PLAIN, offsets="aligned"), (), "`offsets: aligned`"),
        (replace(PLAIN, rejected="quarantine"), (), "`delivery.rejected: quarantine`"),
        (
            replace(PLAIN, sync=TRANSLATED),
            (),
            "`sync.schemas.ids",
        ),
        (PLAIN, (PLAIN, ONWARD), "flow b-to-c copies on from b"),
        (PLAIN, (replace(ONWARD, guard="none", forward="local"),), "flow b-to-c copies on from b"),
    ],
)
def test_what_cannot_hold_with_repeats_is_refused_and_named(
    flow: PlanFlow, others: tuple[PlanFlow, ...], named: str
) -> None:
    decision = decide_flow_guarantee(flow, SOURCE, WITHOUT_IDS, others)
    assert not decision.is_executed
    text = explain_refusal("a-to-b", "at_least_once", decision)
    assert f"The file allows `{AT_LEAST_ONCE}`, but" in text
    assert named in text
    assert decide_flow_guarantee(flow, SOURCE, FULL, others).is_executed


@pytest.mark.parametrize("highest", [6, 7])
@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("codec", [None, *CODEC_LEVELS])
def test_zstd_needs_the_produce_of_kafka_2_1(codec: CompressionCodec | None, repeats: bool, highest: int) -> None:
    """Older brokers refuse such a batch, so there is no lower guarantee to fall back to (KIP-110)."""
    plain = WITHOUT_IDS if repeats else FULL
    target = replace(plain, requests={**plain.requests, "produce": RequestVersions(0, highest)})
    flow = replace(PLAIN, compression=None if codec is None else build_egress_compression(codec))
    decision = decide_flow_guarantee(flow, SOURCE, target)
    assert decision.is_executed is (codec != "zstd" or highest == 7)
    text = explain_refusal("a-to-b", "at_least_once", decision)
    assert ("needs produce in versions 7 to 13 (zstd)" in text) is not decision.is_executed
    assert ("Upgrade b to Kafka 2.1" in text) is not decision.is_executed
    assert ("Or say another codec, as in `compression: lz4`" in text) is not decision.is_executed
    if not decision.is_executed:
        assert decision.guarantee is None


def test_flows_onward_without_a_guard_are_no_obstacle() -> None:
    assert explain_repeat_obstacle(PLAIN, (PLAIN, replace(ONWARD, guard="none"))) == ""


def test_the_plan_says_that_repeats_are_allowed_only_where_they_are() -> None:
    assert "allows_repeats" not in replace(PLAIN, allows_repeats=False).to_json()
    assert PlanFlow.from_json(PLAIN.to_json()) == PLAIN
