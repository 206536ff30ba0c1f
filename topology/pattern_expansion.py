"""Patterns become flows and nothing else; `flows:` adds to them or overrides by id; `defaults:` lies under all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product

from watershed.topology.finding import FileSpan, Label, Problem
from watershed.topology.language.flow import FLOW_SETTINGS
from watershed.topology.model import CheckedValue, build_mapping

_MAX_FLOWS = 20_000
_ATOMIC = {"naming", "compression"}  # a policy and its parameters belong together


@dataclass(frozen=True, slots=True)
class FlowDraft:
    """A flow before it is a plan's: `settings` merged, every value with its origin."""

    id: str
    source: str
    target: str
    settings: CheckedValue
    declared: FileSpan
    path: str


def build_flow_id(source: str, target: str, suffix: str | None = None) -> str:
    """`source-to-target`, with `-suffix` if there is one."""
    return f"{source}-to-{target}" + (f"-{suffix}" if suffix else "")


def expand_flows(root: CheckedValue) -> tuple[list[FlowDraft], list[Problem]]:
    """All flows of a checked file, sorted by id. Problems: SYN012 where a pattern lacks its parts."""
    problems: list[Problem] = []
    defaults = root.at("defaults")
    drafts: dict[str, FlowDraft] = {}
    merged: dict[int, tuple[CheckedValue, CheckedValue]] = {}  # a pattern gives all its flows the same settings
    for number, draft in enumerate(_pattern_flows(root, problems)):
        if number == _MAX_FLOWS:
            drafts.clear()  # a part of a pattern would be judged wrongly, and none of it is proven anyway
            problems.append(_too_many(draft.path, draft.declared))
            break
        if id(draft.settings) not in merged:
            merged[id(draft.settings)] = (draft.settings, merge_settings(defaults, draft.settings))
        drafts[draft.id] = replace(draft, settings=merged[id(draft.settings)][1])
    listed: dict[str, FlowDraft] = {}
    for index, each in enumerate(root.list("flows")):
        if len(listed) + len(drafts) == _MAX_FLOWS:
            listed.clear()
            drafts.clear()
            problems.append(_too_many("flows", each.span))
            break
        source, target = each.get("source"), each.get("target")
        if source is None or target is None:
            continue
        identity = build_flow_id(source, target, each.get("suffix"))
        path = f"flows[{index}]"
        if identity in listed:
            more = Label(listed[identity].declared, "first here")
            problems.append(
                Problem(
                    "GRF214",
                    f"two flows with the id {identity}",
                    (Label(each.span), more),
                    path=path,
                    help="one of them needs `suffix: word`, or both become one",
                    ids=(identity,),
                )
            )
            continue
        below = drafts[identity].settings if identity in drafts else defaults
        listed[identity] = FlowDraft(identity, source, target, merge_settings(below, _settings(each)), each.span, path)
    drafts |= listed
    return [drafts[identity] for identity in sorted(drafts)], problems


def _too_many(path: str, span: FileSpan) -> Problem:
    message = f"`{path}` makes more than {_MAX_FLOWS} flows; none of them is looked at"
    return Problem("GRF219", message, (Label(span),), path, help="split the topology")


def merge_settings(below: CheckedValue | None, above: CheckedValue) -> CheckedValue:
    """Key by key, one level into each section; lists, naming and compression are replaced as a whole."""
    if below is None:
        return above
    fields = dict(below.fields)
    for name, value in above.fields.items():
        old = fields.get(name)
        if old is not None and old.fields and value.fields and name not in _ATOMIC:
            fields[name] = build_mapping(value.span, {**old.fields, **value.fields}, value.key)
        else:
            fields[name] = value
    return build_mapping(above.span, fields, above.key)


def _settings(value: CheckedValue) -> CheckedValue:
    return build_mapping(
        value.span, {name: each for name, each in value.fields.items() if name in FLOW_SETTINGS}, value.key
    )


def _with(settings: CheckedValue, section: str, name: str, data: str, span: FileSpan) -> CheckedValue:
    """The settings with one value that the pattern implies, unless it is said."""
    if settings.at(section, name) is not None:
        return settings
    old = settings.at(section)
    fields = {**(old.fields if old else {}), name: CheckedValue(span, data)}
    return build_mapping(settings.span, {**settings.fields, section: build_mapping(old.span if old else span, fields)})


