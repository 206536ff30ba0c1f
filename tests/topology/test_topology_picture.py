"""Pictures: what is drawn, in every form, for small and for large topologies, with names that need escaping."""

from __future__ import annotations

import random
import re
from xml.etree import ElementTree as xml

import pytest

from watershed.topology.loader import parse_topology
from watershed.topology.model import Topology
from watershed.topology.picture import render_picture
from watershed.topology.picture.edge import Edge
from watershed.topology.picture.layout import arrange_columns
from watershed.topology.picture.mermaid_graphviz import render_graphviz, render_mermaid
from watershed.topology.picture.svg import render_svg
from watershed.topology.rule_manual import complete_example

SVG = "{http://www.w3.org/2000/svg}"
PAIR = """flows:
  - {source: a, target: b, topics: {include: [orders]}%s}
  - {source: b, target: a, topics: {include: [orders]}%s}
"""


def topology(text: str) -> Topology:
    loaded = parse_topology(complete_example(text)).topology
    assert loaded is not None
    return loaded


def stores(count: int) -> Topology:
    names = [f"store-{number:02d}" for number in range(count)]
    clusters = "\n".join(f"  {name}: {{bootstrap: [k.{name}.example.internal:9092]}}" for name in ["hub", *names])
    return topology(
        f"clusters:\n{clusters}\npattern:\n  hub_and_spoke:\n    hub: hub\n    spokes: [{', '.join(names)}]\n"
        "    up: {topics: {include: [{glob: 'sales.*'}]}, naming: {policy: prefix}}\n"
        "    down: {topics: {include: [catalog]}}\n"
    )


@pytest.mark.parametrize("form", ["text", "mermaid", "dot", "svg"])
@pytest.mark.parametrize("level", ["clusters", "topics"])
def test_a_loop_is_marked_in_every_form(form: str, level: str) -> None:
    open_ = ", provenance: {guard: none}"
    loop = render_picture(topology(PAIR % (open_, open_)), form, level)
    guarded = render_picture(topology(PAIR % ("", "")), form, level)
    mark = {"text": r"\[LOOP\]", "mermaid": "#c00", "dot": "color=red", "svg": 'class="flow loop"'}[form]
    assert len(re.findall(mark, loop)) == 2
    assert not re.search(mark, guarded)


def test_a_paused_flow_is_dashed() -> None:
    paused = topology(PAIR % ("", ", state: paused"))
    assert render_picture(paused, "svg", "clusters").count('class="flow paused"') == 1
    assert render_picture(paused, "dot", "clusters").count("dashed") == 1


def test_fifty_clusters_are_three_lines_of_text() -> None:
    assert render_picture(stores(49), "text", "clusters").splitlines() == [
        "hub",
        "└──▶ store-00, store-01, store-02, store-03, store-04 and 44 more  catalog",
        "",
        "store-00, store-01, store-02, store-03, store-04 and 44 more",
        "└──▶ hub  sales.* (prefix)",
    ]


def test_in_the_svg_every_cluster_has_a_box_of_its_own_and_equal_labels_are_told_once() -> None:
    root = xml.fromstring(render_picture(stores(49), "svg", "clusters"))
    boxes = [each for each in root.iter(f"{SVG}rect") if each.get("class") == "box"]
    places = {(each.get("x"), each.get("y")) for each in boxes}
    labels = [each.text for each in root.iter(f"{SVG}text") if each.get("class") == "label"]
    arrows = [each for each in root.iter(f"{SVG}path") if "flow" in (each.get("class") or "")]
    assert len(boxes) == len(places) == 50
    assert labels == ["catalog to 49", "sales.* (prefix) from 49"]
    assert len(arrows) == 98
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert all(float(each.get("x", 0)) + float(each.get("width", 0)) <= width for each in boxes)
    assert all(float(each.get("y", 0)) + 30 <= height for each in boxes)


def test_a_mesh_is_one_frame() -> None:
    members = ", ".join(f"m{number}" for number in range(12))
    clusters = "\n".join(f"  m{number}: {{bootstrap: [k.m{number}.example.internal:9092]}}" for number in range(12))
    mesh = topology(
        f"clusters:\n{clusters}\npattern:\n  active_active:\n    via: direct\n    members: [{members}]\n"
        "    topics: {include: [trips]}\n    naming: {policy: prefix}\n"
    )
    drawn = render_picture(mesh, "svg", "clusters")
    assert "each to each other: trips (prefix)" in drawn
    assert '<path class="flow' not in drawn
    assert render_picture(mesh, "text", "clusters").splitlines()[1] == "└──▶ each other  trips (prefix)"


@pytest.mark.parametrize("form", ["mermaid", "dot", "svg"])
def test_whatever_a_pattern_holds_the_picture_stays_whole(form: str) -> None:
    edge = Edge("a", "b", "a-to-b", 'x<y|"z"&#', paused=False, loop=False)
    drawn = {"mermaid": render_mermaid, "dot": render_graphviz, "svg": lambda edges: render_svg("<t>", edges)}[form](
        [edge]
    )
    if form == "svg":
        assert 'x<y|"z"&#' in [text.text for text in xml.fromstring(drawn).iter(f"{SVG}text")]
    else:
        assert {"mermaid": "x#lt;y|#quot;z#quot;&#35;", "dot": r"x<y|\"z\"&#"}[form] in drawn


@pytest.mark.parametrize("form", ["mermaid", "dot", "svg"])
def test_what_reorders_or_steers_is_written_out(form: str) -> None:
    edge = Edge("a\u202e", "b\x1b[2J", "a-to-b", "x\u2066y", paused=False, loop=False)
    drawn = {"mermaid": render_mermaid, "dot": render_graphviz, "svg": lambda edges: render_svg("<t>", edges)}[form](
        [edge]
    )
    assert not set("\u202e\x1b\u2066") & set(drawn)
    assert all(code in drawn for code in ("u202e", "x1b", "u2066"))


def test_a_cluster_without_a_flow_is_named() -> None:
    clusters = "".join(f"  {alias}: {{bootstrap: [k.{alias}.example.internal:9092]}}\n" for alias in "abcd")
    idle = topology(f"clusters:\n{clusters}{PAIR % ('', '')}")
    assert "no flow: c, d" in render_picture(idle, "text", "clusters")
    assert "no flow: c, d" in render_picture(idle, "svg", "clusters")


def test_the_layout_does_not_depend_on_the_order_of_the_file() -> None:
    ways = [("a", "c"), ("b", "c"), ("c", "d"), ("c", "e"), ("e", "b")]
    shuffled = random.Random(7).sample(ways, len(ways))
    assert arrange_columns("abcde", ways) == arrange_columns("edcba", shuffled)
    assert arrange_columns(["a"], []) == [["a"]]
    assert arrange_columns([], []) == []
