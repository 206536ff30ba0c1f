"""Export, import, and the flows are the same: ids, ends, names, selections, sync, state, replication factor. What the
export listed as not carried is the only difference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from watershed.topology.interop.export_formats import ExportedTopology, export_topology
from watershed.topology.interop.import_formats import import_text
from watershed.topology.interop.imported_topology import ImportedCluster, ImportedFlow, ImportedTopology
from watershed.topology.interop.topology_writer import render_topology_file
from watershed.topology.loader import load_topology, parse_topology
from watershed.topology.model import Flow, Topology
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector

EXAMPLES = sorted((Path(__file__).parents[2] / "topology" / "examples").glob("*.yaml"))
FORMATS = ["mm2", "strimzi"]
NAMES = (
    *(
        "orders",
        "orders.created",
        "ordersXcreated",
        "orders-x",
        "ledger.a",
        "ledger.internal",
        "a-internal",
        "x.replica",
    ),
    *("__consumer_offsets", "_schemas", "connect-offsets", "mm2-configs.a.internal", "app-changelog", "a.orders"),
    *("b.orders", "c.a.orders", "a.b.orders", "a_orders", "b-orders", "trips.new", "sales.web", "catalog.prices"),
    *("telemetry.temp", "telemetry.power", "telemetry.tempX", "clicks.raw", "engine.rpm", "x", "ab", "heartbeats"),
)


def back(exported: ExportedTopology) -> Topology | None:
    """The exported text, imported, written as a topology and read again; None when there is nothing in it."""
    if "no flow could be carried over" in exported.text:
        return None
    imported = import_text(exported.text, "exported")
    loaded = parse_topology(render_topology_file(imported))
    assert [problem.message for problem in loaded.problems if problem.code.startswith("SYN")] == []
    assert loaded.topology is not None
    return loaded.topology


def noted(exported: ExportedTopology, flow: Flow) -> list[str]:
    """What the export says about this flow."""
    return [each.what for each in exported.not_carried if re.search(rf"flow {re.escape(flow.id)}$", each.what)]


def check(topology: Topology, name: str) -> None:
    exported = export_topology(topology, name)
    out = back(exported)
    for flow in topology.flows:
        said = noted(exported, flow)
        read = out.flow(flow.id) if out is not None else None
        if any(what.startswith(("flow ", "naming ", "suffix ")) for what in said):
            continue
        if read is None and name == "mm2" and any(what.startswith("state ") for what in said):
            continue  # written as not enabled, which is no flow
        assert read is not None, exported.text
        compare(flow, read, said)
    assert {flow.id for flow in flows_of(out)} <= {flow.id for flow in topology.flows}


def flows_of(topology: Topology | None) -> tuple[Flow, ...]:
    return topology.flows if topology is not None else ()


def compare(one: Flow, other: Flow, said: list[str]) -> None:
    was, became = one.plan, other.plan
    assert (became.source, became.target) == (was.source, was.target)
    assert (became.naming.before, became.naming.after) == (was.naming.before, was.naming.after)
    if not any(what.startswith("state ") for what in said):
        assert became.state == was.state
    assert became.replication_factor == was.replication_factor
    assert became.start == was.start
    assert became.workers == was.workers
    assert became.sync_configs_exclude == was.sync_configs_exclude
    assert became.sync_configs == was.sync_configs or any(what.startswith("sync.configs.mode") for what in said)
    for name in NAMES:
        if narrowed(name, said):
            assert not became.selects(name) or was.selects(name)
        else:
            assert became.selects(name) == was.selects(name), (name, said)
    groups = one.settings.get("sync", "groups", "mode", default="never")
    assert other.settings.get("sync", "groups", "mode") == (groups if groups == "continuous" else "never")
    if groups == "continuous":
        for key in ("include", "exclude"):
            sides = [flow.settings.texts("sync", "groups", key) for flow in (one, other)]
            chosen = [side or ((Selector("glob", "*"),) if key == "include" else ()) for side in sides]
            found = [{name for name in NAMES if any(each.matches(name) for each in side)} for side in chosen]
            assert found[0] == found[1], sides
    acls = one.settings.get("sync", "acls", "mode", default="never")
    assert other.settings.get("sync", "acls", "mode") == (acls if acls == "continuous" else "never")


def narrowed(name: str, said: list[str]) -> bool:
    """Whether the export said that MirrorMaker does not copy this name."""
    texts = [text for what in said for text in re.findall(r"topics? (.+) of flow", what)]
    globs = [glob for text in texts for glob in text.split(" and ")]
    return any(glob == name or Selector("glob", glob).matches(name) for glob in globs if set(glob) <= LEGAL)


LEGAL = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-*?")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_comes_back(path: Path, name: str) -> None:
    topology = load_topology(path).topology
    assert topology is not None
    check(topology, name)


@pytest.mark.parametrize("name", FORMATS)
def test_which_flows_of_the_examples_cannot_be_said(name: str) -> None:
    """Templates behind the name, and paused flows, for which MirrorMaker's own file has no word."""
    lost = {}
    for path in EXAMPLES:
        topology = load_topology(path).topology
        assert topology is not None
        exported = export_topology(topology, name)
        kept = {flow.id for flow in flows_of(back(exported))}
        if missing := sorted({flow.id for flow in topology.flows} - kept):
            lost[path.stem] = missing
    paused = {
        "active_standby": ["cloud-to-onprem"],
        "consumers_last": ["cloud-to-onprem"],
        "failover": ["south-to-north"],
        "migration": ["cloud-to-onprem"],
        "stretch": ["dublin-to-metro"],
    }
    assert lost == {"aggregation": ["plant-a-to-lake", "plant-b-to-lake"]} | (paused if name == "mm2" else {})


