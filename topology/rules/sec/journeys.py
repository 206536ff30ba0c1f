"""Where labelled topics get to, over as many flows as carry them on, also for topics that do not exist yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from topology.finding import Span
from topology.model import Flow
from topology.rule import Context
from topology.selectors import Selector, TopicSelection
from topology.symbols import Symbol, carried, carried_through

SHOWN = 8  # clusters of a route


@dataclass(frozen=True, slots=True)
class Journey:
    """A declared label (`clusters.<alias>.topics[].residency`, say) with the flows that carry its topics to the last
    one's target. span is where the label is declared."""

    label: str
    birth: str
    symbol: Symbol
    flows: tuple[Flow, ...]
    span: Span

    @property
    def target(self) -> str:
        return self.flows[-1].target

    @property
    def route(self) -> str:
        names = [self.birth, *(flow.target for flow in self.flows)]
        return " -> ".join(names if len(names) <= SHOWN else (*names[: SHOWN - 1], "…", names[-1]))


def journeys(context: Context, label: str, ends: Callable[[Journey], bool]) -> Iterator[Journey]:
    """Every cluster that a labelled topic reaches, by the shortest way, each once; behind a journey that `ends` nothing
    is followed."""
    topology = context.topology
    if topology is None:
        return
    leaving: dict[str, list[Flow]] = {}
    for flow in topology.flows:
        leaving.setdefault(flow.source, []).append(flow)
    for alias in sorted(topology.clusters):
        earlier: list[Selector] = []
        for match, facts in context.facts.declared(alias):
            said = getattr(facts, label)
            if said is not None and facts.span is not None:
                topics = TopicSelection((match,), tuple(earlier), allow_internal=True)
                for symbol in carried_through(topics):
                    yield from _followed(leaving, Journey(said, alias, symbol, (), facts.span), ends)
            earlier.append(match)


def _followed(leaving: dict[str, list[Flow]], birth: Journey, ends: Callable[[Journey], bool]) -> Iterator[Journey]:
    todo, seen = deque([birth]), {(birth.birth, birth.symbol)}
    while todo:
        here = todo.popleft()
        for flow in leaving.get(here.target if here.flows else here.birth, ()):
            if here.flows and flow.plan.forward == "local":
                continue
            for symbol in carried(flow.plan, here.symbol):
                if (flow.target, symbol) in seen or flow.target == birth.birth:
                    continue
                seen.add((flow.target, symbol))
                there = Journey(birth.label, birth.birth, symbol, (*here.flows, flow), birth.span)
                yield there
                if not ends(there):
                    todo.append(there)
