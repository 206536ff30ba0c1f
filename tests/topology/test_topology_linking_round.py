"""Exporting flows as cluster links and importing the links gives the same flows; what a link cannot say is listed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from watershed.cli.main import main
from watershed.topology.interop.import_formats import import_path, import_text
from watershed.topology.interop.import_notes import ImportNotes
from watershed.topology.interop.imported_topology import NotCarried
from watershed.topology.interop.linking_export import render_link_properties, write
from watershed.topology.interop.topology_writer import render_topology_file
from watershed.topology.loader import load_topology, parse_topology
from watershed.topology.model import Flow, Topology
from watershed.topology.selection_overlap import find_shortest_overlap
from watershed.topology.selectors import Selector, TopicSelection

EXAMPLES = sorted((Path(__file__).parents[2] / "topology" / "examples").glob("*.yaml"))
ALL = Selector("glob", "*")
# some for every selector that is generated below, and some for none
_GROUPS = "orders orders. orders.eu orders-x web- web-1 web-x x xx xy os o.s connect-offsets connect- a_changelog q"
GROUPS = _GROUPS.split()


def topology_of(text: str) -> Topology:
    loaded = parse_topology(text)
    assert [problem for problem in loaded.problems if problem.code != "GRF214"] == []
    assert loaded.topology is not None
    return loaded.topology


def outside(one: TopicSelection, other: TopicSelection) -> str | None:
    """A name that `one` selects and `other` does not."""
    for name in one.literals or ():
        if not other.selects(name):
            return name
    found = find_shortest_overlap(frozenset((("", "", one), ("", "", TopicSelection((ALL,), other.include)))))
    if not found.found and other.exclude:
        found = find_shortest_overlap(frozenset((("", "", one), ("", "", TopicSelection(other.exclude)))))
    return found.name if found.found else None


def listed(left: tuple[NotCarried, ...], flow: Flow, what: str) -> bool:
    return any(each.what.startswith(what) and each.what.endswith(f"of flow {flow.id}") for each in left)


def check(topology: Topology) -> Topology:
    """Raises AssertionError where the flows differ; gives what was read back."""
    exported = write(topology)
    left = exported.not_carried
    gone = {each.what.removeprefix("flow ") for each in left if each.what.startswith("flow ")}
    expected = [flow for flow in topology.flows if flow.id not in gone]
    if not expected:
        return topology
    imported = import_text(exported.text, "links.properties")
    assert [problem for problem in imported.problems if problem.code.startswith("SYN")] == []
    back = topology_of(render_topology_file(imported))
    assert [flow.id for flow in back.flows] == [flow.id for flow in expected]
    for flow in expected:
        same = back.flow(flow.id)
        assert same is not None
        _same(flow, same, left)
    for alias in {flow.source for flow in expected}:
        assert back.clusters[alias].bootstrap == topology.clusters[alias].bootstrap
        assert back.clusters[alias].security.protocol == topology.clusters[alias].security.protocol
    return back


def _same(flow: Flow, same: Flow, left: tuple[NotCarried, ...]) -> None:
    assert (same.source, same.target, same.plan.state, same.plan.start) == (
        flow.source,
        flow.target,
        flow.plan.state,
        flow.plan.start,
    )
    assert (same.plan.naming.before, same.plan.naming.after, same.plan.naming.map) == (flow.plan.naming.before, "", ())
    kept = [each for each in flow.plan.topics.include if not listed(left, flow, f"topics {each} ")]
    meant = TopicSelection(tuple(kept), flow.plan.topics.exclude, flow.plan.topics.allow_internal)
    assert outside(meant, same.plan.topics) is None
    assert outside(same.plan.topics, meant) is None
    if not listed(left, flow, "sync.acls "):
        default = flow.settings.get("sync", "acls", "mode", default="never")
        assert same.settings.get("sync", "acls", "mode") == default
    _same_groups(flow, same, left)
    if not listed(left, flow, "sync.configs.mode"):
        assert same.plan.sync_configs == flow.plan.sync_configs


def _same_groups(flow: Flow, same: Flow, left: tuple[NotCarried, ...]) -> None:
    mode = flow.settings.get("sync", "groups", "mode", default="never")
    if listed(left, flow, "sync.groups of"):
        mode = "never"
    assert same.settings.get("sync", "groups", "mode") == mode
    if mode == "never":
        return
    if not listed(left, flow, "sync.groups.interval"):
        wanted = flow.settings.get("sync", "groups", "interval", default=10_000)
        assert same.settings.get("sync", "groups", "interval") == wanted
    include = flow.settings.texts("sync", "groups", "include") or (ALL,)
    kept = [each for each in include if not listed(left, flow, f"sync.groups.include {each} ")]
    for name in GROUPS:
        meant = any(each.matches(name) for each in kept) and not _matched(flow, "exclude", name)
        assert (_matched(same, "include", name, default=True) and not _matched(same, "exclude", name)) == meant, name


def _matched(flow: Flow, key: str, name: str, *, default: bool = False) -> bool:
    selectors = flow.settings.texts("sync", "groups", key)
    return any(each.matches(name) for each in selectors) if selectors else default


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_comes_back_but_for_what_is_listed(path: Path) -> None:
    topology = load_topology(path).topology
    assert topology is not None
    check(topology)


@pytest.mark.parametrize(
    ("name", "count"),
    [("active_standby", 2), ("hub_and_spoke", 4), ("chain", 2), ("migration", 2), ("active_active_direct", 2)],
)
def test_these_examples_can_be_links_as_a_whole(name: str, count: int) -> None:
    topology = load_topology(EXAMPLES[0].parent / f"{name}.yaml").topology
    assert topology is not None
    assert len(render_link_properties(topology, ImportNotes())) == count


def test_every_link_alone_in_a_file_gives_the_same_topology(tmp_path: Path) -> None:
    topology = load_topology(EXAMPLES[0].parent / "hub_and_spoke.yaml").topology
    assert topology is not None
    for name, text in render_link_properties(topology, ImportNotes()):
        (tmp_path / f"{name}.properties").write_text(text)
    apart, together = import_path(tmp_path), import_text(write(topology).text, "links.properties")
    assert apart.flows == together.flows
    assert apart.clusters == together.clusters


def test_a_directory_takes_a_file_for_each_link(tmp_path: Path) -> None:
    example = str(EXAMPLES[0].parent / "chain.yaml")
    assert main(["-q", "export", example, "--as", "cluster-linking", "-o", str(tmp_path)]) == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["port-to-cloud.properties", "ship-to-port.properties"]
    assert [flow.id for flow in import_path(tmp_path).flows] == ["port-to-cloud", "ship-to-port"]
    assert main(["-q", "export", example, "--as", "mm2", "-o", str(tmp_path)]) == 2


HEAD = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: generated}
clusters:
  a: {bootstrap: [a.example.internal:9092]}
  b: {bootstrap: [b1.example.internal:9092, b2.example.internal:9092], cluster_id: Bbbb}
  c: {bootstrap: [c.example.internal:9092], security: {protocol: SSL}}
flows:
"""


