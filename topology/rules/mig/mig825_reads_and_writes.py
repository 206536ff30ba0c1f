"""MIG825 reads-and-writes: an application that reads and writes is moved by a strategy that splits the two.

Why: a wave lists it among its consumers and among its producers. `consumers_first` would let it write at the target
while the flow still copies there, and `producers_first` stops it before it has read the source to its end. A Streams
application whose own topics move with it is always of this kind. `fenced` stops everything, and starts such
applications behind the proof.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.mig.declared_waves import list_declared_waves
from watershed.topology.text_escaping import shorten_and_escape


def check(context: RuleContext) -> Iterator[Problem]:
    for move in list_declared_waves(context.topology):
        both = [each for each in move.value.list("producers") if str(each.data) in move.wave.consumers]
        if not both or move.wave.strategy in ("fenced", "consumers_last"):  # of the latter says MIG834
            continue
        name = str(both[0].data)
        yield Problem(
            "MIG825",
            f"`{shorten_and_escape(name)}` reads and writes in wave `{move.name}`, which moves {move.wave.strategy}",
            build_labels(*((each.span, "also a consumer of this wave") for each in both)),
            path=f"{move.path}.producers",
            ids=(move.name, *(str(each.data) for each in both)),
            help="move the wave with `strategy: fenced`",
        )


RULE = Rule("MIG825", "reads-and-writes", "error", __doc__, check)
