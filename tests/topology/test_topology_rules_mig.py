"""MIG rules beyond their manuals' examples: one change at a time to a migration with nothing wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from watershed.topology.finding import LintFinding
from watershed.topology.lint import lint_topology
from watershed.topology.lint_configuration import LintConfiguration
from watershed.topology.loader import parse_topology
from watershed.topology.migration_waves import LagGate, Wave, compute_wave_hash
from watershed.topology.rule_manual import build_example_inventory, complete_example

CLUSTERS = """\
clusters:
  a:
    bootstrap: [k1.a.example.internal:9093]
    topics: [{match: orders}, {match: payments}]
  b: {bootstrap: [k1.b.example.internal:9093]}
"""
FLOWS = """\
flows:
  - {source: a, target: b, topics: {include: [orders, payments]}}
  - {source: b, target: a, topics: {include: [orders, payments]}, state: paused}
"""
MIGRATION = """\
migration:
  flow: a-to-b
  waves:
    - name: first
      topics: [orders]
      consumers: [billing]
      producers: [checkout]
      window: {opens: "2030-03-09T02:00:00Z", length: 2h}
      gates:
        before: [{lag: {max_records: 0, hold: 5m}}, {verify: {level: L1}}]
        after: [{stragglers: {watch: 6m}}]
      rollback: {until: 24h, reverse: b-to-a}
    - name: second
      after: [first]
      topics: [payments]
      consumers: [ledger]
      producers: [bank]
      gates:
        before: [{lag: {max_records: 0, hold: 5m}}, {verify: {level: L1}}]
        after: [{stragglers: {watch: 6m}}]
      rollback: {until: 72h, reverse: b-to-a}
  decommission: {not_before: 72h}
