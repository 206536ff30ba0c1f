"""What an attack is, and what came of it.

An attack is held only when it was carried out. So each has controls: a harmless twin that has to pass, or the
attacker's tool at work where nothing holds. A control that fails is `AttackNotCarriedOut`, never `held`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watershed.lab.attack.attack_setup import AttackSetup


@dataclass(frozen=True, slots=True)
class Attack:
    """number: as `make attack ATTACKS=` takes it. threat: in one sentence. needs_clusters: two real ones."""

    number: int
    threat: str
    run: Callable[[AttackSetup], AttackFindings]
    needs_clusters: bool


@dataclass(slots=True)
class AttackFindings:
    """What was done and seen, in a few words each, and what should have held and did not."""

    done: str
    seen: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def expect(self, holds: bool, seen: str, broken: str) -> None:
        """Note what was seen where the product holds, or how it does not."""
        (self.seen if holds else self.broken).append(seen if holds else broken)


@dataclass(frozen=True, slots=True)
class AttackVerdict:
    """How one attack ended. findings None: it could not be carried out, and `problem` says why."""

    attack: Attack
    seconds: float
    findings: AttackFindings | None = None
    problem: str = ""

    @property
    def word(self) -> str:
        """`held`, `NOT HELD`, or `NOT RUN` when the attack could not be carried out."""
        if self.findings is None:
            return "NOT RUN"
        return "NOT HELD" if self.findings.broken else "held"

    @property
    def line(self) -> str:
        """One line: number, verdict, seconds, threat, what was done and what was seen."""
        head = f"{self.attack.number}  {self.word:8}  {self.seconds:5.1f} s  {self.attack.threat}."
        if self.findings is None:
            return f"{head} Could not be carried out: {self.problem}"
        told = self.findings.broken or self.findings.seen
        return f"{head} Done: {self.findings.done}. Seen: {'; '.join(told)}."


def render_attack_summary(verdicts: Iterable[AttackVerdict]) -> str:
    """How many attacks are held, are not held and did not run, on one line."""
    words = [each.word for each in verdicts]
    told = [f"{words.count('held')} held", f"{words.count('NOT HELD')} not held"]
    if not_run := words.count("NOT RUN"):
        told.append(f"{not_run} could not be carried out")
    return ", ".join(told)


def compute_exit_code(verdicts: Iterable[AttackVerdict]) -> int:
    """1: at least one is not held; 2: none of these, and at least one could not be carried out; else 0."""
    words = {each.word for each in verdicts}
    return 1 if "NOT HELD" in words else 2 if "NOT RUN" in words else 0
