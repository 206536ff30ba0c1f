"""`python -m watershed.lab.attack [--attacks 2,7]`: run attacks, say of each whether the product holds.

Exit codes: 0 all held, 1 at least one did not, 2 at least one could not be carried out (or wrong use).
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from watershed.lab.attack import (
    aborting_answer,
    control_records,
    control_targets,
    decompression_bombs,
    forged_batch,
    pasted_commands,
    secret_references,
)
from watershed.lab.attack.attack_setup import AttackSetup, run_attack_clusters
from watershed.lab.attack.control_checks import AttackNotCarriedOut
from watershed.lab.attack.outcome import Attack, AttackVerdict, compute_exit_code, render_attack_summary
from watershed.lab.errors import LabError

ATTACKS: tuple[Attack, ...] = (
    forged_batch.FORGED_BATCH_ATTACK,
    pasted_commands.PASTED_COMMANDS_ATTACK,
    secret_references.SECRET_REFERENCES_ATTACK,
    aborting_answer.ABORTING_ANSWER_ATTACK,
    control_records.CONTROL_RECORDS_ATTACK,
    decompression_bombs.BOMBS_ATTACK,
    control_targets.CONTROL_TARGETS_ATTACK,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the chosen attacks. Returns 0 when all are held, 1 when one is not, 2 when one could not be carried out."""
    parser = argparse.ArgumentParser(prog="python -m watershed.lab.attack", description=__doc__)
    parser.add_argument("--attacks", default="", help="numbers with commas; default: all")
    parser.add_argument("--dir", type=Path, help="where the evidence goes; default: .watershed/attack/TIME")
    options = parser.parse_args(argv)
    try:
        chosen = choose_attacks(options.attacks, ATTACKS)
    except ValueError as error:
        click.echo(f"error: {error}", err=True)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with it ignored
    folder = options.dir or Path(".watershed/attack") / time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
    try:
        verdicts = run_attacks(chosen, folder.resolve())
    except KeyboardInterrupt:
        click.echo("interrupted: everything that was started has ended", err=True)
        return 130
    click.echo(f"{render_attack_summary(verdicts)}; evidence: {folder}")
    return compute_exit_code(verdicts)


def choose_attacks(numbers: str, attacks: Sequence[Attack]) -> tuple[Attack, ...]:
    """The attacks of these numbers, in their own order; all when none is named. Raises ValueError."""
    known = {str(each.number): each for each in attacks}
    wanted = [each.strip() for each in numbers.split(",") if each.strip()]
    if strange := [each for each in wanted if each not in known]:
        raise ValueError(f"ATTACKS={numbers}: there is no attack {', '.join(strange)}; there are {', '.join(known)}")
    return tuple(attack for number, attack in known.items() if not wanted or number in wanted)


def run_attacks(attacks: Iterable[Attack], folder: Path) -> list[AttackVerdict]:
    """One attack after the other; a line is printed as each ends. Clusters are started before the first that needs
    them, and ended with the last."""
    verdicts: list[AttackVerdict] = []
    with ExitStack() as stack:
        bootstrap: dict[str, str] = {}
        for attack in attacks:
            try:
                if attack.needs_clusters and not bootstrap:
                    bootstrap |= stack.enter_context(run_attack_clusters(folder / "clusters"))
            except (AttackNotCarriedOut, LabError) as error:
                verdict = AttackVerdict(attack, 0.0, problem=f"the clusters did not start: {error}")
            else:
                verdict = try_attack(attack, AttackSetup(folder / str(attack.number), bootstrap))
            verdicts.append(verdict)
            click.echo(verdict.line)
    return verdicts


def try_attack(attack: Attack, scene: AttackSetup) -> AttackVerdict:
    """Try one attack; whatever goes wrong on the way is a verdict, too."""
    scene.folder.mkdir(parents=True)
    began = time.monotonic()
    try:
        findings = attack.run(scene)
    except AttackNotCarriedOut as error:
        return AttackVerdict(attack, time.monotonic() - began, problem=str(error))
    except Exception as error:  # noqa: BLE001  whatever it is, the attack was not carried out to its end
        return AttackVerdict(attack, time.monotonic() - began, problem=f"{type(error).__name__}: {error}")
    return AttackVerdict(attack, time.monotonic() - began, findings)


if __name__ == "__main__":
    raise SystemExit(main())
