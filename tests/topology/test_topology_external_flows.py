"""Copies that other tools make: edges in the graph proof, what a flow leaves to them, and how they are written down."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from watershed.topology.external_flows import ExternalFlow, render_external_flows
from watershed.topology.lint import LintResult, lint_topology
from watershed.topology.loader import load_topology, parse_topology
from watershed.topology.model import Topology
from watershed.topology.naming import build_prefix_naming
from watershed.topology.picture import render_picture
from watershed.topology.plan import Plan, PlanFlow, decode_plan, encode_plan
from watershed.topology.plan_builder import build_plan
from watershed.topology.rule_manual import build_example_inventory, complete_example
from watershed.topology.selectors import Selector, TopicSelection

OURS = "flows:\n  - {source: a, target: b, topics: {include: [orders]}%s}\n"
MARK = ", transform: {set: {headers.by-us: \"'1'\"}}"


def tool(
    more: str = "", *, name: str = "theirs", of: str = "mirrormaker2", source: str = "b", target: str = "a"
) -> str:
    topics = "" if "topics:" in more else ", topics: {include: [orders]}"
    return f"  - {{name: {name}, tool: {of}, source: {source}, target: {target}{topics}{more}}}\n"


def write(*tools: str, ours: str = "") -> str:
    return complete_example(OURS % ours + "external_flows:\n" + "".join(tools))


def lint(text: str) -> LintResult:
    return lint_topology(parse_topology(text))


def found(text: str, *families: str) -> list[str]:
    """Codes of the errors, of these families."""
    wanted = families or ("GRF", "SYN", "CLU", "NAM")
    errors = (each for each in lint(text).findings if each.severity == "error")
    return sorted({each.rule for each in errors if each.rule.startswith(wanted)})


def load(text: str) -> Topology:
    loaded = parse_topology(text)
    assert loaded.topology is not None, loaded.problems
    return loaded.topology


def build(text: str) -> Plan:
    result = lint(text)
    assert not result.errors, [(each.rule, each.message) for each in result.findings]
    return build_plan(load(text), result.proofs)


IDENTITY = ", naming: {policy: identity}"
MARKED = f"{IDENTITY}, marks_with: mark"


@pytest.mark.parametrize(
    ("more", "ours", "wanted"),
    [
        ("", "", []),  # MirrorMaker's own names: `b.orders` is not selected again
        (IDENTITY, "", ["GRF220"]),
        (MARKED, "", ["GRF205"]),  # a record of a comes back to a, once
        (f"{IDENTITY}, leaves_out: by-us", MARK, ["GRF205"]),  # a record of b comes back to b
        (f"{MARKED}, leaves_out: by-us", MARK, []),
        (f"{MARKED}, leaves_out: by-us", ", provenance: {header: by-us}", []),
        (f"{MARKED}, leaves_out: by-us", ", provenance: {header: other}", ["GRF205"]),
        (f"{MARKED}, leaves_out: by-us", "", ["GRF205"]),  # nobody puts that header on
        (f"{MARKED}, leaves_out: by-us", MARK.replace("'1'", "value"), ["GRF205"]),  # may be null
        (f"{MARKED}, leaves_out: by-us", MARK + ", provenance: {guard: none}", ["GRF205"]),
        (f"{IDENTITY}", ", provenance: {guard: none}", ["GRF220"]),
        (", topics: {include: [payments]}, naming: {policy: identity}", "", []),
    ],
)
def test_a_way_back_under_unchanged_names(more: str, ours: str, wanted: list[str]) -> None:
    assert found(write(tool(more), ours=ours), "GRF") == wanted


def test_two_tools_alone_can_circulate_records() -> None:
    here, back = (
        tool(IDENTITY, name="here", source="b", target="c"),
        tool(IDENTITY, name="back", source="c", target="b"),
    )
    assert "GRF220" in found(write(here, back), "GRF")
    note = ", marks_with: __replicator_id"
    here = tool(note, name="here", of="replicator", source="b", target="c")
    back = tool(note, name="back", of="replicator", source="c", target="b")
    assert "GRF220" not in found(write(here, back), "GRF")  # Replicator knows its own


def test_records_that_nobody_tells_apart_pass_a_flow_that_takes_only_what_is_born_there() -> None:
    text = "flows:\n  - {source: a, target: b, topics: {include: [orders]}, provenance: {forward: local}}\n"
    whole = complete_example(text + "external_flows:\n" + tool(IDENTITY))
    assert found(whole, "GRF") == ["GRF220"]
    assert "GRF220" not in found(complete_example(text + "external_flows:\n" + tool(MARKED)), "GRF")


def test_a_way_back_over_a_third_cluster_needs_the_id_of_the_tools_source() -> None:
    """Guards behind the first one compare cluster ids, and the tool's batches have none."""
    text = """clusters:
  a: {bootstrap: [a.example.internal:9092]}
  b: {bootstrap: [b.example.internal:9092]%s}
  c: {bootstrap: [c.example.internal:9092]}
flows:
  - {source: a, target: c, topics: {include: [orders]}, merge: {allowed: true}}
  - {source: c, target: b, topics: {include: [orders]}, merge: {allowed: true}}
external_flows:
  - {name: back, tool: brooklin, source: b, target: a, topics: {include: [orders]}, marks_with: mark}
"""
    assert "GRF220" in found(complete_example(text % ""), "GRF")
    assert "GRF220" not in found(complete_example(text % ", cluster_id: the-id-of-b"), "GRF")


