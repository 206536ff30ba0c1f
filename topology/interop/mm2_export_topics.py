"""The selection of a flow as MirrorMaker's `topics` and `topics.exclude`. Never more than the flow selects: what only a
wider list could say is left out and noted."""

from __future__ import annotations

from collections.abc import Sequence

from watershed.topology.interop.import_notes import ImportNotes
from watershed.topology.interop.mm2_pair import IDENTITY_REPLICATION_POLICY
from watershed.topology.interop.mm2_selection import NEVER_MIRRORED_TOPICS, build_cycle_excludes
from watershed.topology.interop.mm2_topic_list import encode_topic_list
from watershed.topology.model import Flow
from watershed.topology.pattern_automaton import Automaton
from watershed.topology.regex import TOPIC_LETTERS
from watershed.topology.selection_overlap import find_shortest_overlap
from watershed.topology.selectors import INTERNAL_TOPIC_GLOBS, Selector, TopicSelection, is_internal_topic

_MAX_PAIRS = 20_000


def build_export_topic_lists(
    flow: Flow, clusters: Sequence[str], target: str, naming: dict[str, str], notes: ImportNotes
) -> dict[str, str] | None:
    """`{"topics": …, "topics.exclude": …}`, or None when nothing is left, which the notes then say. `clusters` and
    `target` are foreign names."""
    place = flow.settings.where("topics", "include")
    include: list[Selector] = []
    patterns = [each for each in flow.plan.topics.include if each.kind != "literal"]
    inside = [Selector("glob", text) for text in INTERNAL_TOPIC_GLOBS]
    hidden = [each for each in inside if any(has_common_match(one.automaton(), each.automaton()) for one in patterns)]
    for each in flow.plan.topics.include:
        why = _explain_unwritten(each, flow, hidden)
        if why is None:
            include.append(each)
        elif why:
            notes.add_not_carried(f"topic {each} of flow {flow.id}", why, place)
    skipped = [each.text for each in NEVER_MIRRORED_TOPICS if any(_can_match(flow, one, each) for one in patterns)]
    if skipped:
        why = "MirrorMaker takes such names for internal topics and never copies them"
        notes.add_not_carried(f"topics {' and '.join(skipped)} of flow {flow.id}", why, place)
    if naming["replication.policy.class"].rpartition(".")[2] != IDENTITY_REPLICATION_POLICY:
        _coming_back(flow, target, naming["replication.policy.separator"], include, notes)
    text, lost = encode_topic_list(tuple(include))
    for each in lost:
        notes.add_not_carried(
            f"topics {each} of flow {flow.id}", "there is no Java regex for it without a comma", place
        )
    if not text:
        notes.add_not_carried(f"flow {flow.id}", "nothing of its topics can be said; the flow is left out", place)
        return None
    said = flow.plan.compatibility  # MirrorMaker leaves out by itself what it writes
    own = () if said is None else said.list_left_out_topics(flow.plan.naming)
    excluded = tuple(each for each in flow.plan.topics.exclude if each not in own)
    banned, unsaid = encode_topic_list((*excluded, *hidden))
    if unsaid:
        why = f"its exclude {unsaid[0]} is no Java regex without a comma; the flow is left out, it would copy too much"
        notes.add_not_carried(f"flow {flow.id}", why, flow.settings.where("topics", "exclude"))
        return None
    return {"topics": text, "topics.exclude": banned}


def has_common_match(one: Automaton, other: Automaton) -> bool:
    """True if a name matches both, or if the search is too large to say."""
    # one sample letter for each pair of letter classes
    chars = {(left, right): char for left, right, char in zip(one.kinds, other.kinds, TOPIC_LETTERS, strict=True)}
    todo = [(one.start, other.start)]
    seen = set(todo)
    for left, right in todo:
        if one.accepts(left) and other.accepts(right):
            return True
        for char in chars.values():
            following = one.step(left, char), other.step(right, char)
            if all(following) and following not in seen:
                if len(seen) >= _MAX_PAIRS:
                    return True
                seen.add(following)
                todo.append(following)
    return False


def _explain_unwritten(selector: Selector, flow: Flow, hidden: list[Selector]) -> str | None:
    """Why an include cannot be written; None if it can, "" if it selects nothing and is left out without a note."""
    name = selector.text
    if selector.kind != "literal":
        return None
    if not flow.plan.topics.selects(name):
        return ""
    if name.startswith("__") or any(each.matches(name) for each in NEVER_MIRRORED_TOPICS):
        return "MirrorMaker takes such names for internal topics and never copies them"
    if is_internal_topic(name) and any(each.matches(name) for each in hidden):
        return "it cannot be excluded for the flow's patterns and included by name"
    return None


def _can_match(flow: Flow, pattern: Selector, each: Selector) -> bool:
    """Whether the pattern selects a name of `each` that the flow does not leave out anyway."""
    sides = (flow.plan.topics, TopicSelection((each,)), TopicSelection((pattern,)))
    return find_shortest_overlap(frozenset(("", "", side) for side in sides)).found


def _coming_back(flow: Flow, target: str, separator: str, include: list[Selector], notes: ImportNotes) -> None:
    skipped = [
        each.text
        for each in build_cycle_excludes(target, separator)
        if any(_can_match(flow, one, each) for one in include)
    ]
    if skipped:
        why = f"MirrorMaker takes them for copies from {target} and never copies them there"
        what = f"topics {' and '.join(skipped)} of flow {flow.id}"
        notes.add_not_carried(what, why, flow.settings.where("topics", "include"))