"""
WHOLE = CLUSTERS + FLOWS + MIGRATION
Change = tuple[str, str]


def found(
    code: str, *changes: Change, scan: str = "", live: bool = False, text: str = WHOLE, **options: object
) -> list[LintFinding]:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    text = complete_example(text + (f"--- # topology scan\n{scan}\n" if scan else ""))
    inventory = build_example_inventory("--- # topology scan\n" + scan, live=live) if scan else None
    configuration = replace(LintConfiguration(), options=options)
    result = lint_topology(parse_topology(text.partition("--- # ")[0]), inventory, configuration)
    return [finding for finding in result.findings if finding.rule == code]


def test_nothing_is_wrong_with_the_whole() -> None:
    result = lint_topology(parse_topology(complete_example(WHOLE)))
    assert [finding for finding in result.findings if finding.severity != "info"] == []


# --- what moves, and when


PATTERN = ("include: [orders, payments]", 'include: [{glob: "*s"}]')


@pytest.mark.parametrize(
    ("changes", "scan", "message"),
    [
        ([("include: [orders, payments]", "include: [orders, payments, refunds]")], "", "carries `refunds`"),
        ([PATTERN], "", ""),
        ([("{match: payments}", "{match: refunds}"), PATTERN], "", "`refunds`"),
        ([("{match: payments}", '{match: {glob: "r*"}}'), PATTERN], "", ""),
        ([PATTERN], "a: {topics: {refunds: {}, other: {}}}", "`refunds`"),
    ],
)
def test_topics_in_no_wave(changes: list[Change], scan: str, message: str) -> None:
    findings = found("MIG801", *changes, scan=scan)
    assert [message in finding.message for finding in findings] == [True] * bool(message)


def test_a_topic_twice_in_one_wave_is_not_in_two() -> None:
    assert found("MIG802", ("topics: [orders]", "topics: [orders, orders]")) == []
    [finding] = found("MIG802", ("topics: [payments]", "topics: [orders, payments]"))
    assert finding.ids == ("orders", "first", "second")
    assert len(finding.labels) == 2


GROUPS = "a: {topics: {orders: {}, payments: {}, other: {}}, groups: {GROUP: {offsets: {OFFSETS}}}}"


@pytest.mark.parametrize(
    ("group", "offsets", "count"),
    [
        ("audit", "orders: {0: 1}, payments: {0: 1}", 1),
        ("billing", "orders: {0: 1}, payments: {0: 1}", 1),
        ("audit", "orders: {0: 1}, other: {0: 1}", 0),
        ("connect-sink", "orders: {0: 1}, payments: {0: 1}", 0),
    ],
)
def test_groups_that_read_topics_of_two_waves(group: str, offsets: str, count: int) -> None:
    scan = GROUPS.replace("GROUP", group).replace("OFFSETS", offsets)
    assert len(found("MIG803", scan=scan)) == count


def test_a_group_in_two_waves_is_told_once() -> None:
    twice = ("consumers: [ledger]", "consumers: [ledger, billing]")
    scan = GROUPS.replace("GROUP", "billing").replace("OFFSETS", "orders: {0: 1}, payments: {0: 1}")
    assert [len(found("MIG803", twice)), len(found("MIG803", twice, scan=scan))] == [1, 1]


def test_an_application_with_both_sides_in_one_wave() -> None:
    assert found("MIG804", ("producers: [checkout]", "producers: [checkout, billing]")) == []
    [finding] = found("MIG804", ("producers: [checkout]", "producers: [checkout, ledger]"))
    assert finding.ids == ("ledger", "first", "second")


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ([("after: [first]", "after: [frist]")], ["wave `second` waits for `frist`, which does not exist"]),
        ([("after: [first]", "after: [second]")], ["waves wait for each other: second -> second"]),
        (
            [("name: second", "name: first")],
            ["two waves are named `first`"],
        ),
        (
            [("      topics: [orders]", "      after: [second]\n      topics: [orders]")],
            ["waves wait for each other: first -> second -> first"],
        ),
    ],
)
def test_waves_that_never_start(changes: list[Change], messages: list[str]) -> None:
    assert [finding.message for finding in found("MIG816", *changes)] == messages


def test_a_long_circle_is_told_in_short() -> None:
    names = [f"w{number}" for number in range(300)]
    waves = "".join(
        f"    - {{name: {name}, after: [{names[index - 1]}], topics: [t]}}\n" for index, name in enumerate(names)
    )
    [finding] = found("MIG816", text=CLUSTERS + FLOWS + "migration:\n  flow: a-to-b\n  waves:\n" + waves)
    assert len(finding.message) < 120
    assert len(finding.labels) == 8
    assert len(finding.ids) == 300


def test_two_circles_and_what_hangs_on_them() -> None:
    wave = "    - {name: NAME, after: [AFTER], topics: [tNAME]}\n"
    pairs = [("z", "p"), ("p", "z"), ("c", "a"), ("b", "c"), ("a", "b"), ("x", "a"), ("free", "")]
    waves = "".join(wave.replace("NAME", name).replace("AFTER", after) for name, after in pairs)
    text = CLUSTERS + FLOWS + "migration:\n  flow: a-to-b\n  waves:\n" + waves
    assert {finding.ids for finding in found("MIG816", text=text)} == {("p", "z"), ("a", "b", "c")}


# --- gates

LAG = "{lag: {max_records: 0, hold: 5m}}, "
STRAGGLERS = ("[{stragglers: {watch: 6m}}]", "[]")
LAB = (("k1.a.example.internal:9093", "127.0.0.1:9092"), ("k1.b.example.internal:9093", "127.0.0.1:9093"))


def test_a_lag_gate_afterwards_is_none() -> None:
    assert len(found("MIG805", (LAG, ""), (STRAGGLERS[0], "[{lag: {max_records: 0, hold: 5m}}]"))) == 1


@pytest.mark.parametrize(
    ("facts", "more", "severities"),
    [
        ("", [], ["info"]),
        (", keyed: true", [], ["warning"]),
        (", keyed: false", [], []),
        (", keyed: true", [("  flow: a-to-b", "  flow: a-to-b\n  strategy: fenced")], []),
        (", keyed: true", list(LAB), ["info"]),
    ],
)
def test_lag_that_is_accepted(facts: str, more: list[Change], severities: list[str]) -> None:
    changes = [("max_records: 0", "max_records: 1"), ("{match: orders}", f"{{match: orders{facts}}}"), *more]
    assert [finding.severity for finding in found("MIG806", *changes)] == severities


@pytest.mark.parametrize(
    ("changes", "severities"),
    [
        ([], []),
        ([STRAGGLERS], ["warning"]),
        ([STRAGGLERS, *LAB], ["info"]),
        ([STRAGGLERS, ("      producers: [checkout]\n", "")], []),
        ([STRAGGLERS, ("      producers: [checkout]\n", "      strategy: fenced\n")], ["warning"]),
    ],
)
def test_watching_for_stragglers(changes: list[Change], severities: list[str]) -> None:
    assert [finding.severity for finding in found("MIG810", *changes)] == severities


@pytest.mark.parametrize(
    ("watch", "more", "severities"),
    [
        ("5m", (), []),
        ("299s", (), ["warning"]),
        ("10s", (), ["warning"]),
        ("9999ms", (), ["error"]),
        ("1s", LAB, ["info"]),
        ("1s", LAB[:1], ["error"]),
    ],
)
def test_watching_long_enough(watch: str, more: tuple[Change, ...], severities: list[str]) -> None:
    assert [finding.severity for finding in found("MIG811", ("watch: 6m", f"watch: {watch}"), *more)] == severities


def test_a_proof_afterwards_is_one() -> None:
    bare = (", {verify: {level: L1}}", "")
    assert len(found("MIG812", bare)) == 1
    assert found("MIG812", bare, ("watch: 6m}}", "watch: 6m}}, {verify: {level: L1}}")) == []


@pytest.mark.parametrize(
    ("sample", "options", "note"),
    [
        ("100%", {}, ""),
        ("95%", {}, ""),
        ("94%", {}, "1 - (1 - 0.94)^1 = 0.9400; asked for is 0.95"),
        ("5%", {}, "1 - (1 - 0.05)^1 = 0.0500; asked for is 0.95"),
        ("5%", {"bad_records": 58}, "1 - (1 - 0.05)^58 = 0.9490; asked for is 0.95"),
        ("5%", {"bad_records": 59}, ""),
        ("0%", {}, "1 - (1 - 0)^1 = 0.0000; asked for is 0.95"),
    ],
)
def test_samples(sample: str, options: dict[str, int], note: str) -> None:
    findings = found("MIG813", ("{level: L1}", f"{{level: L1, sample: {sample}}}"), **options)
    assert [finding.notes[0] for finding in findings] == [note] * bool(note)


def test_how_many_bad_records_a_sample_sees() -> None:
    [finding] = found("MIG813", ("{level: L1}", "{level: L1, sample: 5%}"))
    assert finding.notes[1] == "59 bad records or more are seen with 95%"
    assert found("MIG813", ("{level: L1}", "{level: L0, sample: 5%}")) == []


# --- windows


@pytest.mark.parametrize(
    ("length", "more", "scan", "note"),
    [
        ("11m", [], "", ""),
        ("10m", [], "", "5m lag held + 6m watching stragglers = 11m"),
        (
            "20m",
            [("watch: 6m}}", "watch: 6m}}, {consumer_lag: {max_records: 0, within: 10m}}")],
            "",
            "5m lag held + 6m watching stragglers + 10m consumers catching up = 21m",
        ),
        (
            "20m",
            [],
            "a: {topics: {orders: {size_bytes: 62914560000}, payments: {}}}",
            "5m lag held + 6m watching stragglers + 10m reading at 100MiB/s = 21m",
        ),
    ],
)
def test_windows(length: str, more: list[Change], scan: str, note: str) -> None:
    findings = found("MIG814", ("length: 2h", f"length: {length}"), *more, scan=scan)
    assert [finding.notes[0] for finding in findings] == [note] * bool(note)


@pytest.mark.parametrize(("opens", "count"), [("T02:00:00Z", 0), ("T02:00+01:00", 0), ("T02:00:00", 1), ("T02:00", 1)])
def test_moments_without_a_zone(opens: str, count: int) -> None:
    assert len(found("MIG815", ("T02:00:00Z", opens))) == count


# --- the way back

ROLLBACK = "rollback: {until: 24h, reverse: b-to-a}"


@pytest.mark.parametrize(
    ("rollback", "count"),
    [
        ("", 1),
        ("rollback: {}", 1),
        ('rollback: {none: "the source is sold"}', 0),
        ("rollback: {until: 24h}", 0),
        ("rollback: {reverse: b-to-a}", 0),
    ],
)
def test_no_way_back(rollback: str, count: int) -> None:
    assert len(found("MIG807", (ROLLBACK, rollback))) == count


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([], ""),
        ([(ROLLBACK, 'rollback: {none: "the source is sold"}')], ""),
        ([(ROLLBACK, "rollback: {until: 24h}")], "says how long, but no flow"),
        ([("reverse: b-to-a", "reverse: b-to-c")], "names no declared flow: `b-to-c`"),
        ([("reverse: b-to-a", "reverse: a-to-b")], "does not lead from b back to a"),
        (
            [("include: [orders, payments]}, state", "include: [payments]}, state")],
            "names b-to-a, which does not carry `orders` back",
        ),
        ([("state: paused", "state: paused, provenance: {guard: none}")], "which is not guarded"),
        ([("state: paused", "state: paused, naming: {policy: prefix}")], "does not carry `orders` back"),
    ],
)
def test_a_way_back_that_does_not_lead_back(changes: list[Change], message: str) -> None:
    findings = [finding for finding in found("MIG808", *changes) if finding.ids[0] == "first"]
    assert [message in finding.message for finding in findings] == [True] * bool(message)


def test_a_rename_and_its_inverse() -> None:
    there = "include: [orders, payments]}, naming: {policy: map, map: {orders: o, payments: p}}}"
    back = "include: [o, p]}, naming: {policy: map, map: {o: orders, p: payments}}, state"
    changes = [("include: [orders, payments]}}", there), ("include: [orders, payments]}, state", back)]
    assert found("MIG808", *changes) == []


def test_producers_first() -> None:
    back = "  - {source: b, target: a, topics: {include: [orders, payments]}, state: paused}\n"
    first = ("consumers: [ledger]", "strategy: producers_first\n      consumers: [ledger]")
    assert found("MIG809", first) == []
    assert found("MIG809", (back, "")) == []
    [finding] = found("MIG809", first, (back, ""))
    assert finding.ids == ("second", "a-to-b")


@pytest.mark.parametrize(
    ("changes", "scan", "paths"),
    [
        ([], "", []),
        ([("not_before: 72h", "not_before: 71h")], "", ["migration.decommission.not_before"]),
        ([("{match: payments}", "{match: payments, retention: 72h}")], "", []),
        ([("{match: payments}", "{match: payments, retention: 71h}")], "", ["migration.waves[1].rollback.until"]),
        ([("{match: payments}", "{match: payments, retention: forever}")], "", []),
        ([("{match: payments}", "{match: payments, retention: 1h, cleanup: compact}")], "", []),
        (
            [("{match: orders}", "{match: orders, retention: 7d}")],
            "a: {topics: {orders: {configs: {retention.ms: '3600000'}}, payments: {}}}",
            ["migration.waves[0].rollback.until"],
        ),
    ],
)
def test_what_a_rollback_needs(changes: list[Change], scan: str, paths: list[str]) -> None:
    assert [finding.path for finding in found("MIG817", *changes, scan=scan)] == paths


@pytest.mark.parametrize(
    ("changes", "options", "count"),
    [
        ([], {}, 0),
        ([("topics: [orders]", "topics: [orders, t2, t3]")], {"wave_topics": 2}, 1),
        ([("topics: [orders]", "topics: [orders, t2, t3]")], {"wave_topics": 3}, 0),
        ([("consumers: [billing]", "consumers: [billing, ledger]"), ("      consumers: [ledger]\n", "")], {}, 1),
        ([("consumers: [ledger]", "consumers: [ledger, tax]"), ("      consumers: [billing]\n", "")], {}, 0),
    ],
)
def test_big_bangs(changes: list[Change], options: dict[str, int], count: int) -> None:
    assert len(found("MIG818", *changes, **options)) == count


def test_the_order_of_waves_changes_no_finding() -> None:
    wave = (
        "    - {name: NAME, after: [AFTER], topics: [orders, t-NAME],\n"
        "       consumers: [c-NAME, both], producers: [c-AFTER],\n"
        "       rollback: {until: 99d, reverse: b-to-a}}\n"
    )
    names = [("ka", "mo"), ("mo", "nu"), ("nu", "ka")]
    waves = [wave.replace("NAME", name).replace("AFTER", after) for name, after in names]
    head = CLUSTERS + FLOWS + "migration:\n  flow: a-to-b\n  waves:\n"
    tail = "  decommission: {not_before: 1d}\n"
    told = []
    for order in permutations(waves):
        findings = lint_topology(parse_topology(complete_example(head + "".join(order) + tail))).findings
        told.append(sorted((each.rule, each.message) for each in findings))
    for each in told:
        assert each == told[0]
    assert {"MIG801", "MIG802", "MIG803", "MIG804", "MIG805", "MIG816", "MIG817", "MIG821"} <= {
        rule for rule, _ in told[0]
    }


# --- groups that move later than their producers


LATE = """\
    - name: late
      strategy: consumers_last
      topics: [orders, payments]
      consumers: [audit]
      gates:
        before: [{lag: {max_records: 0, hold: 5m}}, {verify: {level: L1}}]
  decommission: {not_before: 72h}
