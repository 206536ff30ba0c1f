"""What a person is asked to want: what would be done and to what, and the function that does it.

The command line shows the lines and asks; Airflow shows them in one task, asks in the next, and does it in a third. So
what was shown may be old when it is done: `basis` says what it rests on, and `carry_out_approved` refuses another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from watershed.cutover.errors import CutoverError

CarryOut = Callable[[str], Iterable[str]]  # the actor's name -> a line for each thing that was done


class OperationRefused(CutoverError):
    """What was asked for is not possible now, or is not there. The message says what to do. Nothing was changed."""


class WorkersRefused(CutoverError):
    """The decision is written, and a worker refused to obey it."""

    exit_code = 1


class NoAnswerYet(CutoverError):
    """The decision is written, and no worker has answered in time; it stands."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class Proposal:
    """question: for the person who decides. lines: what would be done, with numbers. basis: what these rest on; equal
    texts mean the same decision. notes: what a person should know beside. is_needed: False where nothing is to be done.
    """

    question: str
    lines: tuple[str, ...]
    basis: str
    carry_out: CarryOut
    notes: tuple[str, ...] = ()
    is_needed: bool = True


def carry_out_approved(proposal: Proposal, approved_basis: str, actor: str) -> Iterable[str]:
    """Does it, as `actor`. Raises OperationRefused when it is not what was approved."""
    if proposal.basis != approved_basis:
        raise OperationRefused(
            "what is there now is not what was shown and approved, so nothing was changed. Shown: "
            f"{approved_basis}. Now: {proposal.basis}. Look again and decide again"
        )
    return proposal.carry_out(actor)
