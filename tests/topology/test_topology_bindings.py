"""What rights become behind a flow: tables, and a search for any name at which somebody could do more than before."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from watershed.topology.acl_translation import find_surplus_acls, render_acl, translate_acls
from watershed.topology.declared_compatibility import leave_out_tool_topics
from watershed.topology.inventory import InventoryAcl
from watershed.topology.mirror_compatibility import MirrorCompatibility
from watershed.topology.naming import Naming, build_prefix_naming, build_template_naming
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import AclSync, GroupSync, NameFilter, SyncSettings

IDENTITY = Naming()
EVERY = NameFilter()
MAPPED = Naming("map", map=(("ab", "zz"), ("b", "ba")))
ANN = "User:ann"


def selectors(*texts: str) -> tuple[Selector, ...]:
    kinds = {True: "glob", False: "literal"}
    return tuple(
        Selector("regex", text[1:]) if text.startswith("/") else Selector(kinds[bool(set("*?") & set(text))], text)  # type: ignore[arg-type]
        for text in texts
    )


def flow(
    *include: str,
    exclude: Iterable[str] = (),
    naming: Naming = IDENTITY,
    write: str = "never",
    rename: tuple[tuple[str, str], ...] = (),
    names: NameFilter = EVERY,
) -> PlanFlow:
    acls = AclSync("once", names, write)  # type: ignore[arg-type]
    topics = TopicSelection(selectors(*include), selectors(*exclude))
    return PlanFlow("f", "a", "b", topics, naming=naming, sync=SyncSettings(acls=acls, groups=GroupSync(rename=rename)))


def acl(text: str, permission: str = "ALLOW", who: str = ANN, host: str = "*") -> InventoryAcl:
    """`READ TOPIC orders.*`: a prefix."""
    operation, resource, name = text.split()
    starred = name.endswith("*") and name != "*"
    return InventoryAcl(
        who,
        operation,
        permission,
        resource,
        name[:-1] if starred else name,
        "PREFIXED" if starred else "LITERAL",
        host,
    )


def became(one: PlanFlow, *texts: str) -> list[str]:
    found = translate_acls(one, [acl(text) for text in texts])
    assert not found.left
    return [render_acl(each).removeprefix(f"{ANN} ") for each in found.bindings]


ALL = ("*",)


@pytest.mark.parametrize(
    ("one", "given", "expected"),
    [
        (flow("orders"), "READ TOPIC orders", ["READ topic orders"]),
        (flow("orders"), "READ TOPIC payments", []),
        (flow("orders"), "READ TOPIC o*", ["READ topic orders"]),
        (flow("orders"), "READ TOPIC *", ["READ topic orders"]),
        (flow("orders.*"), "READ TOPIC orders.eu.*", ["READ topic orders.eu.*"]),
        (flow("orders.*"), "READ TOPIC o*", ["READ topic orders.*"]),
        (flow("orders.*", "payments"), "READ TOPIC *", ["READ topic orders.*", "READ topic payments"]),
        (flow("orders.*", "orders.x"), "READ TOPIC *", ["READ topic orders.*"]),
        (flow("orders.*"), "READ TOPIC q*", []),
        (flow(*ALL), "READ TOPIC *", ["READ topic *"]),
        (flow(*ALL), "READ TOPIC __consumer_offsets", []),
        (flow("/(a|b).*"), "READ TOPIC a*", ["READ topic a*"]),
        (flow("/(a|b).*"), "READ TOPIC c*", []),
        (flow(*ALL, naming=build_prefix_naming("a")), "READ TOPIC orders", ["READ topic a.orders"]),
        (flow(*ALL, naming=build_prefix_naming("a")), "READ TOPIC orders.*", ["READ topic a.orders.*"]),
        (flow(*ALL, naming=build_prefix_naming("a")), "READ TOPIC *", ["READ topic a.*"]),
        (
            flow(*ALL, naming=build_template_naming("x-{topic}-y", "a", "b")),
            "READ TOPIC orders",
            ["READ topic x-orders-y"],
        ),
        (flow(*ALL, naming=build_template_naming("x-{topic}", "a", "b")), "READ TOPIC o*", ["READ topic x-o*"]),
        (flow("ab", "b", naming=MAPPED), "READ TOPIC *", ["READ topic ba", "READ topic zz"]),
        (flow(*ALL, naming=MAPPED), "READ TOPIC c*", ["READ topic c*"]),
        (flow(*ALL, naming=MAPPED), "READ TOPIC *", ["READ topic *"]),
        (flow(*ALL, naming=MAPPED), "READ TOPIC ab", ["READ topic zz"]),
        (flow(*ALL, exclude=["t*"]), "READ TOPIC orders*", ["READ topic orders*"]),
        (flow(*ALL, exclude=["t*"]), "READ TOPIC tmp*", []),
        (flow(*ALL, names=NameFilter(exclude=selectors("s*"))), "READ TOPIC secret", []),
        (flow(*ALL, names=NameFilter(include=selectors("o*"))), "READ TOPIC *", ["READ topic o*"]),
        (flow(*ALL, names=NameFilter(include=selectors("o*"))), "READ TOPIC p*", []),
        (flow("orders"), "READ GROUP anything", ["READ group anything"]),
        (flow("orders"), "READ GROUP *", ["READ group *"]),
        (flow("orders", rename=(("g", "h"),)), "READ GROUP g", ["READ group h"]),
        (flow("orders", rename=(("g", "h"),)), "READ GROUP x*", ["READ group x*"]),
    ],
)
def test_names(one: PlanFlow, given: str, expected: list[str]) -> None:
    assert became(one, given) == expected


@pytest.mark.parametrize(
    ("one", "given", "why"),
    [
        (flow(*ALL, naming=build_template_naming("{topic}-y", "a", "b")), "READ TOPIC o*", "puts `-y` behind"),
        (flow(*ALL, naming=build_template_naming("{topic}-y", "a", "b")), "READ TOPIC *", "puts `-y` behind"),
        (flow(*ALL, naming=MAPPED), "READ TOPIC a*", "renames `ab`"),
        (flow(*ALL, naming=MAPPED), "READ TOPIC z*", "renames `ab`"),
        (flow("/(a|b).*"), "READ TOPIC *", "takes only some of all names"),
        (flow("*-eu"), "READ TOPIC o*", "takes only some of the names that begin with `o`"),
        (flow(*ALL, exclude=["*-tmp"]), "READ TOPIC o*", "`*-tmp` in `topics.exclude`"),
        (flow(*ALL, exclude=["orders.secret"]), "READ TOPIC orders.*", "`orders.secret` in `topics.exclude`"),
        (flow(*ALL, names=NameFilter(exclude=selectors("o?"))), "READ TOPIC o*", "`o?` in `sync.acls.exclude`"),
        (flow("orders", rename=(("g1", "h1"),)), "READ GROUP g*", "`sync.groups.rename` renames `g1`"),
        (flow("orders", rename=(("g1", "h1"),)), "READ GROUP h*", "`sync.groups.rename` renames `g1`"),
        (flow("orders", rename=(("g1", "g2"),)), "READ GROUP g*", "`sync.groups.rename` renames `g1`"),
        (flow(*ALL, naming=MAPPED), "READ TOPIC b*", "renames `b`"),
        (flow("orders"), "CREATE CLUSTER kafka-cluster", "only rights to topics and groups"),
        (flow("orders"), "WRITE TRANSACTIONAL_ID t", "only rights to topics and groups"),
        (flow("orders"), "CREATE_TOKENS USER ann", "only rights to topics and groups"),
    ],
)
@pytest.mark.parametrize("permission", ["ALLOW", "DENY"])
def test_what_no_pattern_says_is_left_with_why(one: PlanFlow, given: str, why: str, permission: str) -> None:
    found = translate_acls(one, [acl(given, permission)])
    assert (found.bindings, found.withheld) == ((), ())
    [left] = found.left
    assert why in left.why


@pytest.mark.parametrize(
    ("write", "given", "now", "later"),
    [
        ("never", "WRITE TOPIC o", [], []),
        ("on_failover", "WRITE TOPIC o", [], ["WRITE topic o"]),
        ("always", "WRITE TOPIC o", ["WRITE topic o"], []),
        ("never", "ALL TOPIC o", ["DESCRIBE topic o", "DESCRIBE_CONFIGS topic o", "READ topic o"], []),
        (
            "on_failover",
            "ALL TOPIC o",
            ["DESCRIBE topic o", "DESCRIBE_CONFIGS topic o", "READ topic o"],
            ["ALL topic o"],
        ),
        ("always", "ALL TOPIC o", ["ALL topic o"], []),
        ("never", "DELETE TOPIC o", [], []),
        ("never", "ALTER_CONFIGS TOPIC o", [], []),
        ("never", "ALL GROUP g", ["DESCRIBE group g", "READ group g"], []),
        ("on_failover", "DELETE GROUP g", [], ["DELETE group g"]),
    ],
)
def test_rights_to_write_wait(write: str, given: str, now: list[str], later: list[str]) -> None:
    found = translate_acls(flow(*ALL, write=write), [acl(given)])
    assert [render_acl(each).removeprefix(f"{ANN} ") for each in found.bindings] == now
    assert [render_acl(each).removeprefix(f"{ANN} ") for each in found.withheld] == later


@pytest.mark.parametrize("include", ["orders.*", "*"])
def test_tool_topics_that_a_flow_leaves_out_take_no_right_away(include: str) -> None:
    compatibility = MirrorCompatibility("a", "b", heartbeats=True, checkpoints=True, offset_syncs="source")
    plain = flow(include, exclude=["orders.tmp"], naming=build_prefix_naming("a."), write="on_failover")
    topics = leave_out_tool_topics(plain.topics, compatibility, plain.naming)
    assert topics != plain.topics
    with_tools = replace(plain, topics=topics, compatibility=compatibility)
    given = [acl(text) for text in ("READ TOPIC *", "ALL TOPIC orders.eu.*", "WRITE TOPIC orders.eu.*")]
    assert translate_acls(with_tools, given) == translate_acls(plain, given)
    told = translate_acls(with_tools, given)
    assert told.withheld
    assert [each.acl for each in told.left] == given[:1]  # what the file itself excludes still cuts


def test_denials_are_carried_whole_and_come_first() -> None:
    given = [acl("READ TOPIC o"), acl("ALL TOPIC o", "DENY"), acl("WRITE TOPIC p*", "DENY", host="10.0.0.1")]
    found = translate_acls(flow(*ALL, naming=build_prefix_naming("a")), given).bindings
    assert [render_acl(each) for each in found] == [
        f"{ANN} DENY ALL topic a.o",
        f"{ANN} DENY WRITE topic a.p* from 10.0.0.1",
        f"{ANN} READ topic a.o",
    ]


@pytest.mark.parametrize(
    ("denial", "right", "given"),
    [
        (acl("READ TOPIC o*", "DENY"), acl("READ TOPIC orders"), False),
        (acl("READ TOPIC o*", "DENY"), acl("READ TOPIC payments"), True),
        (acl("READ TOPIC o*", "DENY"), acl("READ TOPIC orders", who="User:bob"), True),
        (acl("READ TOPIC o*", "DENY"), acl("READ TOPIC orders", who="User:*"), False),
        (acl("READ TOPIC o*", "DENY", who="User:*"), acl("READ TOPIC orders"), False),
        (acl("READ TOPIC o*", "DENY", host="h"), acl("READ TOPIC orders", host="i"), True),
        (acl("READ TOPIC o*", "DENY", host="h"), acl("READ TOPIC orders"), False),
        (acl("DESCRIBE TOPIC o*", "DENY"), acl("READ TOPIC orders"), False),
        (acl("DESCRIBE_CONFIGS TOPIC o*", "DENY"), acl("READ TOPIC orders"), True),
        (acl("ALL TOPIC o*", "DENY"), acl("DESCRIBE TOPIC orders"), False),
        (acl("READ TOPIC o*", "DENY"), acl("READ GROUP orders"), True),
    ],
)
def test_what_a_denial_that_is_left_takes_away_from_is_not_given(
    denial: InventoryAcl, right: InventoryAcl, given: bool
) -> None:
    found = translate_acls(flow(*ALL, exclude=["*-x"]), [denial, right])
    assert found.left[0].acl == denial
    assert bool(found.bindings) == given
    assert len(found.left) == 2 - given


@pytest.mark.parametrize(
    ("one", "there", "told"),
    [
        (flow("o*", naming=build_prefix_naming("a")), "READ TOPIC a.o1", True),
        (flow("o*", naming=build_prefix_naming("a")), "READ TOPIC a.ox*", True),
        (flow("o*", naming=build_prefix_naming("a")), "READ TOPIC a.p", False),
        (flow("o*", naming=build_prefix_naming("a")), "READ TOPIC o1", False),
        (flow("o*", naming=build_prefix_naming("a")), "READ TOPIC *", False),
        (flow(*ALL), "READ TOPIC *", True),
        (flow(*ALL, naming=build_prefix_naming("a")), "READ TOPIC a.*", True),
        (flow(*ALL, naming=build_prefix_naming("a")), "READ TOPIC a*", False),
        (flow("o*"), "WRITE TOPIC o", False),
        (flow("o*", write="on_failover"), "WRITE TOPIC o", False),
        (flow("o*", write="always"), "WRITE TOPIC o", True),
        (flow(*ALL, naming=MAPPED), "READ TOPIC zz", True),
        (flow(*ALL, naming=MAPPED), "READ TOPIC ab", False),
        (flow("o*", rename=(("g", "h"),)), "READ GROUP h", True),
        (flow("o*"), "READ GROUP watershed.t", False),
        (flow("o*"), "CREATE CLUSTER kafka-cluster", False),
    ],
)
def test_rights_without_an_equal_at_the_source_are_told(one: PlanFlow, there: str, told: bool) -> None:
    elsewhere = acl("READ TOPIC elsewhere")  # the principal is known
    assert bool(find_surplus_acls(one, [elsewhere], [acl(there)])) == told
    denial = acl(there, "DENY")
    assert bool(find_surplus_acls(one, [elsewhere, acl("READ TOPIC o")], [denial])) == (told or "WRITE" in there)


def test_a_group_of_somebody_unknown_is_the_targets_own() -> None:
    assert find_surplus_acls(flow("o*"), [acl("READ TOPIC o")], [acl("READ GROUP g", who="User:bob")]) == []
    lost = [acl("READ GROUP g", who="User:bob"), acl("READ TOPIC o", who="User:bob")]
    assert len(find_surplus_acls(flow("o*"), [acl("READ TOPIC o")], lost)) == 2


def test_what_is_withheld_or_part_of_all_is_not_told_as_lacking() -> None:
    one = flow("o*", write="on_failover")
    here = [acl("ALL TOPIC o"), acl("WRITE TOPIC ox")]
    there = [acl("READ TOPIC o"), acl("ALL TOPIC o"), acl("WRITE TOPIC ox")]
    assert find_surplus_acls(one, here, there) == []


# Every name of up to three letters, seen from both sides.
LETTERS = "ab"
NAMES = ["".join(name) for size in (1, 2, 3) for name in itertools.product(LETTERS, repeat=size)]
PATTERNS = [*NAMES[:6], "*", "a*", "b*", "ab*", "aba*"]
CHOICES = [("*",), ("a*",), ("ab", "b"), ("a*", "b"), ("?b*",), ("/a(a|b)*",), ("*b",)]
RENAMES = [
    IDENTITY,
    build_prefix_naming("a"),
    build_template_naming("{topic}.b", "a", "b"),
    Naming("map", map=(("ab", "zz"), ("b", "bz"))),
]
rights = st.builds(
    acl,
    st.builds("{} TOPIC {}".format, st.sampled_from(["READ", "WRITE", "ALL", "DESCRIBE"]), st.sampled_from(PATTERNS)),
    st.sampled_from(["ALLOW", "ALLOW", "DENY"]),
    st.sampled_from([ANN, "User:*"]),
)


def may(acls: Iterable[InventoryAcl], operation: str, name: str) -> bool:
    """What StandardAuthorizer says to ann."""
    implied = {"DESCRIBE": {"DESCRIBE", "READ", "WRITE", "DELETE", "ALTER"}}.get(operation, {operation})
    allowed = False
    for each in acls:
        covers = each.name == "*" or each.name == name or (each.pattern == "PREFIXED" and name.startswith(each.name))
        if covers and each.permission == "DENY" and each.operation in (operation, "ALL"):
            return False
        allowed = allowed or (covers and each.permission == "ALLOW" and each.operation in {*implied, "ALL"})
    return allowed


@settings(max_examples=choose_examples(100, 300), deadline=None)
@given(
    st.sampled_from(CHOICES),
    st.sampled_from([(), ("ab*",), ("*a",), ("b",)]),
    st.sampled_from(RENAMES),
    st.sampled_from(["never", "on_failover", "always"]),
    st.lists(rights, max_size=5),
)
def test_nobody_may_do_more_at_the_target_and_what_is_carried_is_exact(
    include: tuple[str, ...], exclude: tuple[str, ...], naming: Naming, write: str, acls: list[InventoryAcl]
) -> None:
    one = flow(*include, exclude=exclude, naming=naming, write=write)
    found = translate_acls(one, acls)
    image = {one.target_topic(name): name for name in NAMES if one.selects(name)}
    for operation in ("READ", "WRITE", "DESCRIBE"):
        for name, before in image.items():
            more = may(found.bindings, operation, name) and not may(acls, operation, before)
            assert not more, (operation, name)
            later = (*found.bindings, *found.withheld)
            if not found.left and (operation != "WRITE" or write != "never"):
                assert may(later, operation, name) >= may(acls, operation, before) or operation == "DESCRIBE"
        for name in set(NAMES) - image.keys():
            renamed_away = naming.policy == "map" and any(each.name == "*" for each in found.bindings)
            assert renamed_away or one.source_topic(name) or not may(found.bindings, operation, name), name
    assert translate_acls(one, acls) == translate_acls(one, reversed(acls))
    assert find_surplus_acls(one, acls, found.bindings) == []