def _pattern_flows(root: CheckedValue, problems: list[Problem]) -> Iterator[FlowDraft]:
    pattern = root.at("pattern")
    if pattern is None or len(pattern.fields) != 1:
        return
    [(kind, body)] = pattern.fields.items()
    draft_flows = _PATTERNS.get(kind)
    if draft_flows is not None:
        yield from draft_flows(_Pattern(f"pattern.{kind}", body, body.key or body.span, problems))


@dataclass(frozen=True, slots=True)
class _Pattern:
    """The body of one pattern: `path` and `where` are its place in the file; what it lacks goes to `problems`."""

    path: str
    body: CheckedValue
    where: FileSpan
    problems: list[Problem]

    def draft(
        self, source: str | None, target: str | None, settings: CheckedValue, below: str = ""
    ) -> Iterator[FlowDraft]:
        if source is not None and target is not None:
            yield FlowDraft(build_flow_id(source, target), source, target, settings, self.where, self.path + below)

    def report(self, message: str) -> None:
        self.problems.append(Problem("SYN012", message, (Label(self.where),), self.path))

    def has_clusters(self, *names: str, least: int = 1) -> bool:
        """Whether each of these lists names enough clusters; a list that is too short is reported."""
        short = [name for name in names if len(self.body.list(name)) < least]
        for name in short:
            count = "two clusters" if least > 1 else "one cluster"
            self.report(f"`{self.path}` needs `{name}` with at least {count}")
        return not short


def _draft_hub_and_spoke(pattern: _Pattern) -> Iterator[FlowDraft]:
    body = pattern.body
    if not {"up", "down"} & set(body.fields):
        pattern.report(f"`{pattern.path}` needs `up`, `down` or both")
    pattern.has_clusters("spokes")
    for spoke in body.texts("spokes"):
        if up := body.at("up"):
            yield from pattern.draft(spoke, body.get("hub"), up, ".up")
        if down := body.at("down"):
            yield from pattern.draft(body.get("hub"), spoke, down, ".down")


def _draft_active_active(pattern: _Pattern) -> Iterator[FlowDraft]:
    body = pattern.body
    if body.get("via") == "aggregate" and pattern.has_clusters("regionals", "aggregates"):
        for regional, aggregate in product(body.texts("regionals"), body.texts("aggregates")):
            yield from pattern.draft(regional, aggregate, _settings(body))
    elif body.get("via") == "direct" and pattern.has_clusters("members", least=2):
        members, settings = body.texts("members"), _settings(body)
        if len(members) > 2:
            settings = _with(settings, "provenance", "forward", "local", pattern.where)
        for source, target in product(members, repeat=2):
            if source != target:
                yield from pattern.draft(source, target, settings)


def _draft_active_standby(pattern: _Pattern) -> Iterator[FlowDraft]:
    body, settings = pattern.body, _settings(pattern.body)
    active, standby = body.get("active"), body.get("standby")
    yield from pattern.draft(active, standby, settings)
    reverse = body.at("failback", "reverse")
    if reverse is not None and reverse.data == "declared_paused":
        # Applications come home along the way back, so it never protects their home, and no budget stops it.
        own = {"state": CheckedValue(reverse.span, "paused"), "protect": CheckedValue(reverse.span, False)}
        slo = settings.at("slo")
        alerts = {**(slo.fields if slo else {}), "on_breach": CheckedValue(reverse.span, "alert")}
        own["slo"] = build_mapping(slo.span if slo else reverse.span, alerts)
        paused = build_mapping(settings.span, {**settings.fields, **own})
        yield from pattern.draft(standby, active, paused, ".failback")


def _draft_aggregation(pattern: _Pattern) -> Iterator[FlowDraft]:
    if pattern.has_clusters("sources"):
        for source in pattern.body.texts("sources"):
            yield from pattern.draft(source, pattern.body.get("target"), _settings(pattern.body))


def _draft_chain(pattern: _Pattern) -> Iterator[FlowDraft]:
    if pattern.has_clusters("path", least=2):
        for source, target in pairwise(pattern.body.texts("path")):
            yield from pattern.draft(source, target, _settings(pattern.body))


_PATTERNS = {
    "hub_and_spoke": _draft_hub_and_spoke,
    "active_active": _draft_active_active,
    "active_standby": _draft_active_standby,
    "aggregation": _draft_aggregation,
    "chain": _draft_chain,
}
