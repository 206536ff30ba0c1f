"""A proof's `summary.json` (design 08) as an observation."""

from __future__ import annotations

import json
from pathlib import Path

from cutover.observations import ProofSeen

COUNTS = (
    "proven",
    "missing",
    "altered",
    "reordered",
    "duplicates",
    "foreign",
    "unverifiable",
    "pending",
)


def read_summary(path: Path) -> ProofSeen:
    """A summary that is missing or unreadable is a proof that failed: verdict `error`, never `proven`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return ProofSeen(
            at_ms=0,
            verdict=str(value["verdict"]),
            unproven=int(value["unproven"]),
            counts={name: int(value[name]) for name in COUNTS if value.get(name) is not None},
            summary=str(path),
            proof_root=value.get("proof_root"),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        return ProofSeen(
            at_ms=0,
            verdict="error",
            unproven=-1,
            summary=None,
            message=f"the proof left no readable summary at {path} ({error.__class__.__name__})",
        )
