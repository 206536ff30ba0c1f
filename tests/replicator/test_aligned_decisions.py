"""Decisions about equal offsets as a worker makes them: whose counts, and what becomes of the topic's settings."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.replicator.test_aligned_prospects import ALLOWED, MAPPED, clusters
from tests.topology.test_topology_alignment import flow
from watershed.clusters.alignment_records import AlignmentRecord
from watershed.clusters.errors import Unreachable
from watershed.clusters.fake_cluster import FakeCluster
from watershed.replicator.copy.aligned import aligned_topic_choice
from watershed.replicator.copy.aligned.aligned_topic_choice import AlignmentDecisions
from watershed.replicator.copy.aligned.cluster_probe import AlignmentSupport
from watershed.replicator.copy.aligned.filling_configs import CLEANUP_POLICY
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.topic_mapping import MappedTopic


@pytest.fixture
def agreed(monkeypatch: pytest.MonkeyPatch) -> list[AlignmentRecord]:
    """What others decided first; empty: nobody did."""
    first: list[AlignmentRecord] = []
    monkeypatch.setattr(aligned_topic_choice, "read_alignments", lambda _target: {})
    monkeypatch.setattr(aligned_topic_choice, "read_ledger", lambda _target, **_how: Ledger({}))
    monkeypatch.setattr(
        aligned_topic_choice, "agree_on_alignment", lambda _writer, _target, record: first[0] if first else record
    )
    return first


def decides(target: FakeCluster, probed: AlignmentSupport = ALLOWED) -> AlignmentDecisions:
    return AlignmentDecisions(target.settings, None, "worker w", lambda _admin, _flow: probed)  # type: ignore[arg-type]


def placed(made: AlignmentDecisions, source: FakeCluster, target: FakeCluster) -> MappedTopic:
    (found,) = made.placed(flow(""), [MAPPED], source, target)
    return found


def test_a_topic_is_prepared_to_be_filled_when_that_is_decided(agreed: list[AlignmentRecord]) -> None:
    source, target = clusters(policy="compact")
    target.alter_topic_configs("orders", {CLEANUP_POLICY: "compact"})
    found = placed(decides(target), source, target)
    assert (found.gap_method, found.note) == ("markers", "")
    assert target.topic_configs(["orders"])["orders"][CLEANUP_POLICY] == "delete"


def test_a_topic_that_another_worker_decided_otherwise_about_has_its_settings_back(
    agreed: list[AlignmentRecord],
) -> None:
    source, target = clusters(policy="compact")
    target.alter_topic_configs("orders", {CLEANUP_POLICY: "compact"})
    before = target.topic_configs(["orders"])
    agreed.append(AlignmentRecord(flow("").id, "orders", "mapped", "the cluster did not allow it"))
    found = placed(decides(target), source, target)
    assert (found.gap_method, found.note) == (None, "offsets are translated, not equal: the cluster did not allow it")
    assert target.topic_configs(["orders"]) == before


def test_what_was_decided_while_a_flow_was_another_one_counts(
    agreed: list[AlignmentRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file asked for equal offsets for a moment; `topology apply` decided, and this worker did not look."""
    source, target = clusters()
    made, mapped = decides(target), replace(flow(""), offsets="mapped", workers=3)
    assert made.placed(replace(mapped, workers=2), [MAPPED], source, target) == [MAPPED]
    decided = AlignmentRecord(mapped.id, "orders", "aligned", way="markers")
    monkeypatch.setattr(aligned_topic_choice, "read_alignments", lambda _target: {(mapped.id, "orders"): decided})
    (found,) = made.placed(mapped, [MAPPED], source, target)
    assert found.gap_method == "markers"


def test_a_source_that_hangs_holds_up_its_own_flows_only(
    agreed: list[AlignmentRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = clusters()
    hanging, reached, goes_on = FakeCluster("far"), threading.Event(), threading.Event()

    def offsets(*_asked: object) -> None:
        reached.set()
        goes_on.wait(30)
        raise hanging.settings.unreachable("no answer")

    def waits() -> None:
        with suppress(Unreachable):
            made.placed(far, [MAPPED], hanging, target)

    monkeypatch.setattr(hanging, "offsets", offsets)
    made = decides(target)
    far = replace(flow(""), id="far-to-cloud")
    thread = threading.Thread(target=waits)
    thread.start()
    try:
        assert reached.wait(10)
        assert placed(made, source, target).gap_method == "markers"
        assert thread.is_alive()
    finally:
        goes_on.set()
        thread.join()
