"""What a cluster can be asked: the least of its brokers, in the versions that this client speaks."""

from __future__ import annotations

import pytest

from watershed.clusters.capabilities import BrokerAnswers, check_requests, combine_answers
from watershed.clusters.errors import RequestRefused
from watershed.clusters.wire.versions import SUPPORT, Api, ApiVersions
from watershed.topology.cluster_capabilities import RequestVersions
from watershed.topology.delivery_guarantee import ClusterEnd, Delivery, list_request_needs

NEW = {int(api): (0, 30) for api in Api}


def answer(port: int, ranges: dict[int, tuple[int, int]], **features: int) -> ApiVersions:
    return ApiVersions("c", f"k:{port}", ranges, finalized=features)


def cluster(*answers: ApiVersions, without_id: str | None = None, has_topics: bool = True) -> BrokerAnswers:
    return BrokerAnswers("c", "id-c", 5, 3, answers, without_id, has_topics)


def test_what_is_needed_is_what_the_wire_speaks() -> None:
    """One table says what a copy needs, another what can be encoded: they must not drift apart."""
    for need in (*list_request_needs("source"), *list_request_needs("target", "transactions")):
        ours = SUPPORT[Api[need.request.upper()]]
        assert ours.lowest <= need.lowest <= need.highest == ours.highest, need.request
        if need.lowest in ours.releases:
            assert need.release == ours.releases[need.lowest], need.request


def test_only_what_all_brokers_take_counts() -> None:
    old = {Api.PRODUCE: (0, 9), Api.FETCH: (0, 11), Api.METADATA: (0, 9)}
    found = combine_answers(cluster(answer(1, NEW, x=3, y=1), answer(2, old, x=2)))
    assert found.requests == {
        "produce": RequestVersions(0, 9),
        "fetch": RequestVersions(0, 11),
        "metadata": RequestVersions(0, 9),
    }
    assert (found.brokers, found.answered, found.features) == (3, 2, {"x": 2, "y": 1})
    assert found.oldest_release == "2.4"
    assert found.newest_release == "4.1"


def test_brokers_that_share_no_version_lack_the_request() -> None:
    found = combine_answers(cluster(answer(1, {Api.FETCH: (0, 3)}), answer(2, {Api.FETCH: (4, 17)})))
    assert found.requests == {}


@pytest.mark.parametrize(
    ("without_id", "has_topics", "expected"), [(None, True, True), ("t", True, False), (None, False, None)]
)
def test_topic_ids(without_id: str | None, has_topics: bool, expected: bool | None) -> None:
    assert combine_answers(cluster(without_id=without_id, has_topics=has_topics)).topic_ids is expected


@pytest.mark.parametrize(
    ("end", "delivery"), [("source", "sequence"), ("target", "sequence"), ("target", "transactions")]
)
def test_the_broker_that_lacks_a_request_is_named(end: ClusterEnd, delivery: Delivery) -> None:
    check_requests(cluster(answer(1, NEW)), end, delivery)
    for need in list_request_needs(end, delivery):
        lacking = {key: span for key, span in NEW.items() if key != Api[need.request.upper()]}
        with pytest.raises(RequestRefused, match=f"k:2 of cluster c is too old to be asked {need.request} in"):
            check_requests(cluster(answer(1, NEW), answer(2, lacking)), end, delivery)


@pytest.mark.parametrize("end", ["source", "target"])
def test_topics_without_ids_are_no_reason_to_refuse(end: ClusterEnd) -> None:
    check_requests(cluster(answer(1, NEW), without_id="orders"), end)
