"""Selectors, their intersection, and names that can be taken back."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watershed.topology import naming, pattern_automaton
from watershed.topology.errors import BadSelector
from watershed.topology.selection_overlap import find_shortest_overlap
from watershed.topology.selectors import Selector, TopicSelection

NAMES = st.text(alphabet="ab.", min_size=1, max_size=8)
PATTERNS = st.recursive(
    st.sampled_from(["a", "b", r"\.", "[ab]", "[^a]", "."]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}"])).map(lambda pair: f"({pair[0]}){pair[1]}"),
    ),
    max_leaves=5,
)


@given(PATTERNS, NAMES)
def test_a_regex_means_what_python_says(pattern: str, name: str) -> None:
    assert pattern_automaton.compile_regex(pattern).matches(name) == bool(re.fullmatch(pattern, name))


@pytest.mark.parametrize("text", [r"(a)\1", "a(?=b)", "(?i)a", "a**", "(a", "a)", "[a", "a{3,1}", r"\bа", "a^b", "*a"])
def test_what_is_not_regular_is_refused(text: str) -> None:
    with pytest.raises(BadSelector):
        pattern_automaton.compile_regex(text)


@given(st.lists(st.text(alphabet="ab*?.", min_size=1, max_size=4), min_size=2, max_size=3), NAMES)
def test_intersection_of_globs_is_exact(globs: list[str], name: str) -> None:
    found = find_shortest_overlap(frozenset(("", "", TopicSelection((Selector("glob", each),))) for each in globs))
    assert found.certain
    if all(pattern_automaton.compile_glob(each).matches(name) for each in globs):
        assert found.found
    if found.name is not None:
        assert all(pattern_automaton.compile_glob(each).matches(found.name) for each in globs)


def test_exclusion_and_internal_names_are_part_of_the_intersection() -> None:
    orders = TopicSelection((Selector("glob", "orders.*"),), (Selector("regex", r"orders\..+"),))
    everything = TopicSelection((Selector("glob", "*?"),))
    assert find_shortest_overlap(frozenset({("", "", orders), ("", "", everything)})).name == "orders."
    internal = TopicSelection((Selector("glob", "__*"),))
    assert not find_shortest_overlap(frozenset({("", "", internal)})).found


def test_internal_topics_are_out_unless_named() -> None:
    everything = TopicSelection((Selector("glob", "*"),))
    for name in ("__consumer_offsets", "_schemas", "watershed.flows", "connect-offsets", "mm2-x", "app-changelog"):
        assert not everything.selects(name)
    named = TopicSelection((Selector("literal", "_schemas"),), allow_internal=True)
    assert named.selects("_schemas")
    assert not TopicSelection((Selector("literal", "_schemas"),)).selects("_schemas")


@given(NAMES, st.sampled_from(["{topic}.from.{source}", "{source}-{target}-{topic}", "x{topic}"]))
def test_renames_can_be_taken_back(name: str, template: str) -> None:
    for policy in (
        naming.Naming(),
        naming.build_prefix_naming("onprem"),
        naming.build_template_naming(template, "onprem", "cloud"),
    ):
        assert policy.invert(policy.apply(name)) == name


@given(NAMES, st.dictionaries(NAMES, NAMES, max_size=3))
def test_what_a_map_gives_back_is_what_it_took(name: str, renames: dict[str, str]) -> None:
    if len(set(renames.values())) == len(renames):
        policy = naming.Naming("map", map=tuple(sorted(renames.items())))
        back = policy.invert(name)
        assert back is None or policy.apply(back) == name


def test_small_names_exhaustively() -> None:
    pattern = pattern_automaton.compile_glob("a*?b")
    for size in range(5):
        for letters in product("ab", repeat=size):
            name = "".join(letters)
            assert pattern.matches(name) == bool(re.fullmatch("a.*.b", name))
