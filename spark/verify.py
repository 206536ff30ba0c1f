"""The proof as an application: `python -m watershed.spark.verify --topology PATH --out DIR [...]`.

Exit codes: 0 proven, 1 different, 2 error (wrong use, unreachable, no ledger), 3 incomplete. `DIR/summary.json` says
the same and more, also for 2. Diagnostics go to stderr, the verdict to stdout.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from watershed.clusters.errors import ClusterError
from watershed.clusters.private_files import make_folder, open_for_append
from watershed.product_version import describe_product_version
from watershed.replicator.errors import ReplicatorError
from watershed.spark.console import write_error_line, write_result_line
from watershed.spark.errors import SparkError, Unwritable, WrongUse
from watershed.spark.evidence.evidence_folder import SUMMARY_FILE, clear_evidence, write_evidence_folder
from watershed.spark.evidence.proof_results import build_error_results, build_run_id
from watershed.spark.judging.verdict import EXIT_CODES
from watershed.spark.proof_request import PROOF_LEVELS, ProofRequest
from watershed.spark.proof_run import prove_flows, render_iso_timestamp
from watershed.spark.session import require_java
from watershed.topology.errors import TopologyError
from watershed.topology.plan import Plan
from watershed.topology.quantities import parse_nonzero_rate

if TYPE_CHECKING:
    from watershed.spark.standby import WarmSession

LOG_FILE = "verify.log"
COMPILED_PLAN_SUFFIX = ".plan.json"  # what a rehearsal orders: its plan stands in no file of anybody's


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes one proof, with `--stay` those that are requested after it, and returns the exit code of the first."""
    options = _parser().parse_args(arguments)
    if options.stay is None:
        return _prove(options, None)
    from watershed.spark.standby import WarmSession, serve_proof_requests

    with WarmSession(write_error_line) as warm:
        code = _prove(options, warm)
        if code == EXIT_CODES["proven"]:
            orders = FileIO(sys.stdin.fileno(), closefd=False)
            try:
                serve_proof_requests(orders, partial(_ordered, warm), warm.pulse, options.stay)
            except SparkError as error:  # whoever orders sees that this process has ended
                write_error_line(f"error: {error}")
    return code


