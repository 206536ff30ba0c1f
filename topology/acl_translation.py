"""Translates ACLs on topics and groups into ACLs for the names at the target.

An ACL is translated only if ACLs can express exactly the translated names (KIP-290: a literal name or a prefix).
Otherwise it is left out, with the reason. An ALLOW never becomes wider, a DENY never narrower. If a DENY is left out,
every ALLOW that it restricts is left out as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from watershed.topology.inventory import InventoryAcl
from watershed.topology.pattern_automaton import DEAD_STATE, Automaton, pick_letter_per_kind
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, Selectors

# Operations that change nothing. Every other operation counts as a right to write.
READ_OPERATIONS: Final = {
    "TOPIC": ("READ", "DESCRIBE", "DESCRIBE_CONFIGS"),
    "GROUP": ("READ", "DESCRIBE", "DESCRIBE_CONFIGS"),
}
# What `kafka-acls` calls the resources.
ACL_RESOURCE_OPTIONS: Final = {
    "TOPIC": "--topic",
    "GROUP": "--group",
    "CLUSTER": "--cluster",
    "TRANSACTIONAL_ID": "--transactional-id",
}
_OF_ALL: Final = {
    "TOPIC": READ_OPERATIONS["TOPIC"],
    "GROUP": ("READ", "DESCRIBE"),
}  # groups have configs since Kafka 3.8 only
_IMPLIES_DESCRIBE = ("READ", "WRITE", "DELETE", "ALTER")
_EVERYBODY = "User:*"
_ANY = "*"


@dataclass(frozen=True, slots=True)
class _UntranslatedAcl:
    """An ACL of the source that is left out at the target, with the reason."""

    acl: InventoryAcl
    why: str


@dataclass(frozen=True, slots=True)
class _AclTranslation:
    """bindings: the ACLs that the target should have, DENY first. withheld: rights to write that the flow holds back
    until applications move (`include_write: on_failover`). left: the ACLs that are left out."""

    bindings: tuple[InventoryAcl, ...] = ()
    withheld: tuple[InventoryAcl, ...] = ()
    left: tuple[_UntranslatedAcl, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class _AclNamePattern:
    """One name, or with `prefixed` all names that begin with `text`. An empty prefix matches every name."""

    text: str
    prefixed: bool

    def covers(self, other: _AclNamePattern) -> bool:
        if self.prefixed:
            return other.text.startswith(self.text)
        return self == other

    def meets(self, other: _AclNamePattern) -> bool:
        """Whether at least one name matches both patterns."""
        return self.covers(other) or other.covers(self)


class _Cut(Exception):
    """The ACL cannot be translated exactly. The text says why."""


def translate_acls(flow: PlanFlow, acls: Iterable[InventoryAcl]) -> _AclTranslation:
    """Translates the ACLs of the flow's source into ACLs for its target. Ignores ACLs that do not concern the flow.

    Does no I/O.
    """
    bindings: set[InventoryAcl] = set()
    withheld: set[InventoryAcl] = set()
    left: list[_UntranslatedAcl] = []
    allowed: list[tuple[InventoryAcl, tuple[_AclNamePattern, ...]]] = []
    denied: list[InventoryAcl] = []
    fences = {InventoryAcl(who, "WRITE", "DENY", "TOPIC", name, "LITERAL") for who, name in flow.sync.acls.fences}
    for acl in sorted(set(acls) - fences, key=_order):
        if flow.sync.acls.leaves_denials and is_write_denial(acl):
            continue
        try:
            patterns = _patterns(flow, acl)
        except _Cut as cut:
            left.append(_UntranslatedAcl(acl, str(cut)))
            if acl.permission == "DENY":
                denied.append(acl)
            continue
        if acl.permission == "DENY":
            bindings |= {_renamed(acl, pattern) for pattern in patterns}
        elif patterns:
            allowed.append((acl, patterns))
    for acl, patterns in allowed:
        denial = next((each for each in denied if takes_from(each, acl)), None)
        if denial is not None:
            why = (
                f"{render_acl(denial)} restricts it at the source and cannot be carried over, so the target "
                f"would allow more"
            )
            left.append(_UntranslatedAcl(acl, why))
            continue
        for pattern in patterns:
            here, later = _operations(flow, _renamed(acl, pattern))
            bindings.update(here)
            withheld.update(later)
    return _AclTranslation(
        tuple(sorted(bindings, key=_order)), tuple(sorted(withheld - bindings, key=_order)), tuple(left)
    )


def find_surplus_acls(
    flow: PlanFlow, here: Iterable[InventoryAcl], there: Iterable[InventoryAcl]
) -> list[InventoryAcl]:
    """ACLs at the target that no ACL of the source explains: revoked at the source, or granted at the target only.

    Write ACLs count only if the flow syncs them. A group ACL counts only if its principal has an ACL at the source or
    lost one on a topic, because every cluster has groups of its own.
    """
    here = list(here)
    always = replace(flow, sync=replace(flow.sync, acls=replace(flow.sync.acls, include_write="always")))
    told = translate_acls(flow, here)
    known = {*told.bindings, *told.withheld, *translate_acls(always, here).bindings}
    lacking = [acl for acl in sorted(set(there) - known, key=_order) if _brought(flow, always, acl)]
    principals = {acl.principal for acl in here} | {acl.principal for acl in lacking if acl.resource == "TOPIC"}
    return [acl for acl in lacking if acl.resource == "TOPIC" or acl.principal in principals]


def is_acl_about(acl: InventoryAcl, topics: Iterable[str], groups: Iterable[str]) -> bool:
    """Whether the ACL covers one of these topics or groups. An ACL for another resource type covers none."""
    names = {"TOPIC": topics, "GROUP": groups}.get(acl.resource, ())
    pattern = _pattern(acl)
    return any(pattern.covers(_AclNamePattern(name, False)) for name in names)


def is_write_denial(acl: InventoryAcl) -> bool:
    """Whether the ACL has the form in which `protect` keeps a principal out: DENY WRITE on one topic, from anywhere."""
    return (acl.permission, acl.operation, acl.resource, acl.pattern, acl.host) == (
        *("DENY", "WRITE", "TOPIC", "LITERAL"),
        _ANY,
    )


def render_acl(acl: InventoryAcl) -> str:
    """For people: `User:ann READ topic orders.*`."""
    denied = "DENY " if acl.permission == "DENY" else ""
    host = "" if acl.host == _ANY else f" from {acl.host}"
    return f"{acl.principal} {denied}{acl.operation} {render_acl_resource(acl)}{host}"


def render_operation(operation: str) -> str:
    """`DESCRIBE_CONFIGS` as `DescribeConfigs`: the one spelling that kafka-acls, Strimzi and Terraform take."""
    return "".join(part.capitalize() for part in operation.split("_"))


def render_acl_resource(acl: InventoryAcl) -> str:
    """For people: `topic orders`, `topic orders.*` (a prefix), `group *`."""
    star = "*" if acl.pattern == "PREFIXED" else ""
    return f"{acl.resource.lower().replace('_', ' ')} {acl.name}{star}"


def _patterns(flow: PlanFlow, acl: InventoryAcl) -> tuple[_AclNamePattern, ...]:
    """The name patterns that the ACL gets at the target; none if it does not concern the flow. Raises _Cut."""
    if acl.resource not in READ_OPERATIONS:
        raise _Cut("only rights to topics and groups are carried over")
    if acl.pattern not in ("LITERAL", "PREFIXED") or acl.permission not in ("ALLOW", "DENY"):
        raise _Cut(f"permission {acl.permission} with pattern type {acl.pattern} is not supported")
    pattern = _pattern(acl)
    names = flow.sync.acls.names
    if acl.resource == "GROUP":
        found = _chosen(pattern, names.include, names.exclude, "sync.acls")
        return _outer(_group(flow, each) for each in found)
    if not pattern.prefixed:
        found = (pattern,) if flow.selects(pattern.text) else ()
    else:
        found = _chosen(pattern, flow.topics.include, _list_declared_excludes(flow), "topics")
        found = tuple(each for each in found if each.prefixed or flow.selects(each.text))
    found = tuple(part for each in found for part in _chosen(each, names.include, names.exclude, "sync.acls"))
    return _outer(_topic(flow, each) for each in found)


def _list_declared_excludes(flow: PlanFlow) -> tuple[Selector, ...]:
    """The flow's `exclude` without the topics of tools that `compatibility` leaves out. These say what is not copied,
    and take no right away: `*.heartbeats` may stand behind any prefix, so no prefix could be carried over. The plan
    does not tell an equal selector of the file from one that was added: neither counts."""
    if flow.compatibility is None:
        return flow.topics.exclude
    own = flow.compatibility.list_left_out_topics(flow.naming)
    return tuple(each for each in flow.topics.exclude if each not in own)


def _chosen(
    pattern: _AclNamePattern, include: Iterable[Selector], exclude: Iterable[Selector], where: str
) -> tuple[_AclNamePattern, ...]:
    """The part of a pattern that `include` selects and `exclude` does not. An empty `include` selects everything.

    Raises _Cut if ACL patterns cannot express that part.
    """
    included, excluded = Selectors(include), Selectors(exclude)
    if not pattern.prefixed:
        chosen = (not included or included.match(pattern.text)) and not excluded.match(pattern.text)
        return (pattern,) if chosen else ()
    found, cut = _part(pattern, included) if included else ((pattern,), None)
    if cut is not None:
        raise _Cut(f"`{cut}` in `{where}.include` takes only some of {_those(pattern)}")
    return tuple(each for each in found if not _dropped(each, excluded, where))


@lru_cache(maxsize=4096)
def _part(pattern: _AclNamePattern, selectors: Selectors) -> tuple[tuple[_AclNamePattern, ...], str | None]:
    """The part of a prefix that selectors match, as patterns.

    Also returns the text of a selector that patterns cannot express; None if there is none.
    """
    found: set[_AclNamePattern] = {
        _AclNamePattern(name, False) for name in selectors.literals if name.startswith(pattern.text)
    }
    cut = None
    for selector in selectors:
        if selector.kind == "literal":
            continue
        machine = selector.automaton()
        if machine.run(pattern.text, machine.start) == DEAD_STATE:
            continue
        if _is_all_matched(machine, pattern.text):
            return (pattern,), None
        begin = selector.prefix
        if selector.kind == "glob" and selector.text == f"{begin}*" and begin.startswith(pattern.text):
            found.add(_AclNamePattern(begin, True))
        else:
            cut = cut or selector.text
    return _outer(found), cut


def _dropped(pattern: _AclNamePattern, excluded: Selectors, where: str) -> bool:
    if not pattern.prefixed:
        return excluded.match(pattern.text)
    cut = _find_excluding_selector(pattern, excluded)
    if cut:
        raise _Cut(f"`{cut}` in `{where}.exclude` takes away some of {_those(pattern)}")
    return cut is None


@lru_cache(maxsize=4096)
def _find_excluding_selector(pattern: _AclNamePattern, excluded: Selectors) -> str | None:
    """The text of a selector that excludes some names of the prefix; "" if none does, None if one excludes all."""
    cut = min((name for name in excluded.literals if name.startswith(pattern.text)), default="")
    for selector in excluded:
        if selector.kind != "literal":
            machine = selector.automaton()
            if _is_all_matched(machine, pattern.text):
                return None
            if machine.run(pattern.text, machine.start) != DEAD_STATE:
                cut = cut or selector.text
    return cut


def _is_all_matched(machine: Automaton, begin: str) -> bool:
    """True if every name with this prefix surely matches; False also if that is not easy to decide."""
    state = machine.run(begin, machine.start)
    following = (machine.step(state, letter) for letter in pick_letter_per_kind(machine.kinds))
    return state != DEAD_STATE and (not begin or machine.accepts(state)) and all(map(machine.endless, following))


def _topic(flow: PlanFlow, pattern: _AclNamePattern) -> _AclNamePattern:
    naming = flow.naming
    if not pattern.prefixed:
        return _AclNamePattern(flow.target_topic(pattern.text), False)
    if naming.policy != "map":
        if naming.after:
            raise _Cut(f"the flow puts `{naming.after}` behind each name, and an ACL says beginnings of names only")
        return _AclNamePattern(naming.before + pattern.text, True)
    cut = _cut_by(pattern.text, ((name, to) for name, to in naming.map if flow.selects(name)))
    if cut:
        raise _Cut(f"the flow renames `{cut}`, so the prefix `{pattern.text}` does not match exactly the new names")
    return pattern


def _group(flow: PlanFlow, pattern: _AclNamePattern) -> _AclNamePattern:
    if not pattern.prefixed:
        return _AclNamePattern(flow.sync.groups.target_group(pattern.text), False)
    cut = _cut_by(pattern.text, flow.sync.groups.rename)
    if cut:
        raise _Cut(f"`sync.groups.rename` renames `{cut}`, so not all new names begin with `{pattern.text}`")
    return pattern


def _those(pattern: _AclNamePattern) -> str:
    return f"the names that begin with `{pattern.text}`" if pattern.text else "all names"


def _cut_by(prefix: str, renames: Iterable[tuple[str, str]]) -> str | None:
    """A renamed name whose old or new name begins with the prefix; None if there is none.

    At the target, such a prefix would match a name that no longer exists there, or a new name that had another
    prefix at the source. The empty prefix gives None, because it matches all names before and after.
    """
    found = (name for name, to in renames if name != to and (name.startswith(prefix) or to.startswith(prefix)))
    return next(found, None) if prefix else None


def _outer(patterns: Iterable[_AclNamePattern]) -> tuple[_AclNamePattern, ...]:
    """Sorts the patterns and drops each one that another pattern covers."""
    kept: list[_AclNamePattern] = []
    for pattern in sorted(set(patterns), key=lambda each: (not each.prefixed, each.text)):
        if not any(each.prefixed and each.covers(pattern) for each in kept):
            kept.append(pattern)
    return tuple(sorted(kept))


def _pattern(acl: InventoryAcl) -> _AclNamePattern:
    if acl.pattern == "LITERAL" and acl.name == _ANY:
        return _AclNamePattern("", True)
    return _AclNamePattern(acl.name, acl.pattern == "PREFIXED")


def _renamed(acl: InventoryAcl, pattern: _AclNamePattern) -> InventoryAcl:
    if pattern.prefixed and not pattern.text:
        return replace(acl, name=_ANY, pattern="LITERAL")
    return replace(acl, name=pattern.text, pattern="PREFIXED" if pattern.prefixed else "LITERAL")


def _operations(flow: PlanFlow, acl: InventoryAcl) -> tuple[list[InventoryAcl], list[InventoryAcl]]:
    """For an ALLOW: the ACLs that the target gets now, and the ACLs that it gets when applications move."""
    write = flow.sync.acls.include_write
    if write == "always" or acl.operation in READ_OPERATIONS[acl.resource]:
        return [acl], []
    later = [acl] if write == "on_failover" else []
    if acl.operation != "ALL":
        return [], later
    return [replace(acl, operation=each) for each in _OF_ALL[acl.resource]], later


def takes_from(denial: InventoryAcl, acl: InventoryAcl) -> bool:
    """Whether a DENY restricts an ALLOW, by the rules of Kafka's authorizer (StandardAuthorizerData)."""
    return (
        denial.resource == acl.resource
        and (denial.principal == acl.principal or _EVERYBODY in (denial.principal, acl.principal))
        and (denial.host == acl.host or _ANY in (denial.host, acl.host))
        and (
            denial.operation == acl.operation
            or "ALL" in (denial.operation, acl.operation)
            or (denial.operation == "DESCRIBE" and acl.operation in _IMPLIES_DESCRIBE)
            or (denial.operation == "DESCRIBE_CONFIGS" and acl.operation == "ALTER_CONFIGS")
        )
        and _pattern(denial).meets(_pattern(acl))
    )


