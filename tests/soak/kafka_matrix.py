"""`python -m tests.soak.kafka_matrix` (`make soak-kafka`): what copying comes to between Kafka releases, pair by pair.

Each pair gets two clusters of its own and every case of `kafka_matrix_cases`. What came of a case is kept with its
date, so that a run of a few pairs renews those and leaves the others: docs/releases.json. docs/releases.md is the table
of it. Exit code 0: everything held that was run, 1: something did not.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from clusters.errors import ClusterError
from clusters.kafka_release import parse_release
from lab import clusters
from lab.errors import LabError
from lab.releases import RELEASES
from replicator.errors import ReplicatorError
from tests.replicator.real import settings_of
from tests.soak.kafka_matrix_cases import CASES, MatrixCase, NotPossible, PairUnderTest

SOURCES = ("0.11.0.3", "1.1.1", "2.4.1", "2.8.2", "3.3.2", "3.9.1", "4.3.1")
TARGETS = ("2.8.2", "3.9.1", "4.3.1")
_DOCS = Path(__file__).parents[2] / "docs"
RESULTS, TABLE = _DOCS / "releases.json", _DOCS / "releases.md"
_HEAD = """# Releases

Written by `make soak-kafka` from what it ran, with the date of each run; not edited by hand. Each cell copied from a
real cluster of one Kafka release to one of another. "Held" means: every committed record is at the target once, in
order, with the same key, value, headers and time, and the offset map is right at every offset. What stands
beside the records (groups, rights, limits, inventories) is tried from 0.11.0.3 and 2.4.1 by
`tests/replicator/brokers/test_real_old_sources.py`, a whole migration with proof by `make demo SOURCE=2.4.1`.

"""
_LEGEND = (
    "`yes`: held; `NO`: did not hold, the reason is in `docs/releases.json`; `–`: the release lacks it; empty: not run."
)


def main() -> int:
    """Runs the chosen pairs and cases, and writes the table after each pair. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.kafka_matrix", description=__doc__)
    parser.add_argument("--pairs", default="", help="as 2.4.1/4.3.1,2.8.2/3.9.1; all 21 otherwise")
    parser.add_argument("--cases", default="", help=f"of {', '.join(case.name for case in CASES)}; all otherwise")
    options = parser.parse_args()
    every = [(source, target) for target in reversed(TARGETS) for source in SOURCES]
    known = [case.name for case in CASES]
    names = options.cases.split(",") if options.cases else known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"--cases: there is no case {', '.join(map(repr, unknown))}; say of {', '.join(known)}")
    try:
        pairs = [_parse_pair(each) for each in options.pairs.split(",")] if options.pairs else every
    except ValueError as problem:
        parser.error(f"--pairs: {problem}")
    cases = [case for case in CASES if case.name in names]
    held = True
    for source, target in pairs:
        held = run_pair(source, target, cases) and held
    return 0 if held else 1


def _parse_pair(text: str) -> tuple[str, str]:
    """`2.4.1/4.3.1` → the two releases. Raises ValueError for anything else."""
    parts = text.split("/")
    if len(parts) != 2 or not set(parts) <= RELEASES.keys():
        raise ValueError(f"{text!r} is not SOURCE/TARGET with releases of {', '.join(RELEASES)}")
    return parts[0], parts[1]


def run_pair(source: str, target: str, cases: Iterable[MatrixCase]) -> bool:
    """Whether every case held. What came of each is in the two files afterwards."""
    held = True
    with tempfile.TemporaryDirectory(prefix="watershed-matrix-") as scratch:
        directory = Path(scratch) / "lab"
        try:
            lab = clusters.start_clusters(directory, ["onprem", "cloud"], kafka={"onprem": source, "cloud": target})
            pair = PairUnderTest(source, target, directory, settings_of(lab), Path(scratch))
            for case in cases:
                found = _run_case(pair, case)
                held = held and found["outcome"] != "failed"
                print(f"{source} to {target}, {case.name}: {found['outcome']} {found['told']}", flush=True)
                _keep(source, target, case.name, found)
        except LabError as error:
            print(f"{source} to {target}: {error}", file=sys.stderr)
            return False
        finally:
            clusters.end_clusters(directory)
    TABLE.write_text(render_table(json.loads(RESULTS.read_text())))
    return held


def _run_case(pair: PairUnderTest, case: MatrixCase) -> dict[str, Any]:
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    try:
        return {"outcome": "held", "told": case.run(pair), "day": day}
    except NotPossible as reason:
        return {"outcome": "not there", "told": str(reason), "day": day}
    except (AssertionError, ClusterError, ReplicatorError, KafkaException, LabError) as problem:
        traceback.print_exc()
        return {"outcome": "failed", "told": f"{type(problem).__name__}: {problem}"[:400], "day": day}


def _keep(source: str, target: str, case: str, found: Mapping[str, Any]) -> None:
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known.setdefault(f"{source}/{target}", {})[case] = found
    ordered = dict(sorted(known.items(), key=lambda each: [parse_release(part) for part in each[0].split("/")]))
    RESULTS.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


def render_table(results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The page, from what is known of each pair. Pure."""
    shown = {"held": "yes", "failed": "NO", "not there": "–"}
    lines = [_HEAD.rstrip(), ""]
    lines += [f"- **{case.name}**: {case.text}" for case in CASES]
    lines += ["", _LEGEND, "", f"| source | target | {' | '.join(case.name for case in CASES)} | run |"]
    lines.append(f"|---|---|{'---|' * len(CASES)}---|")
    for pair, found in results.items():
        source, target = pair.split("/")
        cells = [shown[found[case.name]["outcome"]] if case.name in found else "" for case in CASES]
        days = sorted({str(each["day"]) for each in found.values()})
        lines.append(f"| {source} | {target} | {' | '.join(cells)} | {days[-1]} |")
    lines += ["", f"{len(results)} of {len(SOURCES) * len(TARGETS)} pairs were run.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
