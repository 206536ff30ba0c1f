"""The controls of an attack: what has to work before its outcome says anything about the product."""

from __future__ import annotations


class AttackNotCarriedOut(Exception):
    """The attack could not be tried: its set-up or one of its controls failed. Says nothing about the product."""


def require_carried_out(holds: object, problem: str) -> None:
    """For set-up and controls. Raises AttackNotCarriedOut."""
    if not holds:
        raise AttackNotCarriedOut(problem)
