"""The folder of a proof: tables, `report.html`, then `summary.json`. Whoever finds a summary finds all of it, whole.

Every file is written under a temporary name; all are renamed once all are there, the summary last. It says the SHA-256
of every other file and, as `seal`, of itself, so whatever is changed later is noticed (`check_evidence_folder`). Nobody
is kept from making all of it anew: for that the seal stands in a ticket, outside of the folder. The proof root vouches
for the chunks alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from watershed.clusters.private_files import FILE_MODE, make_folder
from watershed.spark.errors import Unwritable, WrongUse
from watershed.spark.evidence.page.html_page import render_fallback_page, render_proof_page
from watershed.spark.evidence.parquet_tables import COUNT_COLUMNS, TABLE_COLUMNS, TableRows, encode_parquet
from watershed.spark.judging.merkle_tree import (
    MerkleStep,
    build_inclusion_path,
    compute_merkle_root,
    compute_root_from_path,
    encode_leaf,
)
from watershed.spark.judging.verdict import EXIT_CODES, PASSED_VERDICTS
from watershed.topology.bounded_json import parse_json_object

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # never through a link that stands there
SUMMARY_FILE: Final = "summary.json"
_REPORT: Final = "report.html"
_NOT_HASHED: Final = frozenset({"run_id", "chunk"})  # columns that a leaf of the tree does not hold: names, not content


def clear_evidence(directory: Path) -> None:
    """An old verdict must not be taken for ours, should we die. Raises Unwritable where nothing can be written."""
    try:
        make_folder(directory)
        for name in (SUMMARY_FILE, _REPORT, *map(_file, TABLE_COLUMNS)):
            (directory / name).unlink(missing_ok=True)
            for left in directory.glob(f".{name}.*"):
                left.unlink(missing_ok=True)
        probe = directory / f".{SUMMARY_FILE}.{os.getpid()}"
        probe.unlink(missing_ok=True)
        with os.fdopen(os.open(probe, _NEW, FILE_MODE), "wb") as file:
            file.write(b" " * 4096)  # hours of reading would be for nothing
        probe.unlink()
    except OSError as error:
        raise _unwritable(directory, error) from None


def write_evidence_folder(directory: Path, document: dict[str, Any], tables: Mapping[str, TableRows]) -> Path:
    """Write all tables (those that are not given are empty), the report and the summary, to which `tables` and
    `report` are added.

    Raises Unwritable, and then leaves nothing of this proof behind.
    """
    contents = {_file(name): encode_parquet(name, tables.get(name, ())) for name in TABLE_COLUMNS}
    document["tables"] = {
        name: {
            "file": _file(name),
            "rows": len(tables.get(name, ())),
            "sha256": hashlib.sha256(contents[_file(name)]).hexdigest(),
        }
        for name in TABLE_COLUMNS
    }
    contents[_REPORT] = _report(document, tables)
    document["report"] = {"file": _REPORT, "sha256": hashlib.sha256(contents[_REPORT]).hexdigest()}
    document["seal"] = compute_seal(document)
    contents[SUMMARY_FILE] = (json.dumps(document, indent=2) + "\n").encode()  # the last to be renamed
    waiting = {name: directory / f".{name}.{os.getpid()}" for name in contents}
    try:
        make_folder(directory)
        for name, content in contents.items():
            waiting[name].unlink(missing_ok=True)
            with os.fdopen(os.open(waiting[name], _NEW, FILE_MODE), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for name, path in waiting.items():
            path.replace(directory / name)
    except OSError as error:
        for name, path in waiting.items():
            for each in (path, directory / name):
                with contextlib.suppress(OSError):
                    each.unlink(missing_ok=True)
        raise _unwritable(directory, error) from None
    return directory / SUMMARY_FILE


def compute_seal(document: Mapping[str, Any]) -> str:
    """SHA-256 of the summary without its seal, as JSON with sorted keys and no blanks."""
    body = {name: value for name, value in document.items() if name != "seal"}
    return "sha256:" + hashlib.sha256(encode_leaf(body).encode()).hexdigest()


def read_summary(directory: Path) -> dict[str, Any]:
    """Raises WrongUse for a folder without the summary of a proof."""
    path = directory / SUMMARY_FILE
    try:
        document = parse_json_object(path.read_bytes())
        if "verdict" not in document:
            raise ValueError("it has no verdict")
    except OSError as error:
        raise WrongUse(f"{directory} holds no evidence of a proof: {SUMMARY_FILE}: {error.strerror}") from None
    except ValueError as error:
        raise WrongUse(f"{path} is not the summary of a proof ({error})") from None
    return document


def read_evidence_table(directory: Path, name: str) -> list[dict[str, Any]]:
    """Raises WrongUse when it is missing or no Parquet file."""
    from pyarrow import ArrowException, parquet

    path = directory / _file(name)
    try:
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (OSError, ArrowException) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
        raise WrongUse(f"{path} cannot be read: {why}") from None
    return rows


def check_evidence_folder(directory: Path, ticket: str | None = None) -> list[str]:
    """What is not as the proof left it, in words; empty when all is. ticket: the seal that somebody wrote down (or the
    proof root, which says nothing of verdict, counts and tables)."""
    document = read_summary(directory)
    wrong: list[str] = []
    noted = document.get("tables")
    if not isinstance(noted, dict):
        raise WrongUse(
            f"{directory / SUMMARY_FILE} has schema {document.get('schema')}, which names no tables; check "
            f"needs 2 or later"
        )
    for entry in (*noted.values(), *([document["report"]] if "report" in document else [])):
        path = directory / str(entry["file"])
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            wrong.append(f"{path.name} cannot be read: {error.strerror}")
            continue
        if digest != entry["sha256"]:
            wrong.append(f"{path.name} was changed: its SHA-256 is {digest}, the summary says {entry['sha256']}")
    try:
        found = compute_merkle_root(build_leaves(read_evidence_table(directory, "chunks")))
    except WrongUse as error:
        wrong.append(str(error))
    else:
        if found != document["proof_root"]:
            wrong.append(f"the chunks give the root {found}, the summary says {document['proof_root']}")
    if document.get("seal") != compute_seal(document):
        wrong.append(f"{SUMMARY_FILE} was changed: its content gives the seal {compute_seal(document)}")
    known = {str(document.get(name)).removeprefix("sha256:") for name in ("seal", "proof_root")}
    if ticket is not None and ticket.removeprefix("sha256:") not in known:
        wrong.append(
            f"the summary has the seal {document.get('seal')} and the root {document['proof_root']}, the one that was "
            f"asked for is {ticket}"
        )
    return wrong + _contradictions(document, directory)


def _contradictions(document: Mapping[str, Any], directory: Path) -> list[str]:
    """Numbers of the summary that its own tables do not give."""
    wrong = []
    verdict = document["verdict"]
    if EXIT_CODES.get(verdict) != document["exit_code"]:
        wrong.append(f"verdict {verdict} and exit code {document['exit_code']} do not belong together")
    if verdict in PASSED_VERDICTS and (document["unproven"] or document["pending"]):
        wrong.append(
            f"verdict {verdict} with {document['unproven']} unproven and {document['pending']} pending records"
        )
    if (verdict == "repeated") is not bool(document.get("repeated")) and verdict in PASSED_VERDICTS:
        wrong.append(f"verdict {verdict} with {document.get('repeated', 0)} repeated records")
    try:
        runs, partitions = read_evidence_table(directory, "runs"), read_evidence_table(directory, "partitions")
    except WrongUse as error:
        return [*wrong, str(error)]
    for name in COUNT_COLUMNS if partitions else ():
        total = sum(row.get(name) or 0 for row in partitions)
        if total != document.get(name, 0):
            wrong.append(f"{name} is {document.get(name)} in the summary, {total} in the table of partitions")
    if [row["verdict"] for row in runs] != [verdict]:
        wrong.append("the table of runs does not hold the summary's verdict")
    return wrong


def build_leaves(rows: TableRows) -> list[str]:
    """What the tree is made of, from rows of the table `chunks`."""
    return [encode_leaf({name: value for name, value in row.items() if name not in _NOT_HASHED}) for row in rows]


def build_inclusion_proof(rows: TableRows, row: Mapping[str, Any]) -> tuple[str, list[MerkleStep], str]:
    """(the leaf as text, its way up, the root they give) of one row of the table `chunks`."""
    [text] = build_leaves([row])
    steps = build_inclusion_path(build_leaves(rows), text)
    return text, steps, compute_root_from_path(text, steps)


def _report(document: Mapping[str, Any], tables: Mapping[str, TableRows]) -> bytes:
    """The page; hours of reading are not lost because it cannot be drawn, then it says so."""
    try:
        return render_proof_page(document, tables).encode()
    except Exception as error:  # noqa: BLE001 (whatever a picture stumbles over, the tables are whole)
        return render_fallback_page(document, error).encode()


def _file(table: str) -> str:
    return f"{table}.parquet"


def _unwritable(directory: Path, error: OSError) -> Unwritable:
    return Unwritable(
        f"cannot write the evidence to {error.filename or directory}: {error.strerror or error}. "
        "Make room, or choose another folder (--out)"
    )