def test_both_copy_the_same() -> None:
    same = {"source": "a", "target": "b", "of": "brooklin"}
    assert found(write(tool(**same)), "GRF") == ["GRF221"]
    stopped = lint(write(tool(", enabled: false", **same)))
    assert [each.severity for each in stopped.findings if each.rule == "GRF221"] == ["warning"]


def test_a_tool_that_has_stopped_makes_no_loop() -> None:
    [told] = [each for each in lint(write(tool(f"{IDENTITY}, enabled: false"))).findings if each.rule == "GRF220"]
    assert (told.severity, told.message) == ("warning", "what theirs copied before it stopped is copied back, once")


def test_another_writer_needs_a_merge_on_ours_and_transactions() -> None:
    beside = tool(source="c", target="b", of="brooklin")
    assert found(write(beside), "GRF") == ["GRF204"]
    [flow] = build(write(beside, ours=", merge: {allowed: true}")).flows
    assert flow.delivery == "transactions"
    assert flow.delivery_reason == "theirs writes orders in b, too"


def test_a_mirror_topic_takes_nobody_elses_records() -> None:
    link = tool(source="c", target="b", of="cluster_link")
    assert found(write(link, ours=", merge: {allowed: true}"), "GRF") == ["GRF222"]
    stopped = tool(", enabled: false", source="c", target="b", of="cluster_link")
    assert found(write(stopped, ours=", merge: {allowed: true}"), "GRF") == []


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        (tool(name="a-to-b"), "the name `a-to-b` is taken by a flow of this file"),
        (tool() + tool(source="c"), "the name `theirs` is taken by another external flow"),
        (tool(source="a"), "`external_flows[0]` copies cluster `a` into itself"),
        (tool(f"{IDENTITY}, aliases: {{source: us}}"), "names under the policy `identity` have no alias in them"),
        (
            tool(", marks_with: x", of="cluster_link"),
            "a cluster link copies bytes as they are, so it has no `marks_with`",
        ),
    ],
)
def test_contradictions(tools: str, message: str) -> None:
    told = [each.message for each in lint(write(tools)).findings if each.rule == "SYN018"]
    assert len(told) == 1
    assert message in told[0]


