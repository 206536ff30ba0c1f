"""`topology verify`: the Spark proof, run as a program of its own so that this command stays light."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from watershed.cli.spark_waits import SparkWaitReader
from watershed.cli.verdict_text import render_verdict

_PROOFS = Path(".watershed") / "proofs"
_LOOK_S = 0.5  # between two looks at the application's log


@click.command(epilog="Example: topology verify orders.yaml --flow onprem-to-cloud --final -o proof/")
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--flow", "flows", multiple=True, metavar="ID", help="Only this flow (may be repeated).")
@click.option("--topics", multiple=True, metavar="A,B", help="Only these topics, by their names at the source.")
@click.option("--level", type=click.Choice(["L0", "L1", "L2", "L3"]),
              help="L0 topics only, L1 chunks, L2 every difference by its offsets, L3 groups, too. Without: L3 "
              "where the flow carries groups or --group names one, else L2.")  # fmt: skip
@click.option("--group", "groups", multiple=True, metavar="NAME", help="Only this consumer group (may be repeated).")
@click.option("--max-diffs", type=click.IntRange(0), default=10_000, show_default=True, metavar="N",
              help="So many differences are named one by one; counts stay exact.")  # fmt: skip
@click.option("--final", is_flag=True, help="After a fence: everything up to the log's end, nothing may be pending.")
@click.option("--allow-quarantined", is_flag=True, help="Records kept in quarantine do not make it incomplete.")
@click.option("--foreign", is_flag=True, help="Another tool made the copy: it is aligned by content, without a ledger.")
@click.option("--from-start", is_flag=True, help="With --foreign: the copy should hold the source from its beginning.")
@click.option("--since", type=click.Path(path_type=Path), metavar="SUMMARY", help="Only what that proof left open.")
@click.option("--wait", type=float, default=30.0, show_default=True, help="Seconds for the flow to catch up.")
@click.option("--max-rate", callback=lambda _context, _option, text: _rate(text), metavar="RATE",
              help="Read no more of each cluster, e.g. 20MiB/s, whatever the file says.")  # fmt: skip
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="DIR", help="Where the evidence goes, or lies.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--explain", metavar="CHUNK", help="Show the records of a difference, e.g. of orders-3@150000.")
@click.option("--reveal", is_flag=True, help="With --explain: keys, values and headers, too.")
@click.option("--check", type=click.Path(path_type=Path), metavar="DIR", help="Is this evidence as it was written?")
@click.option("--root", metavar="HASH", help="With --check: the seal (or proof root) that was written down.")
@click.option("--chunk", metavar="CHUNK", help="With --check: show that this chunk is in the proof root.")
def verify(
    path: Path | None,
    flows: tuple[str, ...],
    topics: tuple[str, ...],
    level: str | None,
    groups: tuple[str, ...],
    max_diffs: int,
    final: bool,
    allow_quarantined: bool,
    foreign: bool,
    from_start: bool,
    since: Path | None,
    wait: float,
    max_rate: str | None,
    out: Path | None,
    form: str,
    explain: str | None,
    reveal: bool,
    check: Path | None,
    root: str | None,
    chunk: str | None,
) -> int:
    """Prove record by record that the target holds what the source holds.

    Exit codes: 0 proven, 1 different, 2 error, 3 incomplete (records pending, or gone before they could be read).
    Evidence: summary.json, report.html, tables as Parquet, spark.log. docs/proof.md explains all of it.

    --explain shows the records behind a difference that an earlier proof found (exit code 0, 2 error). --check tells
    whether evidence is untouched (0 yes, 1 no, 2 there is none).
    """
    if check is not None:
        from watershed.cli.evidence_check import show_evidence_check

        return show_evidence_check(check, root, chunk, form)
    _only_with("--check", root=root, chunk=chunk)
    if path is None:
        raise click.UsageError("name the topology file: topology verify FILE")
    if explain is not None:
        from watershed.cli.explain_chunk import explain_chunk

        return explain_chunk(path, explain, out, form, reveal=reveal)
    _only_with("--explain", reveal=reveal)
    out = out or _PROOFS / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    command = [sys.executable, "-m", "watershed.spark.verify", "--topology", str(path), "--out", str(out)]
    command += ["--level", level] if level else []
    command += [part for flow in flows for part in ("--flow", flow)]
    command += [part for names in topics for part in ("--topics", names)]
    command += [part for name in groups for part in ("--group", name)]
    command += ["--wait", str(wait), *(["--final"] if final else []), *(["--since", str(since)] if since else [])]
    command += ["--max-diffs", str(max_diffs), *(["--max-rate", max_rate] if max_rate else [])]
    command += ["--allow-quarantined"] if allow_quarantined else []
    command += [*(["--foreign"] if foreign else []), *(["--from-start"] if from_start else [])]
    before = _stamp(out)
    code = _run(command, out)
    document = _summary(out) if _stamp(out) != before else None  # else an earlier proof's: this one wrote nothing
    if document is None or document.get("exit_code") != code:
        click.echo(f"topology: the proof ended with {code} and left no verdict. {_last_error(out)}", err=True)
        return 2
    if form == "json":
        click.echo(json.dumps(document, indent=2))
    elif "error" not in document:
        click.echo(render_verdict(document, out, path))
    if "error" in document:
        click.echo(f"topology: {document['error']}", err=True)
    return code


def _rate(text: str | None) -> str | None:
    from watershed.topology.quantities import parse_nonzero_rate

    try:
        if text is not None:
            parse_nonzero_rate(text)
    except ValueError as error:
        raise click.BadParameter(f"{text} {error}") from None
    return text


def _only_with(option: str, **given: object) -> None:
    for name, value in given.items():
        if value:
            raise click.UsageError(f"--{name} goes with {option} only")


def _run(command: list[str], out: Path) -> int:
    """Run the application, its diagnostics in `spark.log`; those of waiting for Spark are shown, too. When we are told
    to end, it is told too."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        log = (out / "spark.log").open("wb")
    except OSError as error:
        raise click.UsageError(f"cannot write to {out}: {error.strerror}") from None
    with log, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log) as child:
        before = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        waits = SparkWaitReader(out / "spark.log")
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return child.wait(_LOOK_S)
                waits.show_new()
        except KeyboardInterrupt:
            child.terminate()
            raise
        finally:
            signal.signal(signal.SIGTERM, before)


def _stamp(out: Path) -> tuple[int, int] | None:
    """Changes with every summary that is written there."""
    try:
        found = (out / "summary.json").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _summary(out: Path) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document


def _last_error(out: Path) -> str:
    log = out / "spark.log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    said = [line for line in lines if line.startswith("error: ")]
    return said[-1] if said else f"See {log}"
