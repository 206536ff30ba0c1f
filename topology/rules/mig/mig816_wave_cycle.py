"""MIG816 wave-cycle: `after` names a wave that does not exist, or waves wait for each other.

Why: no wave of such a circle ever starts. Two waves with one name are found, too: commands, journal and `after` could
mean either.

Source: rhysd/actionlint rule_job_needs.go
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.mig.declared_waves import MAX_SHOWN_WAVES, DeclaredWave, list_declared_waves
from watershed.topology.spelling import suggest_word


def check(context: RuleContext) -> Iterator[Problem]:
    waves = list_declared_waves(context.topology)
    by_name: dict[str, DeclaredWave] = {}
    for move in waves:
        first = by_name.setdefault(move.name, move)
        if first.index != move.index:
            yield Problem(
                "MIG816",
                f"two waves are named `{move.name}`",
                build_labels((move.span, "again"), (first.span, "first here")),
                path=f"{move.path}.name",
                ids=(move.name,),
                help="give each wave a name of its own",
            )
    for move in waves:
        for after in move.value.list("after"):
            if after.data not in by_name:
                near = suggest_word(after.data, by_name)
                yield Problem(
                    "MIG816",
                    f"wave `{move.name}` waits for `{after.data}`, which does not exist",
                    (Label(after.span),),
                    path=f"{move.path}.after",
                    ids=(move.name, after.data),
                    help=f"did you mean `{near}`?" if near else f"waves: {render_some_names(tuple(by_name))}",
                )
    for circle in _circles(by_name):
        names = [move.name for move in circle]
        way = " -> ".join((*names[:MAX_SHOWN_WAVES], *(["…"] if len(names) > MAX_SHOWN_WAVES else []), names[0]))
        more = f" ({len(names)} waves)" if len(names) > MAX_SHOWN_WAVES else ""
        yield Problem(
            "MIG816",
            f"waves wait for each other: {way}{more}",
            build_labels(*((move.value.where("after"), f"`{move.name}` waits") for move in circle[:MAX_SHOWN_WAVES])),
            path=f"{circle[0].path}.after",
            ids=tuple(names),
            help="take one of them out of `after`",
        )


def _circles(by_name: dict[str, DeclaredWave]) -> Iterator[list[DeclaredWave]]:
    """One circle after the other, each begun at its smallest name; what only waits for a circle is not part of it."""
    waiting = {name: {each for each in move.wave.after if each in by_name} for name, move in by_name.items()}
    behind: dict[str, list[str]] = defaultdict(list)
    for name, needs in waiting.items():
        for each in needs:
            behind[each].append(name)

    def take(names: list[str]) -> None:
        """Out of `waiting`, and after them whoever waited for nobody else."""
        while names:
            gone = names.pop()
            del waiting[gone]
            for name in behind[gone]:
                if name in waiting:
                    waiting[name].discard(gone)
                    if not waiting[name] and name not in names:
                        names.append(name)

    take([name for name, needs in waiting.items() if not needs])
    while waiting:
        way = [min(waiting)]
        while (following := min(waiting[way[-1]])) not in way:
            way.append(following)
        circle = way[way.index(following) :]
        start = circle.index(min(circle))
        yield [by_name[name] for name in (*circle[start:], *circle[:start])]
        take(circle)


RULE = Rule("MIG816", "wave-cycle", "error", __doc__, check)
