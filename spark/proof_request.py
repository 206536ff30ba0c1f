"""What a proof is asked for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PROOF_LEVELS = ("L0", "L1", "L2", "L3")


@dataclass(frozen=True, slots=True)
class ProofRequest:
    """What to prove. `wait` in seconds, `chunk` in source offsets (None: as many as make some 64 MiB). `recheck`: the
    share of what earlier proofs have proven that is read again, None for what the flow says.

    Empty `flows` means all that the plan does not declare paused, empty `topics` means all of theirs. level: L0 to L3,
    None for L3 where groups are carried or named, else L2. groups: only these, in place of those that flows carry.
    allow_quarantined: what is kept in quarantine does not forbid the word proven.
    max_diffs: so many differences are named one by one. foreign: another tool made the copy, so there is no ledger
    of it (`spark.foreign.inferred_alignment`); from_start: it is said to begin where the source does.
    max_rate: bytes a second that are read of each cluster, None for what the flows say.
    """

    flows: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    level: str | None = None
    final: bool = False
    since: Path | None = None
    wait: float = 30.0
    chunk: int | None = None
    recheck: float | None = None
    groups: tuple[str, ...] = ()
    max_diffs: int = 10_000
    foreign: bool = False
    from_start: bool = False
    allow_quarantined: bool = False
    max_rate: int | None = None

    @property
    def mode(self) -> str:
        return "final" if self.final else "rolling"

    def to_json(self) -> dict[str, Any]:
        since = None if self.since is None else str(self.since)
        lists = {"flows": list(self.flows), "topics": list(self.topics), "groups": list(self.groups)}
        return asdict(self) | lists | {"since": since}