def test_files_of_one_folder_put_them_together(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(write(tool()), encoding="utf-8")
    head = "apiVersion: topology/v1alpha1\nkind: Topology\n"
    name = load(write(tool())).name
    more = tool(name="more", source="c")
    (tmp_path / "two.yaml").write_text(f"{head}metadata: {{name: {name}}}\nclusters:\n  c: {{bootstrap: [c:1]}}\n"
                                       f"external_flows:\n{more}", encoding="utf-8")  # fmt: skip
    topology = load_topology(tmp_path).topology
    assert topology is not None
    assert [each.id for each in topology.external_flows] == ["more", "theirs"]


def test_two_tools_with_one_mark_cannot_be_told_apart() -> None:
    one, two = (tool(MARKED, name=f"of-{source}", source=source) for source in "bc")
    [told] = [each for each in lint(write(one, two)).findings if each.rule == "SYN018"]
    assert told.message == "of-b and of-c mark records in `a/orders` with one header, `mark`"
    other = two.replace("marks_with: mark", "marks_with: another")
    elsewhere = tool(f"{MARKED}, topics: {{include: [payments]}}", name="of-c", source="c")
    for second in (other, elsewhere):
        assert "SYN018" not in found(write(one, second), "SYN")


def test_an_unknown_cluster_and_a_selection_of_nothing() -> None:
    assert found(write(tool(source="nowhere")), "CLU") == ["CLU101"]
    assert "SYN012" in found(write(tool(", topics: {exclude: [orders]}")), "SYN")


def test_mirrormakers_names_follow_its_aliases_and_it_takes_no_copy_of_a_copy() -> None:
    text = tool(', topics: {include: [{glob: "*"}]}, aliases: {source: us-east, target: eu}, naming: {policy: prefix}')
    [theirs] = build(write(text)).external_flows
    assert theirs.naming.apply("orders") == "us-east.orders"
    taken = ["orders", "us-east.orders", "eu.orders", "x.eu.orders", "x.eu", "europe.orders"]
    assert [name for name in taken if theirs.topics.selects(name)] == [
        "orders",
        "us-east.orders",
        "x.eu",
        "europe.orders",
    ]


def test_a_flow_leaves_to_others_what_is_theirs() -> None:
    wide = 'flows:\n  - {source: a, target: b, topics: {include: [{glob: "*"}]}}\n'
    wide += '  - {source: a, target: c, topics: {include: [{glob: "*"}]}, naming: {policy: prefix}}\n'
    text = complete_example(wide + "external_flows:\n" + tool(", topics: {include: [orders]}"))
    plan = build(text)
    back, on = plan.flow("a-to-b"), plan.flow("a-to-c")
    topics = ["orders", "b.orders", "b.payments", "heartbeats", "b.heartbeats", "c.heartbeats"]
    assert [name for name in topics if back.selects(name)] == ["orders", "b.payments", "c.heartbeats"]
    assert [name for name in topics if on.selects(name)] == ["orders", "b.orders", "b.payments", "c.heartbeats"]


def test_what_is_named_is_taken() -> None:
    text = "flows:\n  - {source: a, target: b, topics: {include: [orders, heartbeats]}}\nexternal_flows:\n" + tool()
    [flow] = build(complete_example(text)).flows
    assert flow.selects("heartbeats")


def test_heartbeats_that_are_left_out_are_no_finding() -> None:
    wide = 'flows:\n  - {source: a, target: b, topics: {include: [{glob: "*"}]}}\n'
    scan = "--- # topology scan\na: {topics: {orders: {}, heartbeats: {}, mm2-offset-syncs.b.internal: {}}}\n"

    def ask(text: str) -> set[str]:
        loaded = parse_topology(complete_example(text))
        found = lint_topology(loaded, build_example_inventory(text)).findings
        return {each.rule for each in found} & {"NAM308", "NAM314"}

    assert ask(wide + scan) == {"NAM308", "NAM314"}
    assert ask(wide + "external_flows:\n" + tool(", topics: {include: [payments]}") + scan) == set()
    ours = "compatibility: {mirrormaker: {heartbeats: true, offset_syncs: true}}"  # then these topics are ours
    assert ask(wide.replace("}}\n", "}, " + ours + "}\n") + scan) == set()


def test_equal_offsets_do_not_go_with_records_that_are_left_out() -> None:
    ours = "flows:\n  - {source: a, target: b, topics: {include: [orders]}, offsets: aligned}\nexternal_flows:\n"
    [flow] = build(complete_example(ours + tool(f"{MARKED}, enabled: false"))).flows
    assert flow.offsets == "mapped"
    assert flow.offsets_reason == "records that other tools brought to its source may be left out"
    [flow] = build(complete_example(ours + tool())).flows
    assert flow.offsets == "aligned"


def test_a_plan_holds_them_and_reads_them_back() -> None:
    plan = build(write(tool(f"{MARKED}, leaves_out: by-us"), ours=MARK))
    assert decode_plan(encode_plan(plan)) == plan
    [flow] = plan.flows
    assert flow.beside == plan.external_flows
    assert flow.list_left_out_marks("orders") == ("mark",)
    assert flow.list_left_out_marks("payments") == ()
    without = build(complete_example(OURS % ""))
    assert "external_flows" not in encode_plan(without)
    assert "beside" not in encode_plan(without)


def test_an_unknown_tool_is_no_plan() -> None:
    plan = build(write(tool()))
    with pytest.raises(Exception, match="not a plan"):
        decode_plan(encode_plan(plan).replace('"mirrormaker2"', '"mirrormaker3"'))


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("", "  theirs: b to a by MirrorMaker 2, orders as b.*; only it writes these topics"),
        (
            IDENTITY + ", enabled: false",
            "  theirs: b to a by MirrorMaker 2 (stopped), orders; nothing tells its records apart",
        ),
        (MARKED, "  theirs: b to a by MirrorMaker 2, orders; its records have the header mark"),
    ],
)
def test_what_people_read(more: str, line: str) -> None:
    text = complete_example("external_flows:\n" + tool(more))
    tools = tuple(each.external for each in load(text).external_flows if each.external is not None)
    assert render_external_flows(tools) == ["copied by others, never by us:", line]
    assert render_external_flows(()) == []


