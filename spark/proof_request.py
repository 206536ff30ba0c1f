"""What a proof is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from watershed.spark.judging.group_position_reading import has_group_sync
from watershed.topology.plan import Plan, PlanFlow

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
        """`final` for a fenced source, else `rolling`."""
        return "final" if self.final else "rolling"

    def list_flows(self, plan: Plan) -> list[PlanFlow]:
        """Flows to prove, of those that the plan has; without names all that run, and for a foreign copy all."""
        if self.flows:
            by_id = {flow.id: flow for flow in plan.flows}
            return [by_id[id_] for id_ in self.flows if id_ in by_id]
        return [flow for flow in plan.flows if self.foreign or flow.state == "running"]

    def choose_level(self, flows: Iterable[PlanFlow]) -> str:
        """The level to prove these flows at: the one asked for, else L3 where groups are named or carried."""
        if self.level is not None:
            return self.level
        if self.foreign:
            return "L2"
        return "L3" if self.groups or any(has_group_sync(flow) for flow in flows) else "L2"

    def to_json(self) -> dict[str, Any]:
        """The policy in `summary.json`."""
        since = None if self.since is None else str(self.since)
        lists = {"flows": list(self.flows), "topics": list(self.topics), "groups": list(self.groups)}
        return asdict(self) | lists | {"since": since}
