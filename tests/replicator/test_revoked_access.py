"""Which access has lost its reason: listings and written-down rights in, a judgement out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.synced_access_records import SyncedAcl, SyncedUser
from watershed.replicator.sync.acls import find_acl_differences
from watershed.replicator.sync.revoked_access import (
    FEW_REVOKED,
    JudgedAcls,
    JudgedUsers,
    TargetOwners,
    find_acl_origins,
    judge_synced_acls,
    judge_synced_users,
)
from watershed.replicator.sync.users import find_user_differences
from watershed.topology.inventory import InventoryAcl
from watershed.topology.naming import build_prefix_naming
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import NO_SYNC, AccessPruning, AclSync, UserSync

NOW = 1_750_000_000_000
DAY = 86_400_000
SYNC = replace(NO_SYNC, acls=AclSync("continuous"), users=UserSync("continuous"))
FLOW = PlanFlow(
    "a-to-b", "a", "b", TopicSelection((Selector("glob", "orders*"),)), naming=build_prefix_naming("a"), sync=SYNC
)
RECORD = FlowRecord(FLOW, "sha256:0", "shop")
TARGET = ConnectionSettings("b", ("b:9092",), username="copier")


def acl(who: str, name: str = "orders", operation: str = "READ", pattern: str = "LITERAL") -> InventoryAcl:
    return InventoryAcl(f"User:{who}", operation, "ALLOW", "TOPIC", name, pattern)


def there(right: InventoryAcl) -> InventoryAcl:
    return replace(right, name=f"a.{right.name}")


def given(*rights: InventoryAcl, revoked_ms: int | None = None) -> list[SyncedAcl]:
    return [SyncedAcl(there(right), (right,), NOW - 9 * DAY, revoked_ms) for right in rights]


def judge(
    entries: Iterable[SyncedAcl],
    here: Sequence[InventoryAcl] | None,
    at_target: Sequence[InventoryAcl] | None,
    *others: PlanFlow,
    flow: PlanFlow = FLOW,
    record: FlowRecord = RECORD,
) -> JudgedAcls:
    sides = [None if each is None else tuple(each) for each in (here, at_target)]
    return judge_synced_acls(flow, (flow, *others), record, entries, sides[0], sides[1], "copier", NOW)


ANN, BOB, EVE = acl("ann"), acl("bob"), acl("eve")


def test_a_right_is_revoked_when_neither_its_origin_nor_another_right_explains_it() -> None:
    judged = judge(given(ANN, BOB), [BOB], [there(ANN), there(BOB)])
    assert [(each.acl, each.revoked_ms) for each in judged.revoked] == [(there(ANN), NOW)]
    assert judged.entries == (*judged.revoked, *given(BOB))
    assert not judged.kept
    assert not judged.bulk
    wider = acl("ann", "orders", pattern="PREFIXED")
    explained = judge([SyncedAcl(there(wider), (ANN,), NOW)], [wider, BOB], [there(wider)])
    assert explained.revoked == ()


def test_the_time_is_that_of_the_first_comparison_and_a_right_that_is_back_is_no_longer_revoked() -> None:
    [entry] = given(ANN, revoked_ms=NOW - DAY)
    assert judge([entry], [BOB], [there(ANN)]).revoked == (entry,)
    back = judge([entry], [ANN], [there(ANN)])
    assert (back.revoked, back.entries) == ((), (replace(entry, revoked_ms=None),))


def test_what_is_gone_on_both_sides_is_forgotten_and_what_is_gone_at_the_target_only_is_not() -> None:
    assert judge(given(ANN), [BOB], []).entries == ()
    assert judge(given(ANN), [ANN], []).entries == tuple(given(ANN))


def test_what_was_written_down_a_moment_ago_may_still_be_given() -> None:
    """Another writer, whose listing of the source is a little older, writes it down before it gives it."""
    [entry] = given(ANN)
    fresh = replace(entry, given_ms=NOW - 1_000)
    assert judge([fresh], [BOB], []).entries == (fresh,)


def test_what_nobody_wrote_down_is_never_judged() -> None:
    judged = judge([], [BOB], [there(ANN)])
    assert judged.revoked == ()
    [row] = find_acl_differences(FLOW, (FLOW,), (), (there(ANN),), TARGET, judged)
    assert not row.applied
    assert "nothing shows that the sync gave it" in row.why


@pytest.mark.parametrize(("here", "says"), [(None, "has no authorizer"), ((), "shows no right at all")])
def test_a_source_that_shows_nothing_revokes_nothing(here: tuple[InventoryAcl, ...] | None, says: str) -> None:
    """Also what was revoked before stays: nobody knows what the source has now."""
    entries = given(ANN, revoked_ms=NOW - 9 * DAY)
    judged = judge(entries, here, [there(ANN)])
    assert (judged.entries, judged.revoked) == (tuple(entries), ())
    assert says in judged.blind
    assert judge([], here, [there(ANN)]).blind == ""
    assert judge(entries, [BOB], None).blind


def test_most_of_them_at_once_are_not_believed() -> None:
    rights = [acl(f"u{n}") for n in range(2 * FEW_REVOKED)]
    listed = [there(each) for each in rights]
    assert judge(given(*rights), rights[FEW_REVOKED:], listed).bulk == ""
    judged = judge(given(*rights), rights[FEW_REVOKED + 1 :], listed)
    assert "4 of 6 rights that the sync brought are gone at a at once, more than 50%" in judged.bulk
    at_once = replace(FLOW, sync=replace(SYNC, acls=AclSync("continuous", prune=AccessPruning("auto", 0))))
    rows = find_acl_differences(at_once, (at_once,), tuple(rights[4:]), tuple(listed), TARGET, judged)
    assert [each.applied for each in rows] == [False] * 4
    few = [acl(f"u{n}") for n in range(FEW_REVOKED)]
    assert judge(given(*few), [EVE], [there(each) for each in few]).bulk == "", "each of three may be meant"


def test_what_is_ours_another_flow_s_or_has_moved_is_kept() -> None:
    role = InventoryAcl("User:worker", "WRITE", "ALLOW", "TOPIC", "watershed.", "PREFIXED")
    entries = given(acl("copier"), acl("worker"), ANN)
    at_target = [*(each.acl for each in entries), role]
    judged = judge(entries, [BOB], at_target)
    assert set(judged.kept) == {entries[0].acl, entries[1].acl}
    other = replace(FLOW, id="c-to-b", source="c")
    assert "flow c-to-b may bring it from c, too" in judge(entries, [BOB], at_target, other).kept[there(ANN)]
    silent = replace(other, sync=NO_SYNC)
    assert there(ANN) not in judge(entries, [BOB], at_target, silent).kept
    moved = replace(RECORD, retired=frozenset({"orders"}))
    told = judge(entries, [BOB], at_target, flow=moved.serving, record=moved).kept[there(ANN)]
    assert told == "applications of orders have moved to b and may need it"


def test_a_topic_that_the_file_excludes_now_revokes_nothing() -> None:
    narrower = replace(FLOW, topics=replace(FLOW.topics, exclude=(Selector("literal", "orders"),)))
    assert judge(given(ANN), [ANN], [there(ANN)], flow=narrower).revoked == ()


def test_an_origin_is_what_translates_into_the_right() -> None:
    every = acl("ann", "*")
    prefix = replace(acl("ann", "a.orders"), pattern="PREFIXED")
    assert find_acl_origins(FLOW, [every, BOB]) == {prefix: (every,), there(BOB): (BOB,)}


@pytest.mark.parametrize(
    ("pruning", "since_ms", "applied", "says"),
    [
        (AccessPruning(), NOW, False, "it stays (`sync.acls.prune: never`); by hand: kafka-acls"),
        (AccessPruning("approve"), NOW, False, "waits for a person's decision: `topology flow prune a-to-b FILE`"),
        (AccessPruning("auto"), 1, True, "it is removed now (`sync.acls.prune: auto`)"),
        (AccessPruning("auto", 10**15), NOW, False, "after that, or before by `topology flow prune"),
    ],
)
def test_a_revoked_right_is_shown_with_since_when_and_what_becomes_of_it(
    pruning: AccessPruning, since_ms: int, applied: bool, says: str
) -> None:
    flow = replace(FLOW, sync=replace(SYNC, acls=AclSync("continuous", prune=pruning)))
    judged = judge(given(ANN, revoked_ms=since_ms), [BOB], [there(ANN), there(BOB)], flow=flow)
    [row] = find_acl_differences(flow, (flow,), (BOB,), (there(ANN), there(BOB)), TARGET, judged)
    assert (row.name, row.live, row.wanted, row.applied) == ("topic a.orders", "ALLOW", None, applied)
    assert "revoked at a, seen first at" in row.why
    assert says in row.why


def user(name: str, made_ms: int | None = None, revoked_ms: int | None = None) -> SyncedUser:
    return SyncedUser("a-to-b", name, "SCRAM-SHA-512", 1, made_ms, revoked_ms)


def judge_users(
    entries: Iterable[SyncedUser],
    here: str,
    at_target: str,
    record: FlowRecord = RECORD,
    *roles: InventoryAcl,
    others: tuple[PlanFlow, ...] = (),
) -> JudgedUsers:
    sides = [{name: {"SCRAM-SHA-512": 4096} for name in names.split()} for names in (here, at_target)]
    return judge_synced_users(
        FLOW, (FLOW, *others), record, entries, sides[0], sides[1], TargetOwners("copier", roles), NOW
    )


def test_only_a_user_that_was_named_and_then_seen_on_both_sides_is_ever_proposed() -> None:
    named = judge_users([], "ann bob", "bob")
    assert [(each.user, each.missing_ms, each.made_ms) for each in named.entries] == [("ann", NOW, None)]
    made = judge_users(named.entries, "ann bob", "ann bob")
    assert [each.made_ms for each in made.entries] == [NOW]
    deleted = judge_users(made.entries, "x", "ann bob x")
    assert [(each.user, each.revoked_ms) for each in deleted.revoked] == [("ann", NOW)]
    assert judge_users([user("ann")], "bob", "ann bob").entries == (), "somebody may have made it on purpose"
    assert judge_users([user("ann", 5, 7)], "bob", "bob").entries == ()
    assert judge_users([user("ann", 5, 7)], "ann", "ann").entries == (user("ann", 5),)


def test_users_of_our_own_and_of_those_that_have_moved_are_kept_and_an_empty_source_is_not_believed() -> None:
    role = InventoryAcl("User:worker", "WRITE", "ALLOW", "TOPIC", "watershed.", "PREFIXED")
    entries = [user(name, 5) for name in ("copier", "worker", "ann")]
    judged = judge_users(entries, "x", "copier worker ann", RECORD, role)
    assert set(judged.kept) == {"copier", "worker"}
    moved = replace(RECORD, retired=frozenset({"orders"}))
    assert "ann" in judge_users(entries, "x", "copier worker ann", moved).kept
    assert "shows no SCRAM user at all" in judge_users(entries, "", "ann").blind
    many = [user(f"u{n}", 5) for n in range(5)]
    assert "5 of 5 SCRAM users" in judge_users(many, "x", "u0 u1 u2 u3 u4").bulk


def test_a_deleted_user_is_shown_with_its_command() -> None:
    judged = judge_users([user("ann", 5)], "x", "ann")
    credentials = {"ann": {"SCRAM-SHA-512": 4096}}
    rows = find_user_differences(FLOW, {}, credentials, TARGET, judged)
    assert [(each.name, each.live, each.wanted, each.applied) for each in rows] == [
        ("ann", "4096 iterations", None, False)
    ]
    assert "deleted at a, seen first at" in rows[0].why
    assert "--entity-name ann --delete-config SCRAM-SHA-512" in rows[0].why


def test_a_user_that_another_flow_may_need_is_kept() -> None:
    made = judge_users(judge_users([], "ann", "").entries, "ann", "ann")
    other = replace(FLOW, id="b", source="paris")
    assert judge_users(made.entries, "x", "ann x").kept == {}
    kept = judge_users(made.entries, "x", "ann x", others=(other,)).kept
    assert kept == {"ann": "flow b may bring it from paris, too"}
    idle = replace(other, sync=NO_SYNC)
    assert judge_users(made.entries, "x", "ann x", others=(idle,)).kept == {}
