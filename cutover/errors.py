"""What can stop a migration before or beside its steps.

CutoverError
├── Refused            a gate said no; `seen` holds what it saw (a result, exit 1; inside the generator)
├── Locked             another run of this topology is unfinished; names its holder
├── PlanChanged        the unfinished run was started with another plan
├── WaveBlocked        the waves that this one comes after are not done; names them
├── WaveDone           the wave is done already (exit 0: what was asked for is true)
├── NothingToResume    --resume or --step without a run that it could belong to
├── NothingToRollBack  no migration of the wave has passed its point of no return
├── Superseded         another process took this run over; this one must not act any more
├── BrokenChain        the journal does not hash to itself: somebody changed or removed an entry
├── UnsignedHistory    the topology has a key now, and nobody has vouched for what was written before
├── NothingToSign      `topology journal --sign` without entries that it could be about
└── NotSupported       a migration that this version cannot run yet, by name
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class CutoverError(Exception):
    """Root of all errors of this package; `exit_code` is what the command line ends with."""

    exit_code = 2


class Refused(CutoverError):
    """A gate or an action said no. `seen` is JSON: the numbers behind the message."""

    exit_code = 1

    def __init__(self, message: str, seen: Mapping[str, Any] | None = None) -> None:
        self.seen = dict(seen or {})
        super().__init__(message)


class Locked(CutoverError):
    """Another run of the same topology is unfinished."""

    exit_code = 1


class PlanChanged(CutoverError):
    """The unfinished run belongs to another plan (or wave)."""

    exit_code = 1


class NothingToResume(CutoverError):
    """There is no unfinished run, or the step asked for is not the next one."""

    exit_code = 1


class NothingToRollBack(CutoverError):
    """No migration of the wave has passed its point of no return."""

    exit_code = 1


class WaveBlocked(CutoverError):
    """Waves that come before are not done."""

    exit_code = 1


class WaveDone(CutoverError):
    """There is nothing to do: the wave was migrated before, and was not taken back since."""

    exit_code = 0


class Superseded(CutoverError):
    """Another process resumed this run."""

    exit_code = 1


class BrokenChain(CutoverError):
    """The journal was tampered with, or is incomplete; `offset` is the first entry that does not fit."""

    exit_code = 1

    def __init__(self, message: str, offset: int) -> None:
        self.offset = offset
        super().__init__(message)


class NewerEntry(BrokenChain):
    """An entry of a newer version, which this one cannot follow."""


class UnsignedHistory(CutoverError):
    """Unsigned entries wait for a person's word."""

    exit_code = 1


class NothingToSign(CutoverError):
    """No unsigned entry fits."""

    exit_code = 1


class NotSupported(CutoverError):
    """Not built yet; the message says what is."""
