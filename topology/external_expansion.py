"""Builds `external_flows` from the checked values of the file, and says what is contradictory in them (SYN018)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from watershed.topology import naming
from watershed.topology.external_flows import ExternalFlow, exclude_mirrormaker_cycles
from watershed.topology.finding import Label, Problem
from watershed.topology.model import CheckedValue, Flow
from watershed.topology.naming import Naming
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import TopicSelection

_RENAMES = ("prefix", "template")


def build_external_flow(value: CheckedValue, path: str, topics: TopicSelection, source_id: str | None) -> Flow:
    """One element of `external_flows`, with its place in the file."""
    source, target, tool = (value.get(name) for name in ("source", "target", "tool"))
    here, there = (value.get("aliases", end, default=value.get(end)) for end in ("source", "target"))
    policy = get_naming_policy(value)
    separator = value.get("naming", "separator", default=".")
    if tool == "mirrormaker2" and policy == "prefix":
        topics = exclude_mirrormaker_cycles(topics, there, separator)
    external = ExternalFlow(
        value.get("name"),
        tool,
        source,
        target,
        topics,
        build_declared_naming(value, policy, here, there),
        enabled=value.get("enabled", default=True),
        marks_with=value.get("marks_with"),
        leaves_out=value.get("leaves_out"),
        source_id=source_id,
        tool_alias=here,
        separator=separator,
    )
    plan = PlanFlow(
        external.id,
        source,
        target,
        topics,
        external.naming,
        guard="none",
        state="running" if external.enabled else "paused",
    )
    return Flow(plan, value, value.span, path, external)


def get_naming_policy(value: CheckedValue) -> str:
    """The policy that the file says, or the one that the tool has by itself."""
    own = "prefix" if value.get("tool") == "mirrormaker2" else "identity"
    policy: str = value.get("naming", "policy", default=own)
    return policy


def build_declared_naming(value: CheckedValue, policy: str, source: str, target: str) -> Naming:
    """The `naming` of a flow's settings under this policy. source, target: what names have for the two clusters."""
    if policy == "prefix":
        return naming.build_prefix_naming(source, value.get("naming", "separator", default="."))
    if policy == "template":
        return naming.build_template_naming(value.get("naming", "template"), source, target)
    if policy == "map":
        renames = value.at("naming", "map")
        assert renames is not None, "checked by the language"
        return Naming("map", map=tuple(sorted((name, to.data) for name, to in renames.fields.items())))
    return Naming()


def find_external_flow_problems(root: CheckedValue, flow_ids: Collection[str]) -> Iterator[Problem]:
    """Names that are taken, copies of a cluster into itself, and keys that mean nothing for the tool."""
    taken: dict[str, Label] = {}
    for index, value in enumerate(root.list("external_flows")):
        path, name = f"external_flows[{index}]", value.get("name")
        if name in flow_ids or name in taken:
            more = (taken[name],) if name in taken else ()
            message = f"the name `{name}` is taken by {'another external flow' if more else 'a flow of this file'}"
            labels = (Label(value.where("name")), *more)
            yield Problem("SYN018", message, labels, path, help="give it another name, such as the tool's own")
        elif name is not None:
            taken[name] = Label(value.where("name"), "first here")
        yield from _contradictions(value, path)


def _contradictions(value: CheckedValue, path: str) -> Iterator[Problem]:
    tool, policy = value.get("tool"), get_naming_policy(value)
    if value.get("source") is not None and value.get("source") == value.get("target"):
        message = f"`{path}` copies cluster `{value.get('source')}` into itself"
        yield Problem("SYN018", message, (Label(value.where("target")),), path, help="name the other cluster")
    if value.at("aliases") is not None and policy not in _RENAMES:
        message = f"`{path}`: names under the policy `{policy}` have no alias in them"
        help_ = "drop `aliases`, or say the `naming` that has them"
        yield Problem("SYN018", message, (Label(value.where("aliases")),), path, help=help_)
    for key in ("marks_with", "leaves_out"):
        if tool == "cluster_link" and value.at(key) is not None:
            message = f"`{path}`: a cluster link copies bytes as they are, so it has no `{key}`"
            yield Problem("SYN018", message, (Label(value.where(key)),), path, help=f"drop `{key}`")