@pytest.mark.parametrize(
    ("form", "drawn"),
    [
        ("text", "└··▶ a  orders (prefix)  [by MirrorMaker 2]"),
        ("mermaid", 'n1 -->|"orders (prefix) (by MirrorMaker 2)"| n0'),
        ("dot", '"b" -> "a" [label="orders (prefix) (by MirrorMaker 2)", style=dotted, color=darkorange3];'),
        ("svg", "theirs: orders (prefix)  [by MirrorMaker 2]"),
    ],
)
def test_the_picture_draws_them_with_another_line(form: str, drawn: str) -> None:
    picture = render_picture(load(write(tool())), form, "clusters")
    assert drawn in picture
    if form == "svg":
        assert 'class="flow external"' in picture
        assert 'marker-end="url(#external)"' in picture
    if form == "mermaid":
        assert "linkStyle 1 stroke:#8a5a00,stroke-dasharray:2 3" in picture


def test_the_picture_of_topics_has_them_too() -> None:
    assert "[by MirrorMaker 2]" in render_picture(load(write(tool())), "text", "topics")


def test_only_writer() -> None:
    topics = TopicSelection((Selector("glob", "o*"),), (Selector("literal", "other"),))
    renaming = ExternalFlow("x", "mirrormaker2", "b", "a", topics, build_prefix_naming("b"))
    assert [renaming.is_only_writer(name) for name in ("b.orders", "b.other", "orders", "b.x")] == [
        True,
        False,
        False,
        False,
    ]
    link = ExternalFlow("x", "cluster_link", "b", "a", topics)
    assert [link.is_only_writer(name) for name in ("orders", "other")] == [True, False]


class Pump:
    """Moves single records over all ways until nothing changes, or one stands too often. A record is (birth cluster,
    headers, whose batch it is in at this cluster: the last flow)."""

    def __init__(self, topology: Topology) -> None:
        self.flows = topology.all_flows

    def most(self, birth: str) -> int:
        """How often a record born at this cluster stands at one cluster at the end; 4 and more: without end."""
        stands: list[tuple[str, frozenset[str], Any, frozenset[str]]] = [(birth, frozenset(), None, frozenset({birth}))]
        copied: dict[str, int] = {birth: 1}
        while stands:
            cluster, headers, last, known = stands.pop()
            for flow in self.flows:
                if flow.source != cluster or self.stops(flow, headers, last, known):
                    continue
                copied[flow.target] = copied.get(flow.target, 0) + 1
                if copied[flow.target] >= 4:
                    return 4
                stands.append((flow.target, headers | self.adds(flow), flow, self.knows(flow, known)))
        return max(copied.values())

    @staticmethod
    def stops(flow: Any, headers: frozenset[str], last: Any, known: frozenset[str]) -> bool:
        if flow.external is not None:
            return flow.external.leaves_out in headers
        if last is not None and last.external is not None:  # a batch of a tool: only its header tells
            if last.external.marks_with is None:
                return False
            return flow.plan.forward == "local" or (flow.plan.guard == "producer_id" and last.source == flow.target)
        if flow.plan.forward == "local" and last is not None:
            return True
        return flow.plan.guard == "producer_id" and flow.target in known

    @staticmethod
    def adds(flow: Any) -> frozenset[str]:
        if flow.external is not None:
            return frozenset({flow.external.marks_with} - {None})
        return frozenset({"by-us"}) if flow.plan.transform is not None else frozenset()

    @staticmethod
    def knows(flow: Any, known: frozenset[str]) -> frozenset[str]:
        if flow.external is not None:
            return frozenset({flow.target})
        return (known | {flow.target}) if flow.plan.guard == "producer_id" else frozenset({flow.source, flow.target})


@pytest.mark.parametrize("guard", ["producer_id", "none"])
def test_the_proof_says_what_a_pump_of_records_does(guard: str) -> None:
    """All pairs of a flow of ours and a tool the other way, and all triangles with one or two tools."""
    settings = [
        f"{IDENTITY}{mark}{skip}" for mark, skip in product(("", ", marks_with: m"), ("", ", leaves_out: by-us"))
    ]
    provenance = f", provenance: {{guard: {guard}}}, merge: {{allowed: true}}"
    tried = 0
    for one, two, ours in product(settings, [None, *settings], ("", MARK)):
        tools = [tool(one)] if two is None else [tool(one, name="x", source="b", target="c"), tool(two, source="c")]
        text = write(*tools, ours=ours + provenance)
        topology, proofs = load(text), lint(text).proofs
        most = max(Pump(topology).most(birth) for birth in "abc"[: len(tools) + 1])
        assert proofs["complete"]
        if proofs["no_unbounded_copy"]:
            assert most < 4, text
        if proofs["no_unbounded_copy"] and proofs["no_duplicate_delivery"]:
            assert most == 1, text
        if most >= 4:
            assert not proofs["no_unbounded_copy"], text
        tried += 1
    assert tried == 4 * 5 * 2


def test_a_flow_that_knows_no_tools_costs_nothing() -> None:
    flow = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("glob", "*"),)))
    assert flow.selects("heartbeats")
