"""What a protected target takes: who is denied by name, what stays, and what is told where it cannot be done."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from watershed.cli.sync_text import describe_sync_reports
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.required_role_acls import derive_required_rights
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator import apply
from watershed.replicator.sync import protection
from watershed.replicator.sync.acls import find_acl_differences
from watershed.replicator.sync.protection import (
    Protection,
    ProtectionKind,
    build_protection_report,
    build_write_denial,
    find_protection,
    find_protection_differences,
    keep_protection,
)
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.acl_translation import is_write_denial, translate_acls
from watershed.topology.inventory import InventoryAcl
from watershed.topology.naming import build_prefix_naming
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import NO_SYNC, AclSync
from watershed.topology.unsynced_fences import mark_protected_sources

FLOW = PlanFlow(
    "a-to-b", "a", "b", TopicSelection((Selector("glob", "orders*"),)), naming=build_prefix_naming("a"), protect=True
)
RECORD = FlowRecord(FLOW, "sha256:0", "shop")
TOPICS = ("a.orders", "a.orders.paid", "other")


def right(who: str, name: str, operation: str = "WRITE", pattern: str = "LITERAL") -> InventoryAcl:
    return InventoryAcl(f"User:{who}", operation, "ALLOW", "TOPIC", name, pattern)


def found(
    *acls: InventoryAcl,
    record: FlowRecord | None = RECORD,
    ours: Iterable[InventoryAcl] = (),
    username: str | None = "copier",
    is_open: bool = False,
) -> Protection:
    return find_protection(record, FLOW, TOPICS, acls, tuple(ours), username, is_open=is_open)


def test_whoever_may_write_is_denied_by_name_on_each_topic_that_the_flow_writes_to() -> None:
    acls = (
        right("app", "a.orders"),
        right("all", "a.", "ALL", "PREFIXED"),
        right("reader", "a.orders", "READ"),
        right("elsewhere", "other"),
        right("copier", "a.", pattern="PREFIXED"),
    )
    protection = found(*acls)
    assert protection.topics == ("a.orders", "a.orders.paid")
    assert protection.denials == {
        build_write_denial("User:app", "a.orders"),
        build_write_denial("User:all", "a.orders"),
        build_write_denial("User:all", "a.orders.paid"),
    }
    assert all(map(is_write_denial, protection.denials))
    assert protection.problems == ()
    assert [
        (each.name, each.field, each.live, each.wanted) for each in find_protection_differences(FLOW, protection)
    ] == [
        ("topic a.orders", "User:all", None, "DENY"),
        ("topic a.orders", "User:app", None, "DENY"),
        ("topic a.orders.paid", "User:all", None, "DENY"),
    ]


def test_we_never_deny_ourselves_also_where_a_certificate_says_who_we_are() -> None:
    worker = InventoryAcl("User:CN=worker", "WRITE", "ALLOW", "TOPIC", "watershed.", "PREFIXED")
    protection = found(worker, right("CN=worker", "a.", pattern="PREFIXED"), username=None)
    assert protection.denials == frozenset()


@pytest.mark.parametrize(
    ("protection", "says"),
    [
        (found(right("*", "a.orders")), "User:* WRITE topic a.orders lets everybody write at b"),
        (found(right("app", "a.orders"), is_open=True), "b has allow.everyone.if.no.acl.found=true"),
        (find_protection(RECORD, FLOW, TOPICS, None, (), None, is_open=False), "b has no authorizer"),
    ],
)
def test_what_cannot_be_protected_is_told_with_its_remedy(protection: Protection, says: str) -> None:
    [row] = find_protection_differences(FLOW, protection)
    assert (row.applied, row.drift) == (False, "unsupported")
    assert says in row.why
    report = build_protection_report(FLOW, protection)
    assert report.state == "different"
    assert report.why.startswith("unprotected: ")


def test_a_right_for_everybody_does_not_keep_others_from_being_denied() -> None:
    protection = found(right("*", "a.orders"), right("app", "a.orders"))
    assert protection.denials == {build_write_denial("User:app", "a.orders")}


@pytest.mark.parametrize(
    ("record", "topics"),
    [
        (None, ("a.orders", "a.orders.paid")),
        (RECORD.with_state("paused"), ("a.orders", "a.orders.paid")),
        (RECORD.with_state("stopped"), ()),
        (RECORD.without(["orders"]), ("a.orders.paid",)),
        (RECORD.without_protection(["orders"]), ("a.orders.paid",)),
        (RECORD.without_protection(["orders"]).with_protection(["orders"]), ("a.orders", "a.orders.paid")),
    ],
)
def test_a_topic_is_protected_until_it_is_opened_has_moved_or_its_flow_stops(
    record: FlowRecord | None, topics: tuple[str, ...]
) -> None:
    ours = [build_write_denial("User:app", name) for name in ("a.orders", "a.orders.paid")]
    protection = found(right("app", "a.", pattern="PREFIXED"), *ours, record=record, ours=ours)
    assert protection.topics == topics
    assert {each.name for each in protection.surplus} == {"a.orders", "a.orders.paid"} - set(topics)
    assert protection.missing == frozenset()


def test_a_denial_of_somebody_else_is_not_ours_to_take_away() -> None:
    own = build_write_denial("User:app", "a.orders")
    protection = found(right("app", "a.orders"), own, record=RECORD.with_state("stopped"))
    assert protection.surplus == frozenset()
    assert find_protection_differences(FLOW, protection) == []


def test_a_denial_that_came_behind_a_lift_is_taken_away_by_its_own_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    denial, rights = build_write_denial("User:app", "a.orders"), right("app", "a.orders")
    opened = RECORD.without_protection(["orders"])
    seen = iter([found(rights), found(rights, denial, record=opened, ours=[denial]), found(rights, record=opened)])
    changes: list[tuple[frozenset[InventoryAcl], frozenset[InventoryAcl]]] = []

    def change(
        _target: ConnectionSettings, _flow: str, now: Protection, wanted: frozenset[InventoryAcl]
    ) -> dict[InventoryAcl, str]:
        changes.append((wanted, now.surplus))
        return {}

    monkeypatch.setattr(protection, "inspect_protection", lambda _target, _flow: next(seen))
    monkeypatch.setattr(protection, "_change", change)
    assert keep_protection(ConnectionSettings("b", ("b:9092",)), FLOW) == {}
    assert changes == [(frozenset({denial}), frozenset()), (frozenset(), frozenset({denial}))]


def test_nothing_is_said_to_be_denied_on_a_topic_that_is_not_at_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    rights = (right("app", "a.", pattern="PREFIXED"),)
    coming = find_protection(RECORD, FLOW, (*TOPICS, "a.orders.new"), rights, (), "copier", is_open=False)
    rows = find_protection_differences(FLOW, coming)
    monkeypatch.setattr(protection, "keep_protection", lambda _target, _flow: {})
    monkeypatch.setattr(protection, "inspect_protection", lambda _target, _flow: found(*rights))
    done = ProtectionKind().carry(FLOW, SyncClusters(*(ConnectionSettings(alias, ("k:1",)) for alias in "ab")), rows)
    refused = {each.difference.name: each.error for each in done if each.error is not None}
    assert len(done) == 3
    assert [name for name, why in refused.items() if "is not at the target" in why] == ["topic a.orders.new"]


@pytest.mark.parametrize(
    ("record", "is_lifted"),
    [
        (RECORD, False),
        (RECORD.with_state("paused"), False),
        (RECORD.with_state("stopped"), True),
        (replace(RECORD, flow=replace(FLOW, protect=False)), True),
    ],
)
def test_apply_opens_no_topic_of_a_flow_that_was_resumed_meanwhile(
    monkeypatch: pytest.MonkeyPatch, record: FlowRecord, is_lifted: bool
) -> None:
    denial, told = build_write_denial("User:app", "a.orders"), list[apply.AppliedChange]()
    monkeypatch.setattr(apply, "read_protections", lambda _target: {FLOW.id: frozenset({denial})})
    monkeypatch.setattr(apply, "read_flows", lambda _target: {FLOW.id: record})
    monkeypatch.setattr(apply, "remove_protection", lambda _target, _flow: ([denial], {}))
    apply._lift_unasked_protection([FLOW], {"b": ConnectionSettings("b", ("b:9092",))}, told.append)
    assert [each.what for each in told] == (["took away"] if is_lifted else [])


def test_the_plan_shows_denials_on_topics_that_the_flow_is_about_to_create(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = SimpleNamespace(topics=lambda: {"orders.new": None, "payments": None})
    monkeypatch.setattr(protection, "Admin", lambda _settings: nullcontext(admin))

    def inspect(_target: ConnectionSettings, flow: PlanFlow, coming: list[str]) -> Protection:
        rights = (right("app", "a.", pattern="PREFIXED"),)
        return find_protection(None, flow, coming, rights, (), "copier", is_open=False)

    monkeypatch.setattr(protection, "inspect_protection", inspect)
    sides = SyncClusters(*(ConnectionSettings(alias, ("k:1",)) for alias in ("a", "b")))
    [row] = ProtectionKind().compare(FLOW, sides)
    assert (row.name, row.field, row.live, row.wanted) == ("topic a.orders.new", "User:app", None, "DENY")
    assert row.applied


def test_the_status_always_says_what_is_protected() -> None:
    denial = build_write_denial("User:app", "a.orders")
    report = build_protection_report(FLOW, found(right("app", "a.orders"), denial, ours=[denial]))
    assert describe_sync_reports([report.to_json()]) == [
        "protection: 1 equal",
        "  topics: equal: protected: a.orders, a.orders.paid; denied WRITE by name: User:app",
    ]
    refused = build_protection_report(FLOW, found(), {denial: "POLICY_VIOLATION"})
    assert (refused.state, refused.why) == (
        "refused",
        "unprotected: User:app DENY WRITE topic a.orders: POLICY_VIOLATION",
    )
    opened = RECORD.without_protection(["orders", "orders.paid"])
    assert build_protection_report(FLOW, found(record=opened)).why.startswith("protected: no topic")


def test_denials_of_the_protection_are_not_carried_back_and_not_told_as_surplus() -> None:
    back = PlanFlow(
        "b-to-a",
        "b",
        "a",
        TopicSelection((Selector("glob", "a.orders*"),)),
        sync=replace(NO_SYNC, acls=AclSync("once")),
    )
    denial, other = build_write_denial("User:app", "a.orders"), right("app", "a.orders", "READ")
    assert denial in translate_acls(back, [denial, other]).bindings
    _, marked = mark_protected_sources((FLOW, back))
    assert translate_acls(marked, [denial, other]).bindings == (other,)
    assert PlanFlow.from_json(marked.to_json()) == marked
    assert mark_protected_sources((replace(FLOW, protect=False), back))[1] == back
    carried = replace(FLOW, sync=replace(NO_SYNC, acls=AclSync("once")))
    target = ConnectionSettings("b", ("b:9092",), username="copier")
    assert find_acl_differences(carried, (carried,), (), (denial,), target) == []
    bare = replace(carried, protect=False)
    assert len(find_acl_differences(bare, (bare,), (), (denial,), target)) == 1


def test_the_key_is_in_the_plan_and_asks_for_its_rights() -> None:
    assert PlanFlow.from_json(FLOW.to_json()) == FLOW
    assert "protect" not in replace(FLOW, protect=False).to_json()
    assert (ProtectionKind().mode(FLOW), ProtectionKind().mode(replace(FLOW, protect=False))) == ("continuous", "never")
    for role in ("apply", "worker"):
        rights = derive_required_rights(Plan("t", (), (FLOW,)), role)
        assert any((each.resource, each.operation) == ("CLUSTER", "ALTER") for each in rights)


def test_whoever_may_be_a_worker_of_ours_is_not_denied_and_that_is_said() -> None:
    """`topology apply` may be another user than the workers, whose rights stand on `*` here."""
    protection = found(right("fleet", "*", "ALL"), right("app", "a.orders"))
    assert {each.principal for each in protection.denials} == {"User:app"}
    assert ["User:fleet may write to watershed.flows, too" in each for each in protection.problems] == [True]
