"""Aligned mode before and beside the logs: what it costs, settings meanwhile, the probe."""

from __future__ import annotations

import re

import pytest

from tests.replicator.aligning import FLOW, Requests
from watershed.clusters.errors import ClusterError, RequestRefused, Unauthorised, Unreachable
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.required_role_acls import PROBE_TOPIC
from watershed.clusters.wire import error_codes
from watershed.replicator.batch.filler_batch import FILLER_BATCH_RECORDS, build_filler_batch
from watershed.replicator.copy.aligned import cluster_probe as probing
from watershed.replicator.copy.aligned.alignment_cost import (
    AlignmentCost,
    EstimatedGapMethod,
    GapCount,
    PartitionCost,
    estimate_alignment_cost,
    explain_excessive_cost,
    render_cost_bytes,
    render_cost_duration,
)
from watershed.replicator.copy.aligned.cluster_probe import (
    AlignmentSupport,
    AlignmentSupportCache,
    probe_alignment_support,
)
from watershed.replicator.copy.aligned.filling_configs import (
    CLEANUP_POLICY,
    TIERED_STORAGE,
    TIMESTAMP_BEFORE_MAX,
    apply_filling_configs,
    build_filling_configs,
    restore_topic_configs,
)
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.partition_states import Reinspect

TOPIC = "orders"


NO_GAPS = GapCount()


def costs(*starts: int, gaps: GapCount = NO_GAPS) -> list[PartitionCost]:
    return [PartitionCost(number, start, gaps) for number, start in enumerate(starts)]


@pytest.mark.parametrize(
    ("starts", "replicas", "seconds", "cpu_s"),
    [
        ((), 1, 0.0, 0.0),
        ((0, 0), 1, 0.0, 0.0),
        ((10**9,), 1, 50.0, 66.7),
        ((3 * 10**9,), 1, 150.0, 200.0),
        ((10**9,), 3, 117.6, 106.7),
        ((10**9,) * 4, 1, 133.3, 266.7),  # 30 M/s in all
        ((10**9,) * 4, 3, 470.6, 426.7),
        ((10**9, 10**6), 1, 50.0, 66.7),
    ],
)
def test_the_estimate(starts: tuple[int, ...], replicas: int, seconds: float, cpu_s: float) -> None:
    found = estimate_alignment_cost(costs(*starts), replicas=replicas)
    assert found.offsets == sum(starts)
    assert found.seconds == pytest.approx(seconds, abs=0.1)
    assert found.cpu_s == pytest.approx(cpu_s, abs=0.2)
    assert found.wire_bytes == round(sum(starts) * 0.6)


def test_gaps_are_part_of_the_estimate() -> None:
    calm = estimate_alignment_cost(costs(0))
    gap = GapCount(offsets=100_000, stretches=10)
    by_way = {
        gap_method: estimate_alignment_cost(costs(0, gaps=gap), gap_method=gap_method)
        for gap_method in ("markers", "transactions")
    }
    assert calm.seconds == 0
    assert by_way["markers"].seconds == pytest.approx(6.2)
    assert by_way["transactions"].seconds == pytest.approx(300)
    assert by_way["markers"].disk_bytes == 7_800_000
    assert (calm + by_way["markers"]).gap_offsets == 100_000


def test_the_estimate_for_people() -> None:
    assert str(estimate_alignment_cost(costs(3 * 10**9))) == (
        "3,000,000,000 offsets to fill, about 2 min, 3 min of a broker's core, 1.8 GB sent, at most 1.8 GB on disk"
    )
    assert [render_cost_duration(each) for each in (0, 0.01, 9.94, 12, 240, 8_000)] == [
        "0 s",
        "0.1 s",
        "9.9 s",
        "12 s",
        "4 min",
        "2.2 h",
    ]
    assert [render_cost_bytes(each) for each in (0, 999, 59_000, 1_800_000_000, 5 * 10**12)] == [
        "0 B",
        "999 B",
        "59 KB",
        "1.8 GB",
        "5.0 TB",
    ]
    assert AlignmentCost(0, 0, 0, 0, 0) + AlignmentCost(1, 1, 1, 1, 1) == AlignmentCost(1, 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("starts", "gaps", "gap_method", "said"),
    [
        ((3 * 10**9,), GapCount(), "markers", ""),
        ((10**9,) * 60, GapCount(), "markers", "begin at 60,000,000,000 offsets in total, .*67 min.*60 min"),
        ((0,), GapCount(1_000_000, 1), "markers", ""),
        ((0,), GapCount(1_000_001, 1), "markers", "partition 0 of orders has 1,000,001 .* is 1,000,000"),
        ((0,), GapCount(1_001, 1), "transactions", "1,001 .* without ALTER on the target cluster is 1,000"),
    ],
)
def test_when_it_is_too_much(
    starts: tuple[int, ...], gaps: GapCount, gap_method: EstimatedGapMethod, said: str
) -> None:
    found = explain_excessive_cost(TOPIC, costs(*starts, gaps=gaps), gap_method=gap_method)
    if not said:
        assert found == ""
    else:
        assert re.search(said, found), found


