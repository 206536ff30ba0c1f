"""What a MirrorMaker 2 pair copies, with everything that MirrorMaker leaves out without being told.

Source: DefaultTopicFilter (the default exclude), ReplicationPolicy.isInternalTopic, MirrorSourceConnector.isCycle and
DefaultGroupFilter of apache/kafka connect/mirror.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from watershed.topology.errors import BadSelector
from watershed.topology.finding import FileSpan, Label
from watershed.topology.interop import mm2_topic_list
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes
from watershed.topology.interop.java_properties import has_dropped_backslash
from watershed.topology.interop.mm2_pair import MirrorPair
from watershed.topology.selection_overlap import find_overlap
from watershed.topology.selectors import INTERNAL_TOPIC_GLOBS, Selector, TopicSelection, is_internal_topic

_REPLICA = Selector("glob", "*.replica")
NEVER_MIRRORED_TOPICS = (Selector("glob", "*-internal"), Selector("glob", "*.internal"))
_QUOTES = ("'", '"')
_MAX_NAMES = 30
_MAX_ENTRIES = 200
_MAX_TRAPS = 20
_TOOL_GROUPS = tuple(Selector("glob", text) for text in ("__*", "connect-*", "console-consumer-*"))
_EVERYTHING = {Selector("glob", "*"), Selector("regex", ".+"), Selector("glob", "?*")}
# internal topics that MirrorMaker's own exclude lets through
_FORGOTTEN = "`_schemas`, `connect-…`, `…-changelog` and `…-repartition`"


@dataclass(frozen=True, slots=True)
class MirrorSelection:
    """The topics of a flow: what MirrorMaker copies, with the excludes that it adds by itself."""

    include: tuple[Selector, ...]
    exclude: tuple[Selector, ...]
    allow_internal: bool = False


def build_mirror_selection(pair: MirrorPair, notes: ImportNotes) -> MirrorSelection:
    """The topics that a pair copies. Reports patterns that match more than they seem to."""
    said, banned = pair.config.get("topics"), pair.config.get("topics.exclude")
    include, ahead = _read(pair, said, notes, "topics") if said is not None else ([Selector("glob", "*")], [])
    exclude, kept_only = _read(pair, banned, notes, "topics.exclude") if banned is not None else ([_REPLICA], [])
    include = _keep_only(include, kept_only, banned, notes)
    exclude += ahead
    if _EVERYTHING & set(include):
        _catches_everything(pair, said, banned, notes)
    literals = [each for each in include if each.kind == "literal"]
    for each in literals:
        if any(always.matches(each.text) for always in NEVER_MIRRORED_TOPICS) or each.text.startswith("__"):
            notes.add_problem(
                "TPC401",
                f"MirrorMaker never copies `{each.text}`: it takes every such name for an internal topic",
                said.span if said is not None else pair.where,
                "leave it out, or rename the topic",
            )
            include.remove(each)
    exclude += NEVER_MIRRORED_TOPICS
    if pair.returns and not pair.identity:
        exclude += _returning(pair, include)
    kept = tuple(
        each for each in sorted(set(exclude)) if each.text not in INTERNAL_TOPIC_GLOBS and _meet(tuple(include), each)
    )
    allow = any(is_internal_topic(each.text) for each in include if each.kind == "literal")
    return MirrorSelection(tuple(sorted(set(include))), kept, allow)


def build_group_selectors(pair: MirrorPair, notes: ImportNotes) -> tuple[tuple[Selector, ...], tuple[Selector, ...]]:
    """The consumer groups that a pair synchronises: (include, exclude)."""
    said, banned = pair.config.get("groups"), pair.config.get("groups.exclude")
    include, ahead = _read(pair, said, notes, "groups") if said is not None else ([Selector("glob", "*")], [])
    exclude, kept_only = (
        _read(pair, banned, notes, "groups.exclude") if banned is not None else (list(_TOOL_GROUPS), [])
    )
    include = _keep_only(include, kept_only, banned, notes)
    if banned is not None and _EVERYTHING & set(include):
        lost = [each.text for each in _TOOL_GROUPS if each not in exclude]
        if lost:
            notes.add_problem(
                "SYC506",
                f"`{banned.name}` replaces MirrorMaker's own list, so groups of tools are copied: {', '.join(lost)}",
                banned.span,
                "add `console-consumer-.*, connect-.*, __.*` to it",
            )
    if banned is None:  # MirrorMaker's own list: only what it changes
        exclude = [each for each in exclude if any(_meet_group(one, each) for one in include)]
    kept = tuple(sorted({*exclude, *ahead}))
    return tuple(sorted(set(include))), kept


def build_cycle_excludes(target: str, separator: str) -> tuple[Selector, ...]:
    """Names in whose chain of prefixes the target stands: MirrorMaker takes them for copies of its own and skips
    them (isCycle)."""
    if separator == "" or re.fullmatch(r"[a-zA-Z0-9._-]+", target + separator) is None:
        return ()
    return Selector("glob", f"{target}{separator}*"), Selector("glob", f"*{separator}{target}{separator}*")


def _returning(pair: MirrorPair, include: list[Selector]) -> list[Selector]:
    """Only when a name that copies really have (prefixes of declared clusters) would be taken again."""
    separator, target = pair.separator, pair.target.name
    if re.fullmatch(r"[a-zA-Z0-9._-]{1,20}", separator) is None:
        return []
    legal = [name for name in pair.others if re.fullmatch(r"[a-zA-Z0-9._-]+", name)]
    if target not in legal:
        return []
    names = build_cycle_excludes(target, separator)
    if len(legal) > _MAX_NAMES:
        return list(names) if any(_meet(tuple(include), each) for each in names) else []
    between = _plain(separator)
    prefixes = "|".join(f"{_plain(name)}{between}" for name in legal)
    copies = Selector("regex", f"(?:{prefixes})*{_plain(target)}{between}.*")
    try:
        again = _meet(tuple(include), copies)
    except BadSelector:  # too large a pattern to decide
        again = True
    return list(names) if again else []


def _plain(text: str) -> str:
    """A regex of exactly this text."""
    return re.sub(r"([._-])", r"[\1]", text)


def _read(
    pair: MirrorPair, said: ForeignSetting, notes: ImportNotes, key: str
) -> tuple[list[Selector], list[Selector]]:
    """The selectors of a list, and what negative look-aheads take out of it. An exclude of all but some has no
    selectors: what it takes out is what is left to copy."""
    found, ahead = [], []
    entries = mm2_topic_list.parse_topic_list(said.text)
    whole = {"topics": "nothing is copied", "groups": "no group is synchronised"}
    if not entries and key in whole:
        notes.add_problem(
            "SYN010", f"`{said.name}` is empty: {whole[key]}", said.span, "name topics, or leave the key out"
        )
    what = "group" if key.startswith("groups") else "topic"
    traps = 0
    for each in entries:
        if each.selector is None or not _is_expressible(each, key, len(entries)):
            _note_unread(said, each, notes)
            continue
        if each.excluded is not None and key.endswith(".exclude"):
            ahead.append(each.excluded)
            continue
        found.append(each.selector)
        _check_matchable(said, each, what, notes)
        if each.excluded is not None:
            ahead.append(each.excluded)
        if not each.trap:
            continue
        traps += 1
        if traps > _MAX_TRAPS:
            continue
        dropped = bool(pair.lines) and has_dropped_backslash(said, each.text, pair.lines)
        why = "the properties syntax drops a single backslash; " if dropped else ""
        example = mm2_topic_list.encode_java_regex(each.selector) or ""
        if each.trap == "loose dots":
            wider = each.text.replace(".", "X", 1)
            written = example.replace("\\", "\\\\") if pair.lines else example
            notes.add_problem(
                "NAM306",
                f"`{said.name}`: {why}`{each.text}` is a regex, its dots match any character (also {what} `{wider}`)",
                said.span,
                f"write `{written}`; imported as the exact name",
            )
        else:
            notes.add_problem(
                "NAM306",
                f"`{said.name}`: {why}a dot in `{each.text}` matches any character, not only a dot",
                said.span,
                "escape it: `\\\\.` in a properties file" if pair.lines else "escape it: `\\.`",
            )
    if traps > _MAX_TRAPS:
        more = f"`{said.name}`: {traps - _MAX_TRAPS} more entries with dots that match any character"
        notes.add_problem("NAM306", more, said.span, "escape them, too")
    return found, ahead


def _is_expressible(entry: mm2_topic_list.TopicListEntry, key: str, entries: int) -> bool:
    """Whether `include` and `exclude` can say a negative look-ahead: alone, and in an exclude only of all but some."""
    return entry.excluded is None or (entries == 1 and (not key.endswith(".exclude") or entry.selector in _EVERYTHING))


def _note_unread(said: ForeignSetting, entry: mm2_topic_list.TopicListEntry, notes: ImportNotes) -> None:
    why = entry.why or "a look-ahead that cannot be said with `include` and `exclude`: write what it means"
    notes.add_not_carried(f"`{said.name}`: {entry.text}", why, said.span)
    if "never closed" in entry.why or "without its" in entry.why or "repeats nothing" in entry.why:
        help_ = "MirrorMaker stops with it; an entry of the list is a Java regex without a comma"
        notes.add_problem("SYN011", f"`{said.name}`: `{entry.text}` is no regex: {entry.why}", said.span, help_)


def _keep_only(
    include: list[Selector], kept_only: list[Selector], banned: ForeignSetting | None, notes: ImportNotes
) -> list[Selector]:
    """What is copied under an exclude of all but `kept_only`, as `(?!orders).*`: these, where all was included."""
    if not kept_only or banned is None:
        return include
    if include and set(include) <= _EVERYTHING:
        return kept_only
    why = "it excludes all but some, and the flow includes single patterns: write in `include` what is left"
    notes.add_not_carried(f"`{banned.name}`: {banned.text.strip()}", why, banned.span)
    return include


def _check_matchable(said: ForeignSetting, entry: mm2_topic_list.TopicListEntry, what: str, notes: ImportNotes) -> None:
    """NAM302 for an entry that no topic matches, and for a group in quotes: Java's properties know no quotes."""
    if what == "topic":
        why, texts = "matches no topic: a name has letters, digits, `.`, `_` and `-` only", _find_unmatchable(entry)
    else:
        quoted = entry.text[:1] in _QUOTES
        why, texts = "matches groups with these quotes in their names", [entry.text] if quoted else []
    for text in texts:
        help_ = "take the quotes away" if text[:1] in _QUOTES else "correct it, or take it out"
        notes.add_problem("NAM302", f"`{said.name}`: `{text}` {why}", said.span, help_, severity="warning")