def one(settings_text: str, topics: str = "{include: [x]}") -> Topology:
    return topology_of(f"{HEAD}  - {{source: a, target: b, topics: {topics}{settings_text}}}\n")


@pytest.mark.parametrize(
    ("text", "topics", "what"),
    [
        (", naming: {policy: template, template: '{topic}.x'}", "{include: [x]}", "flow a-to-b"),
        (", naming: {policy: map, map: {x: other}}", "{include: [x]}", "flow a-to-b"),
        (", naming: {policy: template, template: 'thirteen-long{topic}'}", "{include: [x]}", "flow a-to-b"),
        (", merge: {allowed: true}", "{include: [x]}", "flow a-to-b"),
        ("", "{include: [{regex: 'a|b'}]}", "flow a-to-b"),
        ("", "{include: [{regex: 'a|b'}, x]}", "topics a|b of flow a-to-b"),
        ("", "{include: [{glob: '*.x'}, x]}", "topics *.x of flow a-to-b"),
        ("", "{include: [{glob: 'x*'}, z], exclude: [{glob: '*tmp'}]}", "topics x* of flow a-to-b"),
        (", sync: {groups: {mode: once}}", "{include: [x]}", "sync.groups of flow a-to-b"),
        (", sync: {acls: {mode: continuous}}", "{include: [x]}", "sync.acls of flow a-to-b"),
        (", sync: {groups: {mode: continuous, streams: [x]}}", "{include: [x]}", "sync.groups.streams of flow a-to-b"),
        (", sync: {configs: {mode: never}}", "{include: [x]}", "sync.configs.mode: never of flow a-to-b"),
        (", offsets: aligned", "{include: [x]}", "offsets"),
        (", workers: {quota: 1MiB/s}", "{include: [x]}", "workers"),
        (", provenance: {forward: local}", "{include: [x]}", "provenance"),
        (", replication_factor: 3", "{include: [x]}", "replication_factor"),
    ],
)
def test_what_a_link_cannot_say_is_listed_with_its_line(text: str, topics: str, what: str) -> None:
    found = [each for each in write(one(text, topics)).not_carried if each.what == what]
    assert len(found) == 1
    assert (found[0].span.file, found[0].span.line) == ("topology.yaml", 9)
    assert found[0].why