def test_settings_while_filling_and_back() -> None:
    target = FakeCluster("cloud", configs={"log.message.timestamp.before.max.ms": "3600000"})
    wanted = {CLEANUP_POLICY: "compact", TIERED_STORAGE: "true", "retention.ms": "5"}
    meanwhile = build_filling_configs(wanted, target)
    kept = {"retention.ms": "-1", "retention.bytes": "-1"}
    assert (
        meanwhile
        == {CLEANUP_POLICY: "delete", TIMESTAMP_BEFORE_MAX: str((1 << 63) - 1), TIERED_STORAGE: "false"} | kept
    )
    assert build_filling_configs({"retention.ms": "5"}, FakeCluster()) == {}
    target.create_topic("new", 1, configs=wanted | meanwhile)
    target.create_topic("there", 1, configs=wanted)
    for topic in ("new", "there"):
        for _ in range(2):  # a second worker, or the same one after a crash
            assert apply_filling_configs(target, topic, wanted, meanwhile) == ""
            assert target.topic_configs([topic])[topic] == wanted | meanwhile
        assert restore_topic_configs(target, topic, wanted, meanwhile)
        assert not restore_topic_configs(target, topic, wanted, meanwhile)
        assert target.topic_configs([topic])[topic] == wanted


def test_settings_of_somebody_else_are_left() -> None:
    target = FakeCluster("cloud")
    target.create_topic("theirs", 1, configs={CLEANUP_POLICY: "compact,delete"})
    said = apply_filling_configs(target, "theirs", {CLEANUP_POLICY: "compact"}, {CLEANUP_POLICY: "delete"})
    assert said == (
        "the target topic theirs has cleanup.policy=compact,delete where the flow gives it cleanup.policy=compact, "
        "so it is not changed to fill it"
    )
    assert target.topic_configs(["theirs"])["theirs"] == {CLEANUP_POLICY: "compact,delete"}


def test_records_that_somebody_keeps_for_ever_stay_kept() -> None:
    """Beside compaction that is a setting of theirs: it is neither taken for ours nor taken back."""
    target = FakeCluster("cloud")
    theirs = {CLEANUP_POLICY: "compact,delete", "retention.ms": "-1"}
    target.create_topic("theirs", 1, configs=theirs)
    wanted = {CLEANUP_POLICY: "compact,delete"}
    meanwhile = build_filling_configs(wanted, target)
    assert "has retention.ms=-1 where the flow gives it no retention.ms" in apply_filling_configs(
        target, "theirs", wanted, meanwhile
    )
    assert not restore_topic_configs(target, "theirs", wanted, meanwhile)
    assert target.topic_configs(["theirs"])["theirs"] == theirs


def probed(target: FakeCluster, version: int = 2) -> AlignmentSupport:
    target.coordinator.version = version
    return probe_alignment_support(target, "cloud", Requests(target).connect, FLOW, version)


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_PAUSE_S", 0.0)


@pytest.mark.parametrize("version", [1, 2])
def test_a_probe_of_a_cluster_that_takes_everything(version: int) -> None:
    target = FakeCluster("cloud")
    for _ in range(3):
        assert probed(target, version) == AlignmentSupport("fake-cloud", transaction_version=version)
    assert probed(target, version).gap_method == "markers"
    assert probed(target, version).bump == (version == 2)
    assert target.records(PROBE_TOPIC, 0, committed=False) == []
    assert target.log(PROBE_TOPIC, 0).end - target.log(PROBE_TOPIC, 0).log_start < 10


def test_a_probe_without_rights() -> None:
    target = FakeCluster("cloud")
    target.may_alter = False
    found = probed(target)
    assert (found.fills, found.transactions, found.gap_method) == ("", "", "transactions")
    assert found.markers == "ALTER on cluster cloud is missing, so gaps take an empty transaction for each offset"


def test_a_probe_where_records_cannot_be_deleted() -> None:
    target = FakeCluster("cloud")
    target.create_topic(PROBE_TOPIC, 1, configs={CLEANUP_POLICY: "compact"})
    assert "INVALID_RECORD to a batch of empty records for watershed.probe-0" in probed(target).fills


def test_a_probe_whose_topic_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeCluster("cloud")

    def refused(*_args: object, **_more: object) -> None:
        raise Unauthorised("cluster cloud refused creating topic watershed.probe", alias="cloud")

    monkeypatch.setattr(target, "create_topic", refused)
    found = probed(target)
    assert "refused creating topic" in found.fills
    assert found.gap_method is None


def test_what_may_be_otherwise_in_a_moment_is_no_answer() -> None:
    """A topic would be copied with translated offsets for ever because of it."""

    def probing_twin() -> str:
        raise SessionLost(Reinspect("somebody else probes"))

    with pytest.raises(ClusterError, match=r"could not be tried on watershed.probe, 5 times: somebody else probes"):
        probing._tried(probing_twin)
    for code, passing in ((error_codes.NOT_LEADER_OR_FOLLOWER, True), (error_codes.INVALID_RECORD, False)):
        refused = RequestRefused("no")
        refused.code = code

        def attempt(error: RequestRefused = refused) -> str:
            raise error

        if passing:
            with pytest.raises(RequestRefused):
                probing._tried(attempt)
        else:
            assert probing._tried(attempt) == "no"


def test_probes_are_remembered_by_cluster() -> None:
    target, probes = FakeCluster("cloud"), AlignmentSupportCache()

    def of() -> AlignmentSupport:
        return probes.of(target, "cloud", Requests(target).connect, FLOW, lambda: 2)

    assert of() is of()
    target.may_alter = False
    assert of().gap_method == "markers"
    probes = AlignmentSupportCache()  # as in the next process
    assert of().gap_method == "transactions"
    target.stop()
    with pytest.raises(Unreachable):
        of()


def test_filler_is_small() -> None:
    assert len(build_filler_batch(FILLER_BATCH_RECORDS, 7, 0, 0)[1]) < 60_000
