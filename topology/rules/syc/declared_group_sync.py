"""Which consumer groups a flow synchronises."""

from __future__ import annotations

from dataclasses import dataclass

from watershed.topology.finding import FileSpan
from watershed.topology.inventory import InventoryGroup
from watershed.topology.model import Flow
from watershed.topology.rule import RuleContext
from watershed.topology.selection_overlap import find_shortest_overlap
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import SyncMode

_EVERYTHING = Selector("glob", "*")


@dataclass(frozen=True, slots=True)
class DeclaredGroupSync:
    """`sync.groups` of one flow. Without `include` every group whose positions are in topics that the flow carries."""

    flow: Flow
    mode: SyncMode
    include: tuple[Selector, ...]
    exclude: tuple[Selector, ...]

    @property
    def running(self) -> bool:
        """True if the flow runs and writes positions of groups."""
        return self.mode != "never" and self.flow.plan.state == "running"

    @property
    def span(self) -> FileSpan:
        """Where the mode is said, or the flow."""
        return self.flow.settings.where("sync", "groups", "mode")

    def selects(self, group: str) -> bool:
        """True if the positions of this group are synchronised."""
        chosen = not self.include or any(each.matches(group) for each in self.include)
        return chosen and not any(each.matches(group) for each in self.exclude)

    def share(self, other: DeclaredGroupSync) -> str | None:
        """A group that both select: a name, or `*` for whatever there is; None when there is none."""
        named = [each.text for each in (*self.include, *other.include) if each.kind == "literal"]
        for name in sorted(named):
            if self.selects(name) and other.selects(name):
                return name
        found = find_shortest_overlap(frozenset({("", "", self._names()), ("", "", other._names())}))
        if not found.found:
            return None
        return "*" if not self.include and not other.include else found.name or "*"

    def _names(self) -> TopicSelection:
        return TopicSelection(self.include or (_EVERYTHING,), self.exclude)


def build_declared_group_sync(flow: Flow) -> DeclaredGroupSync:
    """The section as it is said; `never` without one."""
    said = flow.settings.at("sync", "groups")
    if said is None:
        return DeclaredGroupSync(flow, "never", (), ())
    return DeclaredGroupSync(flow, said.get("mode", default="never"), said.texts("include"), said.texts("exclude"))


def list_scanned_groups(context: RuleContext, groups: DeclaredGroupSync) -> list[InventoryGroup]:
    """The source's groups that are synchronised, by id: selected, and with a position in a topic that is carried."""
    inventory = context.inventory
    cluster = inventory.cluster(groups.flow.source) if inventory is not None and groups.mode != "never" else None
    if cluster is None:
        return []
    plan = groups.flow.plan
    return [
        group
        for _, group in sorted(cluster.groups.items())
        if groups.selects(group.id) and any(plan.selects(topic) for topic in group.offsets)
    ]