def test_two_ways_under_one_name_are_no_links() -> None:
    flows = "".join(
        f"  - {{source: {source}, target: {target}, topics: {{include: [{{glob: 'x*'}}]}}{more}}}\n"
        for source, target, more in (("a", "b", ""), ("b", "a", ""), ("a", "c", ""), ("c", "a", ", state: paused"))
    )
    topology = topology_of(HEAD + flows)
    assert [name for name, _ in render_link_properties(topology, ImportNotes())] == ["a-to-c", "c-to-a"]


def test_an_exclude_that_meets_nothing_is_no_obstacle() -> None:
    exported = write(one("", "{include: [{glob: 'x*'}], exclude: [{glob: 'y*z'}, {glob: 'x.tmp*'}]}"))
    assert '"name":"x.tmp","patternType":"PREFIXED","filterType":"EXCLUDE"' in exported.text
    assert not [each for each in exported.not_carried if each.what.startswith("topics")]


_NAMES = st.sampled_from(["orders", "orders.eu", "web-1", "x", "__consumer_offsets", "connect-offsets", "a_changelog"])
_GLOBS = st.sampled_from(["*", "orders*", "orders.*", "web-*", "*.eu", "o*s", "connect-*", "x?", "web-**"])
_REGEXES = st.sampled_from(["orders|x", r"web-\d+", "x+"])
_SELECTORS = st.one_of(
    _NAMES, _GLOBS.map(lambda text: f'{{glob: "{text}"}}'), _REGEXES.map(lambda text: f"{{regex: '{text}'}}")
)


def _list(each: st.SearchStrategy[str], low: int) -> st.SearchStrategy[str]:
    return st.lists(each, min_size=low, max_size=4).map(lambda items: f"[{', '.join(items)}]")


@st.composite
def topologies(draw: st.DrawFn) -> str:
    routes = [(one, other) for one in "abc" for other in "abc" if one != other]
    lines = []
    for source, target in draw(st.lists(st.sampled_from(routes), min_size=1, max_size=4, unique=True)):
        lines.append(f"  - source: {source}\n    target: {target}\n")
        if draw(st.booleans()):
            lines.append("    suffix: extra\n")
        internal = draw(st.sampled_from(["", ", allow_internal: true"]))
        lines.append(
            f"    topics: {{include: {draw(_list(_SELECTORS, 1))}, exclude: {draw(_list(_SELECTORS, 0))}{internal}}}\n"
        )
        policies = (
            "{policy: identity}",
            "{policy: prefix}",
            '{policy: prefix, separator: "-"}',
            '{policy: template, template: "x.{topic}"}',
            '{policy: template, template: "from-{source}-to-{target}.{topic}"}',
            '{policy: template, template: "{topic}.copy"}',
            "{policy: map, map: {x: other}}",
        )
        lines.append(f"    naming: {draw(st.sampled_from(policies))}\n")
        lines.append(f"    state: {draw(st.sampled_from(['running', 'paused']))}\n")
        lines.append(f"    delivery: {{start: {draw(st.sampled_from(['earliest', 'latest']))}}}\n")
        modes = st.sampled_from(["never", "once", "continuous"])
        groups = f"{{mode: {draw(modes)}, interval: {draw(st.sampled_from(['200ms', '1500ms', '10s', '2m']))}"
        if draw(st.booleans()):
            groups += f", include: {draw(_list(_SELECTORS, 1))}"
        groups += f", exclude: {draw(_list(_SELECTORS, 0))}}}"
        acls = f"{{mode: {draw(modes)}, include_write: {draw(st.sampled_from(['never', 'always']))}}}"
        lines.append(f"    sync: {{configs: {{mode: {draw(modes)}}}, acls: {acls}, groups: {groups}}}\n")
    return HEAD + "".join(lines)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(topologies())
def test_any_flows_come_back_but_for_what_is_listed(text: str) -> None:
    check(topology_of(text))