"""
WITH_LATE = WHOLE.replace("  decommission: {not_before: 72h}\n", LATE)


def test_late_groups_may_read_what_several_waves_have_moved() -> None:
    result = lint_topology(parse_topology(complete_example(WITH_LATE)))
    assert [finding for finding in result.findings if finding.severity != "info"] == []
    scan = GROUPS.replace("GROUP", "audit").replace("OFFSETS", "orders: {0: 1}, payments: {0: 1}")
    assert found("MIG803", scan=scan, text=WITH_LATE) == []
    migration = parse_topology(complete_example(WITH_LATE)).topology.migration
    late = migration.wave("late")
    assert (late.after, late.rollback) == (("first", "second"), migration.wave("first").rollback)


def test_a_wave_that_waits_for_its_late_groups_waits_for_ever() -> None:
    [finding] = found(
        "MIG816", ("      topics: [orders]", "      after: [late]\n      topics: [orders]"), text=WITH_LATE
    )
    assert finding.ids == ("first", "late")


@pytest.mark.parametrize(
    ("code", "changes", "ids"),
    [
        ("MIG832", [("topics: [orders, payments]\n      consumers", "topics: [orders, refunds]\n      consumers")],
         ("late", "refunds")),
        ("MIG833", [("rollback: {until: 24h, reverse: b-to-a}", "rollback: {none: never}")], ("first", "late")),
        ("MIG833", [("rollback: {until: 72h, reverse: b-to-a}", "rollback: {until: 72h, reverse: other}")],
         ("late", "b-to-a", "other")),
        ("MIG834", [("consumers: [audit]", "consumers: [audit]\n      producers: [refund-desk]")],
         ("late", "producers")),
        ("MIG834", [("consumers: [audit]", "consumers: [audit]\n      fence: {kind: stop}")], ("late", "fence")),
        ("MIG834", [("      consumers: [audit]\n", "")], ("late", "consumers")),
        ("MIG834", [("consumers: [audit]", "consumers: [audit]\n      hooks: {fenced: [dns]}")],
         ("late", "hooks.fenced")),
        ("MIG834", [("consumers: [audit]\n      gates:",
                     "consumers: [audit]\n      gates:\n        after: [{stragglers: {watch: 6m}}]")],
         ("late", "gates.stragglers")),
        ("MIG834", [("consumers: [audit]\n      gates:",
                     "consumers: [audit]\n      gates:\n        after: [{verify: {level: L1}}]")],
         ("late", "gates.after.verify")),
    ],
)  # fmt: skip
def test_what_a_wave_of_late_groups_lacks(code: str, changes: list[Change], ids: tuple[str, ...]) -> None:
    assert [finding.ids for finding in found(code, *changes, text=WITH_LATE)] == [ids]


def test_a_migration_as_a_whole_cannot_be_late() -> None:
    [finding] = found("SYN011", ("  flow: a-to-b", "  flow: a-to-b\n  strategy: consumers_last"))
    assert finding.message.endswith("`consumers_last` is said by single waves, under `migration.waves[].strategy`")


# --- fences, hooks, groups


def having(*lines: str) -> Change:
    return ("  flow: a-to-b", "\n".join(("  flow: a-to-b", *(f"  {line}" for line in lines))))


@pytest.mark.parametrize(
    ("fence", "told", "ids"),
    [
        ("acl", "checkout: {principal: 'User:c'}", [("second", "bank")]),
        ("acl", "checkout: {client_id: c}, bank: {principal: 'User:b'}", [("first", "checkout")]),
        ("quota", "checkout: {client_id: c}, bank: {principal: 'User:b'}", []),
        ("quota", "checkout: {principal: 'Group:c', client_id: c}, bank: {client_id: b}", [("first", "checkout")]),
        ("quota", "checkout: {http: 'http://127.0.0.1:1'}, bank: {client_id: b}", [("first", "checkout")]),
        ("stop", "checkout: {client_id: c}", []),
    ],
)
def test_whom_a_fence_keeps_out(fence: str, told: str, ids: list[tuple[str, str]]) -> None:
    changes = having(f"fence: {{kind: {fence}}}", f"applications: {{{told}}}")
    assert [finding.ids for finding in found("MIG822", changes)] == ids


def test_a_wave_with_a_fence_of_its_own() -> None:
    own = ("      producers: [bank]", "      producers: [bank]\n      fence: {kind: acl}")
    assert [finding.ids for finding in found("MIG822", own)] == [("second", "bank")]


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ([having("fence: {kind: external}")], ["migration.fence.hook"]),
        ([having("fence: {kind: external, hook: gate}")], ["migration.fence.hook"]),
        ([having("fence: {kind: external, hook: gate}", "hooks: {gate: {python: gate}}")], []),
        (
            [having("hooks: {gate: {python: gate}}"), ("{verify: {level: L1}}]", "{check: {hook: gates}}]")],
            ["migration.waves[0].gates"],
        ),
        (
            [having("hooks: {gate: {python: gate}}"), ("producers: [bank]", "hooks: {rolled_back: [gate, told]}")],
            ["migration.waves[1].hooks.rolled_back"],
        ),
    ],
)
def test_hooks_that_are_not_there(changes: list[Change], paths: list[str]) -> None:
    assert [finding.path for finding in found("MIG823", *changes)] == paths


@pytest.mark.parametrize(("group", "count"), [("billing", 0), ("ledger", 0), ("biling", 1)])
def test_policies_for_groups(group: str, count: int) -> None:
    findings = found("MIG824", having(f"groups: {{{group}: {{uncommitted: latest}}}}"))
    assert len(findings) == count
    assert all("did you mean `billing`" in str(finding.help) for finding in findings)


# --- live

FIRST = Wave("first", ("orders",), ("billing",), ("checkout",))


def seen(**waves: str) -> str:
    started = ", ".join(f"example/{name}: '{hash_}'" for name, hash_ in waves.items())
    return f"b: {{groups: {{billing: {{members: 2}}, tax: {{members: 1}}}}, started_waves: {{{started}}}}}"


def test_groups_that_live_at_the_target() -> None:
    [finding] = found("MIG819", scan=seen(), live=True)
    assert "moves `billing` to b, where `billing` already has 2 members" in finding.message
    assert found("MIG819", scan=seen(first=compute_wave_hash(FIRST)), live=True) == []
    assert found("MIG819", scan=seen(), live=False) == []


@pytest.mark.parametrize(("members", "count"), [(0, 0), (1, 1)])
def test_without_a_journal_a_group_on_one_side_may_have_moved(members: int, count: int) -> None:
    unread = seen().replace(", started_waves: {}", "")
    source = f"a: {{topics: {{orders: {{}}}}, groups: {{billing: {{members: {members}}}}}}}"
    assert len(found("MIG819", scan=f"{unread}\n{source}", live=True)) == count
    assert found("MIG820", scan=unread, live=True) == []


def test_started_waves() -> None:
    same = seen(first=compute_wave_hash(FIRST))
    assert found("MIG820", scan=same, live=True) == []
    assert found("MIG820", ("watch: 6m", "watch: 7m"), scan=same, live=True) == []
    [finding] = found("MIG820", ("producers: [checkout]", "producers: [checkout, shop]"), scan=same, live=True)
    assert finding.ids == ("first",)
    [finding] = found("MIG820", ("name: first", "name: one"), ("after: [first]", "after: []"), scan=same, live=True)
    assert finding.message == "the file lost `first`, which has started"
    assert found("MIG820", scan=same.replace("example/", "another/"), live=True) == []


def test_a_hash_is_of_what_moves() -> None:
    assert compute_wave_hash(FIRST) == compute_wave_hash(replace(FIRST, gates_before=(LagGate(0, 1),), window=None))
    assert compute_wave_hash(replace(FIRST, topics=("a", "b"))) == compute_wave_hash(replace(FIRST, topics=("b", "a")))
    changes: list[dict[str, object]] = [
        {"topics": ("payments",)},
        {"consumers": ()},
        {"producers": ()},
        {"after": ("x",)},
        {"strategy": "fenced"},
    ]
    assert len({compute_wave_hash(replace(FIRST, **change)) for change in changes} | {compute_wave_hash(FIRST)}) == 6  # type: ignore[arg-type]


def test_who_reads_and_writes_moves_fenced() -> None:
    both = ("      producers: [bank]", "      producers: [bank, ledger]")
    assert [finding.ids for finding in found("MIG825", both)] == [("second", "ledger")]
    assert not found("MIG825", both, having("strategy: fenced"))


GOES_ON = having("hooks: {gateway: {python: gateway, on_failure: continue}, ready: {python: ready}}")


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        (having("fence: {kind: external, hook: gateway}"), [("gateway",)]),
        (("    - name: first", "    - name: first\n      fence: {kind: external, hook: gateway}"), [("gateway",)]),
        (having("fence: {kind: external, hook: ready}"), []),
        (having("fence: {kind: external, hook: nobody}"), []),
    ],
    ids=["of all", "of a wave", "of another hook", "undefined"],
)
def test_a_fence_heeds_its_hook(where: Change, ids: list[tuple[str, ...]]) -> None:
    assert [finding.ids for finding in found("MIG826", where, GOES_ON)] == ids


@pytest.mark.parametrize(("hook", "ids"), [("gateway", [("first", "gateway")]), ("ready", [])])
@pytest.mark.parametrize("gates", ["before: [", "after: ["])
def test_a_check_can_say_no(gates: str, hook: str, ids: list[tuple[str, ...]]) -> None:
    check = (gates, f"{gates}{{check: {{hook: {hook}}}}}, ")
    assert [finding.ids for finding in found("MIG827", check, GOES_ON)] == ids
