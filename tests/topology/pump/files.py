"""Random topology files, from words that make flows meet: few names, patterns that overlap, renames that come back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import yaml
from hypothesis import strategies as st

Document = dict[str, Any]

# What producers write; every pattern below has a member here, alone and together with the others it can meet.
NAMES = (
    *("t1", "t2", "t3", "t11", "x1", "x2", "z1", "t", "q", "orders", "t.t1", "__t1"),
    *("t.", ".1"),  # of `t?` and `?1`, and also of `*.*`
    *("a.a", "b.b", "c.c"),  # called the same behind `a.{topic}` and behind `{topic}.a`
    *("a.t1", "b.t1", "c.t2", "a.x1", "a.q", "c.t1", "a.x.t1", "t1.a", "t2.b"),  # as renames make them
    "mutant",  # for faults.py
)
SELECTORS: tuple[Any, ...] = (
    *("t1", "t1", "t1", "t2", "t2", "x1", "orders", "a.t1", "b.t1"),
    *({"glob": "t*"}, {"glob": "t?"}, {"glob": "*1"}, {"glob": "?1"}, {"glob": "*.t1"}, {"glob": "a.*"}),
    *({"regex": "t[12]"}, {"regex": r".*[12]"}, {"regex": r"([a-f]\.)?t1"}, {"regex": "t1|x1"}, {"glob": "*"}),
)
EXCLUDES: tuple[Any, ...] = ("t1", "t2", {"glob": "*.*"}, {"glob": "*.*"}, {"regex": r"[a-f]\..*"}, {"glob": "x*"})
NAMINGS: tuple[Document, ...] = (
    *({"policy": "identity"} for _ in range(6)),
    *({"policy": "prefix"} for _ in range(3)),
    {"policy": "prefix", "separator": "-"},
    {"policy": "template", "template": "{topic}.{source}"},
    {"policy": "template", "template": "copy.{topic}"},
    {"policy": "map", "map": {"t1": "t2"}},
    {"policy": "map", "map": {"t1": "x1", "x1": "t1"}},
    {"policy": "map", "map": {"a.t1": "t1", "b.t1": "t2"}},
)
KINDS = ("hub_and_spoke", "aggregate", "direct", "active_standby", "active_standby", "aggregation", "chain")
KEPT_IN_ORDER = {"path", "bootstrap"}  # lists whose order says something


def _often(share: float) -> st.SearchStrategy[bool]:
    return st.sampled_from([True] * round(share * 20) + [False] * (20 - round(share * 20)))


@st.composite
def selections(draw: st.DrawFn) -> Document:
    found: Document = {"include": draw(st.lists(st.sampled_from(SELECTORS), min_size=1, max_size=2, unique_by=str))}
    if draw(_often(0.2)):
        found["exclude"] = [draw(st.sampled_from(EXCLUDES))]
    if draw(_often(0.05)):
        found["include"].append("__t1")
        found["allow_internal"] = True
    return found


@st.composite
def settings(draw: st.DrawFn, topics: bool, wild: float = 1.0) -> Document:
    """wild: how often guards are taken away and flows renamed, as a share of the usual."""
    found: Document = {"topics": draw(selections())} if topics else {}
    if draw(_often(0.5 * wild)):
        found["naming"] = dict(draw(st.sampled_from(NAMINGS)))
    provenance: Document = {}
    if draw(_often(0.3 * wild)):
        provenance["guard"] = draw(st.sampled_from(["none", "none", "producer_id"]))
    if draw(_often(0.2)):
        provenance["forward"] = draw(st.sampled_from(["local", "all"]))
    if provenance:
        found["provenance"] = provenance
    if draw(_often(0.25)):
        found["merge"] = {"allowed": True}
        if draw(_often(0.3)):
            found["merge"]["duplicates"] = "allowed"
    if draw(_often(0.1)):
        found["state"] = "paused"
    return found


@st.composite
def patterns(draw: st.DrawFn, aliases: Sequence[str], topics: bool, wild: float) -> Document:
    kind = draw(
        st.sampled_from(
            ["hub_and_spoke", "aggregate", "direct", "active_standby", "active_standby", "aggregation", "chain"]
        )
    )
    order = draw(st.permutations(aliases))
    said = draw(settings(topics, wild))
    if kind == "hub_and_spoke":
        body: Document = {"hub": order[0], "spokes": order[1:]}
        ways = draw(st.sampled_from([("up",), ("down",), ("up", "down")]))
        return {kind: body | {way: draw(settings(topics, wild)) for way in ways}}
    if kind == "active_standby":
        body = {"active": order[0], "standby": order[1]}
        if draw(st.booleans()):
            body["failback"] = {"reverse": draw(st.sampled_from(["declared_paused", "none"]))}
        return {kind: body | said}
    if kind == "aggregate":
        cut = draw(st.integers(1, len(order) - 1))
        return {"active_active": {"via": kind, "regionals": order[:cut], "aggregates": order[cut:]} | said}
    if kind == "direct":
        return {"active_active": {"via": kind, "members": order[: draw(st.integers(2, min(4, len(order))))]} | said}
    if kind == "aggregation":
        return {kind: {"sources": order[1:], "target": order[0]} | said}
    return {kind: {"path": order[: draw(st.integers(2, min(5, len(order))))]} | said}


@st.composite
def _shared(draw: st.DrawFn, wild: float) -> Document:
    """`defaults`: mostly none; some that let names grow, or take all guards away, unless a flow says otherwise."""
    kind = draw(st.sampled_from(["none"] * 13 + ["some"] * 3 + ["topics"] * 2 + ["growing", "unguarded"]))
    if kind == "none" or (wild < 1 and kind in ("growing", "unguarded")):
        return {}
    if kind == "growing":
        wide = draw(st.sampled_from([{"glob": "*"}, {"glob": "*1"}, {"regex": ".*[12]"}]))
        return {"topics": {"include": [wide]}, "naming": {"policy": "prefix"}}
    found: Document = draw(settings(kind == "topics", wild))
    if kind == "unguarded":
        found["provenance"] = {"guard": "none"}
    return found


@st.composite
def documents(draw: st.DrawFn, wild: float = 1.0) -> Document:
    """2-6 clusters, a pattern or none, flows beside it and over it. No id twice: which of two counts is the order's."""
    aliases = list("abcdef"[: draw(st.sampled_from([2, 3, 3, 4, 4, 5, 6]))])
    found: Document = {
        "apiVersion": "topology/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "random"},
        "clusters": {alias: {"bootstrap": [f"{alias}.example.internal:9092"]} for alias in aliases},
    }
    shared = draw(_shared(wild))
    if shared:
        found["defaults"] = shared
    inherited = "topics" in shared
    has_pattern = draw(_often(0.4))
    if has_pattern:
        found["pattern"] = draw(patterns(aliases, not inherited, wild))
    pairs = st.tuples(st.sampled_from(aliases), st.sampled_from(aliases), st.sampled_from([None] * 9 + ["more"]))
    ids = draw(
        st.lists(
            pairs.filter(lambda way: way[0] != way[1]), min_size=0 if has_pattern else 1, max_size=6, unique_by=str
        )
    )
    flows = []
    for source, target, suffix in ids:
        flow: Document = {"source": source, "target": target}
        if suffix:
            flow["suffix"] = suffix
        flows.append(flow | draw(settings(not inherited or draw(_often(0.3)), wild)))
    if flows:
        found["flows"] = flows
    return found


def text_of(document: Document, block: bool = False) -> str:
    """As YAML: in block style, or as the JSON that YAML is."""
    return yaml.dump(document, Dumper=_Plain, sort_keys=False) if block else json.dumps(document)


def shuffled(value: Any, random: Random, key: str = "") -> Any:
    """The same file with its keys and lists in another order."""
    if isinstance(value, dict):
        keys = list(value)
        random.shuffle(keys)
        return {name: shuffled(value[name], random, name) for name in keys}
    if isinstance(value, list):
        items = [shuffled(each, random) for each in value]
        if key not in KEPT_IN_ORDER:
            random.shuffle(items)
        return items
    return value


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True
