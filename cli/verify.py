"""`topology verify`: the Spark proof, run as a program of its own so that this command stays light."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

_CLASSES = ("missing", "altered", "reordered", "duplicates", "foreign", "unverifiable", "pending")


@click.command(epilog="Example: topology verify orders.yaml --flow onprem-to-cloud --final -o proof/")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--flow", "flows", multiple=True, metavar="ID", help="Only this flow (may be repeated).")
@click.option("--topics", multiple=True, metavar="A,B", help="Only these topics, by their names at the source.")
@click.option("--level", type=click.Choice(["L0", "L1"]), default="L1", show_default=True,
              help="L1 compares every record; L0 looks at topics only and ends with 3 at best.")  # fmt: skip
@click.option("--final", is_flag=True, help="After a fence: everything up to the log's end, nothing may be pending.")
@click.option("--since", type=click.Path(path_type=Path), metavar="SUMMARY", help="Only what lies above that proof.")
@click.option("--wait", type=float, default=30.0, show_default=True, help="Seconds for the flow to catch up.")
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="DIR", help="Where the evidence goes.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def verify(
    path: Path,
    flows: tuple[str, ...],
    topics: tuple[str, ...],
    level: str,
    final: bool,
    since: Path | None,
    wait: float,
    out: Path | None,
    form: str,
) -> int:
    """Prove record by record that the target holds what the source holds.

    Exit codes: 0 proven, 1 different, 2 error, 3 incomplete (records pending, or gone before they could be read).
    Evidence: summary.json (verdict, counts, window, proof root), chunks.parquet, spark.log.
    """
    out = out or Path(".watershed") / "proofs" / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    command = [sys.executable, "-m", "spark.verify", "--topology", str(path), "--out", str(out), "--level", level]
    command += [part for flow in flows for part in ("--flow", flow)]
    command += [part for names in topics for part in ("--topics", names)]
    command += ["--wait", str(wait), *(["--final"] if final else []), *(["--since", str(since)] if since else [])]
    code = _run(command, out)
    document = _summary(out)
    if document is None or document.get("exit_code") != code:
        click.echo(f"topology: the proof ended with {code} and left no verdict. {_last_error(out)}", err=True)
        return 2
    if form == "json":
        click.echo(json.dumps(document, indent=2))
    elif "error" not in document:
        click.echo(_table(document))
        click.echo(f"evidence: {out / 'summary.json'}")
    if "error" in document:
        click.echo(f"topology: {document['error']}", err=True)
    return code


def _run(command: list[str], out: Path) -> int:
    """Run the application, its diagnostics in `spark.log`. When we are told to end, it is told too."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        log = (out / "spark.log").open("wb")
    except OSError as error:
        raise click.UsageError(f"cannot write to {out}: {error.strerror}") from None
    with log, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log) as child:
        before = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.terminate()
            raise
        finally:
            signal.signal(signal.SIGTERM, before)


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


def _table(document: dict[str, Any]) -> str:
    colour = {"proven": "green", "different": "red"}.get(document["verdict"], "yellow")
    total = document["proven"] + document["missing"] + document["altered"] + document["reordered"]
    lines = [
        click.style(document["verdict"].upper(), fg=colour, bold=True)
        + f"  unproven {document['unproven']:,}  proven {document['proven']:,} of {total:,}"
        + f"  pending {document['pending']:,}  ({document['level']}, {document['mode']}, {document['seconds']} s)"
    ]
    if document["proven_earlier"]:
        lines.append(f"  proven earlier, below this window: {document['proven_earlier']:,}")
    if not document["exact"]:
        lines.append("  counts are lower bounds: too much differs to align it record by record")
    rows = [(flow["id"], topic) for flow in document["flows"] for topic in flow["topics"]]
    if rows:
        shown = [name for name in _CLASSES if any(topic[name] for _, topic in rows)]
        width = max(len(topic["topic"]) for _, topic in rows) + 2
        lines.append(f"  {'topic':<{width}} {'proven':>12} " + " ".join(f"{name:>12}" for name in shown))
        for _flow, topic in rows:
            cells = " ".join(f"{topic[name]:>12,}" for name in shown)
            lines.append(f"  {topic['topic']:<{width}} {topic['proven']:>12,} {cells}".rstrip())
    for each in document["differences"][:10]:
        changed = f" ({', '.join(each['components'])})" if each["components"] else ""
        lines.append(
            f"  {each['kind']}{changed}: {each['topic']}-{each['partition']}"
            f" source {_offset(each['source_offset'])} target {_offset(each['target_offset'])}"
        )
    lines += [f"  finding: {line}" for line in document["findings"]]
    lines += [f"  not compared: {line}" for line in document["not_compared"]]
    lines.append(f"  proof root {document['proof_root']}")
    return "\n".join(lines)


def _offset(offset: int | None) -> str:
    return "-" if offset is None else str(offset)
