"""Collects the problems of one file up to a bound: a hostile file has millions of them."""

from __future__ import annotations

from watershed.topology.finding import FileSpan, Label, Problem
from watershed.topology.yaml_tree import MAX_FILE_PROBLEMS


class ProblemCollector:
    """Keeps MAX_FILE_PROBLEMS problems and one more that says so. `found` counts all, also those that are not kept."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.found = 0

    def is_full(self) -> bool:
        """True if another problem would not be kept: its message is not worth the work."""
        return self.found > MAX_FILE_PROBLEMS

    def count_dropped(self) -> None:
        """Counts a problem that is not kept."""
        self.found += 1

    def add_problem(
        self, code: str, message: str, span: FileSpan, path: str, *, help_: str = "", more: tuple[Label, ...] = ()
    ) -> None:
        """Keeps a problem, or counts it if there is no room. more: further places that the message speaks about."""
        if self.is_full():
            self.count_dropped()
            return
        if self.found == MAX_FILE_PROBLEMS:
            code, message, more = "SYN001", f"more than {MAX_FILE_PROBLEMS} problems up to here", ()
            help_ = "mend those above first; what follows is not listed"
        self.found += 1
        self.problems.append(Problem(code, message, (Label(span), *more), path=path, help=help_))
