"""Random topologies by the ten thousand: whatever the linter proves, the oracle sees the same.

The seed is printed; the same seed tries the same files in the same order. About every hundredth file is pumped with
real batches, too, which has to come to what the fast oracle computed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from random import Random, SystemRandom
from zlib import crc32

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.topology.pump.files import Document, documents, shuffled, text_of
from tests.topology.pump.judge import case_of, check_all, kinds, told
from tests.topology.pump.pump import pump
from watershed.topology.lint import lint_topology
from watershed.topology.loader import parse_topology

LEAST = 10_000
USUAL_MINUTES = 30


def test_random_topologies(minutes: float) -> None:
    """10,000 files, more in a longer soak."""
    chosen = int(os.environ.get("SOAK_SEED", SystemRandom().randrange(2**32)))
    files = round(LEAST * max(1.0, minutes / USUAL_MINUTES))
    print(f"\nSOAK_SEED={chosen}, {files:,} topologies")
    seen: Counter[str] = Counter()
    different: set[int] = set()
    began = time.monotonic()

    @seed(chosen)
    @settings(max_examples=files, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(documents(), st.integers(0, 2**32))
    def tried(document: Document, order: int) -> None:
        case = case_of(document)
        check_all(case)
        mixed = parse_topology(text_of(shuffled(document, Random(order))))
        assert told(lint_topology(case.loaded)) == told(lint_topology(mixed)), case
        if crc32(text_of(document).encode()) % 100 == 0:
            pumped = pump([flow.plan for flow in case.flows], case.begun)
            assert pumped.settled == case.walked.settled, case
            assert not pumped.settled or pumped.arrivals == case.walked.arrivals, case
            seen["pumped"] += 1
        different.add(hash(text_of(document)))
        seen["all"] += 1
        seen["said to be clean"] += case.clean
        seen.update(kinds(case))

    tried()
    seen["different"] = len(different)
    print(f"{time.monotonic() - began:.0f} s; " + ", ".join(f"{kind} {count:,}" for kind, count in seen.most_common()))
    assert seen["all"] >= LEAST
    assert seen["different"] >= 0.6 * LEAST  # small files come again: 68 and 70 % of two seeds were different
    for kind, share in (("clean", 0.3), ("duplicates", 0.06), ("collisions", 0.1), ("cycle", 0.015), ("growth", 0.01)):
        assert seen[kind] >= share * seen["all"], seen
    assert seen["starvation"] >= 0.004 * seen["all"], seen