def _find_unmatchable(entry: mm2_topic_list.TopicListEntry) -> list[str]:
    """The entry, or those of its plain alternatives (`a|"b"`), that no topic's name matches."""
    if entry.selector is None:
        return []
    if entry.selector.automaton().is_empty():
        return [entry.text]
    if "|" not in entry.text or re.search(r"[(\[\\]", entry.text.replace(r"\.", "")):
        return []
    return [each for each in entry.text.split("|") if Selector("regex", each).automaton().is_empty()]


def _catches_everything(
    pair: MirrorPair, said: ForeignSetting | None, banned: ForeignSetting | None, notes: ImportNotes
) -> None:
    place: FileSpan = said.span if said is not None else pair.where
    route = f"{pair.source.name}->{pair.target.name}"
    by = f"`{said.name}` is" if said is not None else f"{route} says no `topics`, so they are"
    more = (Label(banned.span, "its excludes"),) if banned is not None else ()
    if pair.running:
        notes.add_problem(
            "NAM307",
            f"{by} `.*`: every topic of the source, also those of other teams and tests",
            place,
            "name what belongs together, as `team-a-.*`",
            more=more,
        )
    notes.add_not_carried(
        f"internal topics of {route}",
        f"MirrorMaker also copies {_FORGOTTEN}; "
        "Watershed leaves them out, unless named literally with `allow_internal`",
        place,
    )


def _meet(include: tuple[Selector, ...], each: Selector) -> bool:
    """Whether a topic of `include` matches; true when that is too much work to say."""
    if not include or len(include) > _MAX_ENTRIES:
        return bool(include)
    sides = (TopicSelection(include), TopicSelection((each,)))
    return find_overlap(frozenset(("", "", side) for side in sides)).found


def _meet_group(one: Selector, each: Selector) -> bool:
    """Groups know no internal names, which topics do: those patterns are always kept."""
    return one.kind != "literal" or each.matches(one.text)