def _brought(flow: PlanFlow, always: PlanFlow, acl: InventoryAcl) -> bool:
    """Whether the flow would translate some ACL of the source into this ACL."""
    if acl.resource not in READ_OPERATIONS or acl.permission not in ("ALLOW", "DENY"):
        return False
    reading = acl.permission == "DENY" or acl.operation in READ_OPERATIONS[acl.resource]
    if not reading and flow.sync.acls.include_write != "always":
        return False
    return any(acl in translate_acls(always, [before]).bindings for before in _before(flow, acl))


def _before(flow: PlanFlow, acl: InventoryAcl) -> Iterator[InventoryAcl]:
    """The ACLs of the source that this ACL may come from."""
    if acl.resource == "GROUP":
        if not acl.name.startswith("watershed."):
            yield acl
            yield from (replace(acl, name=name) for name, to in flow.sync.groups.rename if to == acl.name)
    elif acl.pattern == "LITERAL":
        name = acl.name if acl.name == _ANY else flow.naming.invert(acl.name)
        if name is not None:
            yield replace(acl, name=name)
    elif acl.name == flow.naming.before:
        yield replace(acl, name=_ANY, pattern="LITERAL")
    elif acl.name.startswith(flow.naming.before):
        yield replace(acl, name=acl.name[len(flow.naming.before) :])


def _order(acl: InventoryAcl) -> tuple[bool, str, str, str, str, str, str]:
    """Sort key, DENY first. So nobody has more rights while ACLs are written than when all are written."""
    return (
        acl.permission != "DENY",
        acl.resource,
        acl.name,
        acl.pattern,
        acl.principal,
        acl.operation,
        acl.host,
    )
