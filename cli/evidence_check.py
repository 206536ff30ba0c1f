"""`topology verify --check`: whether the evidence of a proof is as it was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from watershed.spark.evidence import evidence_folder as evidence
from watershed.spark.evidence.chunk_names import find_chunk_by_name


def show_evidence_check(folder: Path, root: str | None, chunk: str | None, form: str) -> int:
    """0: untouched, 1: it was changed, and how. Raises WrongUse where there is no evidence, or no such chunk."""
    wrong = evidence.check_evidence_folder(folder, root)
    document = evidence.read_summary(folder)
    shown = _inclusion(folder, chunk) if chunk is not None else None
    if form == "json":
        told = {"untouched": not wrong, "wrong": wrong, "inclusion": shown}
        told |= {"seal": document.get("seal"), "proof_root": document["proof_root"]}
        click.echo(json.dumps(told, indent=2))
        return 1 if wrong else 0
    for line in wrong:
        click.echo(line)
    if not wrong:
        files = len(document["tables"]) + ("report" in document)
        click.echo(f"untouched: {files} files are as the proof of {document['ended_at']} left them")
    click.echo(f"verdict {document['verdict']}, proof root {document['proof_root']}, seal {document.get('seal')}")
    if shown is not None:
        click.echo(f"\nleaf: SHA-256 of a zero byte and\n{shown['leaf']}")
        for step in shown["steps"]:
            click.echo(f"  {step['side']:<5} {step['hash']}")
        click.echo(f"gives {shown['root']}")
    return 1 if wrong else 0


def _inclusion(folder: Path, chunk: str) -> dict[str, Any]:
    rows = evidence.read_evidence_table(folder, "chunks")
    text, steps, root = evidence.build_inclusion_proof(rows, find_chunk_by_name(rows, chunk))
    return {"leaf": text, "steps": [step._asdict() for step in steps], "root": root}
