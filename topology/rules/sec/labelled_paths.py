"""Where labelled topics get to, over as many flows as carry them on, also for topics that do not exist yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from watershed.topology.finding import FileSpan
from watershed.topology.model import Flow
from watershed.topology.rule import RuleContext
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.topic_graph import MAX_PATH_HOPS, OutgoingFlows
from watershed.topology.topic_symbols import TopicSymbol, list_selected_symbols

_SHOWN = 8  # clusters of a route
_NOWHERE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LabelledPath:
    """A declared label (`clusters.<alias>.topics[].residency`, say) with the flows that carry its topics to the last
    one's target. span is where the label is declared."""

    label: str
    birth: str
    symbol: TopicSymbol
    flows: tuple[Flow, ...]
    span: FileSpan

    @property
    def target(self) -> str:
        """The cluster where the path ends."""
        return self.flows[-1].target if self.flows else self.birth

    @property
    def route(self) -> str:
        """The clusters as text, `a -> b -> c`; long paths are shortened."""
        names = [self.birth, *(flow.target for flow in self.flows)]
        return " -> ".join(names if len(names) <= _SHOWN else (*names[: _SHOWN - 1], "…", names[-1]))


def find_labelled_paths(
    context: RuleContext, label: str, matters: Callable[[str], bool], ends: Callable[[LabelledPath], bool]
) -> dict[str, list[LabelledPath]]:
    """Follows the topics of every declared label for which `matters` is true, on the shortest path to each cluster.

    Returns the paths for which `ends` is true, by the id of the last flow. A returned path is not followed further, and
    no path is longer than MAX_PATH_HOPS flows.
    """
    topology = context.topology
    found: dict[str, list[LabelledPath]] = {}
    if topology is None:
        return found
    lanes = OutgoingFlows(topology)
    reach: dict[str, set[str]] = {}
    for flow in topology.flows:
        reach.setdefault(flow.source, set()).add(flow.target)
    for alias in sorted(topology.clusters):
        earlier: list[Selector] = []
        for match, facts in context.facts.declared(alias):
            said = getattr(facts, label)
            if said is not None and facts.span is not None and matters(said):
                topics = TopicSelection((match,), tuple(earlier), allow_internal=True)
                for symbol in list_selected_symbols(topics):
                    for journey in _followed(lanes, reach, LabelledPath(said, alias, symbol, (), facts.span), ends):
                        found.setdefault(journey.flows[-1].id, []).append(journey)
            earlier.append(match)
    return dict(sorted(found.items()))


def _followed(
    lanes: OutgoingFlows, reach: Mapping[str, set[str]], birth: LabelledPath, ends: Callable[[LabelledPath], bool]
) -> Iterator[LabelledPath]:
    todo, seen = deque([birth]), {(birth.birth, birth.symbol)}
    while todo:
        here = todo.popleft()
        if reach.get(here.target, _NOWHERE) <= {birth.birth, *(flow.target for flow in here.flows)}:
            continue  # only back to where it came by, which most spokes of a hub are
        for symbol, flows in lanes.out_of((here.target, here.symbol)):
            for flow in flows:
                stays = bool(here.flows) and flow.plan.forward == "local"
                if stays or flow.target == birth.birth or (flow.target, symbol) in seen:
                    continue
                seen.add((flow.target, symbol))
                there = LabelledPath(birth.label, birth.birth, symbol, (*here.flows, flow), birth.span)
                if ends(there):
                    yield there
                elif len(there.flows) < MAX_PATH_HOPS:
                    todo.append(there)
