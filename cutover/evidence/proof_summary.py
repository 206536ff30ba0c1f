"""A proof's `summary.json` as an observation.

DAG files read the constants at every parse, so that nothing more is imported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from watershed.clusters.private_files import read_private_file

if TYPE_CHECKING:
    from watershed.cutover.observations import ProofOutcome

PROOF_COUNTS = (
    "proven",
    "missing",
    "altered",
    "reordered",
    "duplicates",
    "foreign",
    "quarantined",
    "unverifiable",
    "pending",
    "repeated",
)
# Every record is there, in order; `repeated`: some once more, which the file allows (`delivery.semantics`).
PROVEN_VERDICTS: Final = ("proven", "repeated")


def read_proof_summary(path: Path, plan_hash: str | None = None) -> ProofOutcome:
    """A summary that is missing, unreadable or of another plan: verdict `error`, never `proven`."""
    from watershed.cutover.observations import ProofOutcome

    try:
        value = json.loads(read_private_file(path))
        if plan_hash is not None and value.get("plan_hash", plan_hash) != plan_hash:
            return build_failed_proof(
                f"the proof {path} is about plan {value['plan_hash']}, this run about {plan_hash}"
            )
        return ProofOutcome(
            at_ms=0,
            verdict=str(value["verdict"]),
            unproven=_count(value["unproven"]),
            counts={name: _count(value[name]) for name in PROOF_COUNTS if value.get(name) is not None},
            summary=str(path),
            proof_root=value.get("proof_root"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return build_failed_proof(f"the proof left no readable summary at {path} ({error.__class__.__name__})")


def _count(value: object) -> int:
    """Raises TypeError for what a proof does not write."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError("no count")
    return value


def build_failed_proof(message: str) -> ProofOutcome:
    """A proof that came to no verdict."""
    from watershed.cutover.observations import ProofOutcome

    return ProofOutcome(at_ms=0, verdict="error", unproven=-1, message=message)
