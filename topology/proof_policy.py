"""How a flow is proven, as the file says it (`verify:`): how often, how deep, and what a proof may take meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from watershed.topology.migration_waves import ProofLevel

DEFAULT_RECHECK_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class ProofPolicy:
    """every_ms: how often Airflow proves the flow, None when only asked. level: how deep it looks then.

    rate: bytes a second that a proof reads of one cluster, None without a bound. fetches: how many of its tasks read
    from one broker at a time, None for as many as Spark runs. pause_at_lag_ms: reading stands still while the flow is
    further behind than this; None never. recheck: the share (0 to 1) of what earlier proofs have shown that is read
    again.
    """

    every_ms: int | None = None
    level: ProofLevel = "L1"
    rate: int | None = None
    fetches: int | None = None
    pause_at_lag_ms: int | None = None
    recheck: float = DEFAULT_RECHECK_SHARE

    def to_json(self) -> dict[str, Any]:
        """Without `every_ms`, which older plans hold in the flow itself."""
        value = asdict(self)
        del value["every_ms"]
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any], every_ms: int | None) -> ProofPolicy:
        """Raises TypeError for anything else than what `to_json` gave."""
        return cls(every_ms=every_ms, **value)


PROVEN_ON_DEMAND: Final = ProofPolicy()