def test_a_loop_that_only_the_guard_stops_is_not_written_as_running() -> None:
    flows = tuple(
        ImportedFlow(source, target, (Selector("glob", "orders.*"),), settings={"naming": {"policy": "identity"}})
        for source, target in (("a", "b"), ("b", "a"))
    )
    topology = parse_topology(render_topology_file(topology_of(flows))).topology
    assert topology is not None
    exported = export_topology(topology, "mm2")
    assert exported.text.count(".enabled = false") == 6  # two flows; heartbeats and three syncs at top level
    assert import_text(exported.text, "exported").flows == ()
    assert sum("cannot stop the loop" in each.why for each in exported.not_carried) == 2


SELECTOR = st.sampled_from(
    [
        Selector("literal", "orders"),
        Selector("literal", "orders.created"),
        Selector("literal", "ledger.internal"),
        Selector("literal", "connect-offsets"),
        Selector("glob", "*"),
        Selector("glob", "orders*"),
        Selector("glob", "ledger.*"),
        Selector("glob", "?.orders"),
        Selector("regex", "orders.created"),
        Selector("regex", r"orders\.(created|paid)"),
        Selector("regex", "[a-z]{2,6}(-x)?"),
        Selector("regex", "a|b.*"),
        Selector("regex", r"(a|b)[._-]orders"),
    ]
)
NAMING = st.sampled_from(
    [
        {"policy": "identity"},
        {"policy": "prefix"},
        {"policy": "prefix", "separator": "_"},
        {"policy": "prefix", "separator": "-"},
        {"policy": "template", "template": "{source}.{topic}"},
        {"policy": "template", "template": "A.{topic}"},
        {"policy": "template", "template": "{topic}.from.{source}"},
        {"policy": "map", "map": {"orders": "orders2"}},
    ]
)
GROUPS = st.one_of(
    st.sampled_from([{"mode": "never"}, {"mode": "once"}]),
    st.builds(
        lambda include, exclude, interval: {
            "mode": "continuous",
            "interval": interval,
            "include": include,
            **({"exclude": exclude} if exclude else {}),
        },
        st.lists(SELECTOR.filter(lambda each: "|" not in each.text), min_size=1, max_size=2, unique=True).map(sorted),
        st.lists(st.just(Selector("glob", "test-*")), max_size=1),
        st.sampled_from(["15s", "2m", "1500ms"]),
    ),
)
SETTINGS = st.fixed_dictionaries(
    {"naming": NAMING},
    optional={
        "state": st.sampled_from(["running", "paused"]),
        "replication_factor": st.integers(1, 5),
        "delivery": st.fixed_dictionaries(
            {},
            optional={
                "start": st.sampled_from(["earliest", "latest"]),
                "isolation": st.just("read_committed"),
                "semantics": st.sampled_from(["exactly_once", "at_least_once"]),
            },
        ).filter(bool),
        "workers": st.fixed_dictionaries({"count": st.integers(1, 9)}, optional={"discovery": st.just("45s")}),
        "sync": st.fixed_dictionaries(
            {},
            optional={
                "configs": st.fixed_dictionaries(
                    {"mode": st.sampled_from(["never", "once", "continuous"])},
                    optional={"exclude": st.just(["retention.ms", "segment.bytes"])},
                ),
                "acls": st.fixed_dictionaries({"mode": st.sampled_from(["never", "once", "continuous"])}),
                "groups": GROUPS,
            },
        ).filter(bool),
        "provenance": st.just({"guard": "producer_id", "forward": "local"}),
    },
)


def topology_of(flows: tuple[ImportedFlow, ...]) -> ImportedTopology:
    clusters = tuple(ImportedCluster(alias, (f"{alias}.example.internal:9092",)) for alias in "abc")
    return ImportedTopology("test", "random", "random", "", clusters, flows)


@st.composite
def topologies(draw: st.DrawFn) -> ImportedTopology:
    routes = draw(
        st.lists(st.permutations("abc").map(lambda three: tuple(three[:2])), min_size=1, max_size=5, unique=True)
    )
    flows = []
    for source, target in routes:
        include = draw(st.lists(SELECTOR, min_size=1, max_size=3, unique=True))
        exclude = draw(st.lists(SELECTOR, max_size=2, unique=True))
        values = draw(SETTINGS)
        if draw(st.booleans()):
            values = values | {"topics": {"allow_internal": True}}
        flows.append(ImportedFlow(source, target, tuple(include), tuple(exclude), settings=values))
    return topology_of(tuple(flows))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(topologies(), st.sampled_from(FORMATS))
def test_a_random_topology_comes_back(imported: ImportedTopology, name: str) -> None:
    loaded = parse_topology(render_topology_file(imported))
    assert [problem.message for problem in loaded.problems if problem.code.startswith("SYN")] == []
    assert loaded.topology is not None
    assert isinstance(loaded.topology.flows[0].plan, PlanFlow)
    check(loaded.topology, name)
