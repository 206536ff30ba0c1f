"""What `topology status` says of things that travel beside records."""

from __future__ import annotations

from watershed.cli.sync_text import describe_flow_sync, describe_sync_reports
from watershed.clusters.sync_reports import SyncReport


def test_a_line_a_kind_and_one_for_what_is_not_equal():
    reports = [
        SyncReport("f", "groups", "billing", "equal"),
        SyncReport("f", "groups", "audit", "carried"),
        SyncReport("f", "groups", "late", "waiting", "orders-0 committed 9, copied through 7 (2 to go)"),
        SyncReport("f", "groups", "counts", "refused", "an application of Kafka Streams"),
        SyncReport("f", "acls", "User:app", "equal"),
    ]
    assert describe_sync_reports(each.to_json() for each in reports) == [
        "acls: 1 equal",
        "groups: 2 equal, 1 refused, 1 waiting",
        "  counts: refused: an application of Kafka Streams",
        "  late: waiting: orders-0 committed 9, copied through 7 (2 to go)",
    ]


def test_many_are_counted():
    reports = [SyncReport("f", "groups", f"g{n}", "different", "moved") for n in range(8)]
    assert describe_sync_reports(each.to_json() for each in reports)[-1] == "  3 more groups"


def test_what_nobody_follows_is_said_to_be_old():
    """A report is not written again while nothing changes: after the last worker is gone it would look fresh."""
    sync = [SyncReport("f", "groups", "billing", "equal").to_json()]
    row = {"desired": "running", "partitions": [{"silent": True}, {"silent": False}], "sync": sync}
    assert describe_flow_sync(row) == ["groups: 1 equal"]
    old = ["groups: 1 equal (as last told: nobody follows them now)"]
    assert describe_flow_sync(row | {"partitions": [{"silent": True}]}) == old
    assert describe_flow_sync(row | {"desired": "paused"}) == old


def test_a_standby_that_is_ready_has_a_line_of_its_own():
    ready = {"streams": {"internal": ["c-x-changelog"], "missing": {}, "told": "the copies hold all state"}}
    behind = {"streams": {"internal": [], "missing": {"d-x-changelog-0": "behind"}, "told": "it waits"}}
    reports = [
        SyncReport("f", "groups", "c", "equal", detail=ready),
        SyncReport("f", "groups", "d", "waiting", "orders-0: its state is behind", detail=behind),
    ]
    assert describe_sync_reports(each.to_json() for each in reports) == [
        "groups: 1 equal, 1 waiting",
        "  d: waiting: orders-0: its state is behind",
        "  c: the copies hold all state",
    ]
    many = [SyncReport("f", "groups", f"g{n}", "equal", detail=ready) for n in range(7)]
    assert describe_sync_reports(each.to_json() for each in many)[-1] == "  2 more standbys are ready"