def _ordered(warm: WarmSession, arguments: Sequence[str]) -> float | None:
    """One proof more; its log, in its own folder, says that the order has come. Returns its `--stay`."""
    options = _parser().parse_args(arguments)
    make_folder(options.out)
    opened = open_for_append(options.out / LOG_FILE)  # not through a link, and not for everybody
    os.ftruncate(opened, 0)
    with os.fdopen(opened, "a", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        write_result_line(f"ordered of the application that has proven before (pid {os.getpid()})")
        _prove(options, warm)
    return None if options.stay is None else float(options.stay)


def _prove(options: argparse.Namespace, warm: WarmSession | None) -> int:
    """One proof; warm: what it shares with others, else it has its own and ends that."""
    out: Path = options.out
    began = time.time()
    request = ProofRequest(
        tuple(options.flow),
        _names(options.topics),
        options.level,
        options.final,
        options.since,
        options.wait,
        options.chunk,
        groups=tuple(options.group),
        max_diffs=options.max_diffs,
        foreign=options.foreign,
        from_start=options.from_start,
        allow_quarantined=options.allow_quarantined,
        max_rate=options.max_rate,
    )
    try:
        _make_room(out, options.since)
    except SparkError as error:
        write_error_line(f"error: {error}")
        return EXIT_CODES["error"]
    plan: Plan | None = None
    try:
        if options.level != "L0":
            require_java()
        plan = read_plan_or_topology(options.topology)
        if warm is None:
            document = prove_flows(plan, request, out, say=write_error_line)
        else:
            warm.topology = plan.topology
            document = prove_flows(
                plan, request, out, alignment=warm.alignment, session=warm.session, say=write_error_line
            )
    except (SparkError, ClusterError, ReplicatorError, TopologyError) as error:
        return _failed(out, str(error), request, began, plan)
    except Exception as error:  # noqa: BLE001  Python would end with 1, which means "different"
        traceback.print_exc()
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        message = f"the proof ended on a mistake of its own ({what}); its log has the whole"
        return _failed(out, message, request, began, plan)
    if "error" in document:
        write_error_line(f"error: {document['error']}")
    write_result_line(
        f"{document['verdict']}: {document['unproven']} unproven, {document['proven']} proven, "
        f"{document['pending']} pending" + (f", {document['repeated']} repeated" if document.get("repeated") else "")
    )
    return int(document["exit_code"])


def read_plan_or_topology(path: Path) -> Plan:
    """The plan of a topology file, or of what was compiled already (`*.plan.json`). Raises TopologyError."""
    from watershed.topology import compile_path
    from watershed.topology.plan import decode_plan

    return (
        decode_plan(path.read_text(encoding="utf-8"))
        if path.name.endswith(COMPILED_PLAN_SUFFIX)
        else compile_path(path)
    )


def _names(lists: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for names in lists for name in names.split(",") if name)


def _make_room(out: Path, since: Path | None) -> None:
    old = out / SUMMARY_FILE
    if since is not None and old.exists() and since.exists() and old.samefile(since):
        raise WrongUse(f"--since {since} would be overwritten by this proof; choose another --out")
    clear_evidence(out)


def _failed(out: Path, message: str, request: ProofRequest, began: float, plan: Plan | None) -> int:
    write_error_line(f"error: {message}")
    facts = {
        "run_id": build_run_id(began),
        "level": request.choose_level(request.list_flows(plan) if plan is not None else ()),
        "mode": request.mode,
        "started_at": render_iso_timestamp(began),
        "ended_at": render_iso_timestamp(time.time()),
        "seconds": round(time.time() - began, 1),
        "policy": request.to_json(),
        "watershed_version": describe_product_version(),
    }
    if plan is not None:
        facts |= {"topology": plan.topology, "plan_hash": plan.hash}
    document, tables = build_error_results(message, facts)
    try:
        write_evidence_folder(out, document, tables)
    except Unwritable as error:
        write_error_line(f"error: {error}")
    return EXIT_CODES["error"]


def _rate(text: str) -> int:
    try:
        return parse_nonzero_rate(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m watershed.spark.verify", description=__doc__.split("\n")[0])
    parser.add_argument("--topology", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--flow", action="append", default=[], metavar="ID")
    parser.add_argument("--topics", action="append", default=[], metavar="A,B", help="source names")
    parser.add_argument(
        "--level",
        choices=PROOF_LEVELS,
        help="L0 the topics only, L1 chunks, L2 every difference by its offsets, L3 consumer groups, too; "
        "else L3 where groups are carried or named, L2 where not",
    )
    parser.add_argument("--group", action="append", default=[], metavar="NAME", help="only this consumer group (L3)")
    parser.add_argument("--max-diffs", type=int, default=10_000, metavar="N", help="differences named one by one")
    parser.add_argument(
        "--allow-quarantined", action="store_true", help="records that are kept in quarantine do not make it incomplete"
    )
    parser.add_argument("--final", action="store_true", help="the source is fenced: nothing may be pending")
    parser.add_argument("--since", type=Path, metavar="SUMMARY", help="only what lies above an earlier proof")
    parser.add_argument("--wait", type=float, default=30.0, metavar="SECONDS", help="for the flow to catch up")
    parser.add_argument(
        "--chunk", type=int, metavar="OFFSETS", help="source offsets compared at once; else some 64 MiB"
    )
    parser.add_argument("--max-rate", type=_rate, metavar="RATE", help="read of each cluster, such as 20MiB/s")
    parser.add_argument("--foreign", action="store_true", help="another tool made the copy: no ledger, only content")
    parser.add_argument(
        "--stay",
        type=float,
        metavar="SECONDS",
        help="when proven, wait so long for orders on stdin: watershed.spark.standby",
    )
    parser.add_argument("--from-start", action="store_true", help="with --foreign: it should hold all of the source")
    return parser


if __name__ == "__main__":
    sys.exit(main())
