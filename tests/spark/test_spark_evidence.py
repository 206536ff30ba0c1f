"""What a proof leaves behind: whole or not at all, of one shape, and noticed when it is changed."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from watershed.spark.errors import Unwritable, WrongUse
from watershed.spark.evidence.evidence_folder import (
    build_inclusion_proof,
    check_evidence_folder,
    clear_evidence,
    compute_seal,
    read_evidence_table,
    write_evidence_folder,
)
from watershed.spark.evidence.parquet_tables import TABLE_COLUMNS, build_arrow_schema
from watershed.spark.evidence.proof_results import ProofFindings, build_error_results, build_results
from watershed.spark.fingerprint import ConsumedRecord, fingerprint_records, sum_fingerprints
from watershed.spark.judging import merkle_tree
from watershed.spark.judging.group_position_landing import LandedPosition
from watershed.spark.judging.proof_window import PartitionPair, ProofWindow
from watershed.spark.judging.record_difference import DifferenceExample, RecordDifference
from watershed.spark.judging.verdict import (
    ChunkRow,
    ConfirmedDifference,
    Counts,
    compute_proof_root,
    encode_chunk_row,
    judge_proof,
)
from watershed.spark.proof_request import ProofRequest
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.verify import main

PLACE = PartitionPair("a-to-b", "orders", "b.orders", 3)
IDS = (uuid.UUID(int=1), uuid.UUID(int=2))
SCHEMA = json.loads(Path("spark/evidence/summary.schema.json").read_text())


def row(start: int, status: str = "equal", n: int = 10, partition: int = 3) -> ChunkRow:
    sums = sum_fingerprints(fingerprint_records([ConsumedRecord(b"k", None, start + i - 5) for i in range(n)]))
    span = OffsetRange(start, start + 10)
    return ChunkRow(PLACE._replace(partition=partition), span, span, sums, sums, status, 2, why="")  # type: ignore[arg-type]


def facts(**more: Any) -> dict[str, Any]:
    return {
        "run_id": "20261121T221648-3fa9c1d2",
        "topology": "shop",
        "plan_hash": "sha256:00",
        "level": "L3",
        "mode": "rolling",
        "started_at": "2026-11-21T22:16:48.000+00:00",
        "ended_at": "2026-11-21T22:17:48.000+00:00",
        "fixed_at": "2026-11-21T22:16:50.000+00:00",
        "seconds": 60.0,
        "flows": ["a-to-b"],
        "guarantees": {"a-to-b": "exactly_once: sequence"},
        "policy": ProofRequest().to_json(),
        "engine": "spark local[2]",
        "spark_version": "4.0",
    } | more


def different() -> ProofFindings:
    """One lost and one altered in the second chunk of three, and two positions of a group."""
    rows = [row(0), row(10, "different"), row(20)]
    examples = (
        DifferenceExample("missing", 12, None, (), 1, None, 5, None, 2**64 - 1),
        DifferenceExample("altered", 13, 12, ("value",), 3, 4, 6, 6, 7),
    )
    confirmed = [
        ConfirmedDifference(
            PLACE, rows[1].source, rows[1].target, RecordDifference(8, missing=1, altered=1, examples=examples)
        )
    ]
    window = ProofWindow(PLACE, OffsetRange(0, 30), OffsetRange(0, 29), OffsetRange(30, 31), IDS)
    outside = {PLACE: Counts(pending=1), PLACE._replace(partition=4): Counts(pending=2)}
    groups = [
        LandedPosition(
            "a-to-b", "billing", "billing", "orders", "b.orders", 3, 12, 12, "exact", None, 15, "ahead", 3, "different"
        ),
        LandedPosition("a-to-b", "audit", "audit", "orders", "b.orders", 3, None, why="no leader"),
    ]
    return ProofFindings(judge_proof(rows, confirmed, outside), rows, confirmed, [window], groups)


def clean() -> ProofFindings:
    rows = [row(start) for start in range(0, 70, 10)]
    return ProofFindings(
        judge_proof(rows, [], {}),
        rows,
        [],
        [ProofWindow(PLACE, OffsetRange(0, 70), OffsetRange(0, 70), OffsetRange(70, 70), IDS)],
    )


def written(folder: Path, found: ProofFindings) -> dict[str, Any]:
    document, tables = build_results(found, facts(), ["acls"])
    write_evidence_folder(folder, document, tables)
    said: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return said


@pytest.mark.parametrize("made", [different, clean])
def test_tables_have_their_shape_also_when_they_are_empty(made: Any, tmp_path: Path) -> None:
    document = written(tmp_path, made())
    jsonschema.validate(document, SCHEMA)
    for name, columns in TABLE_COLUMNS.items():
        table = parquet.read_table(tmp_path / f"{name}.parquet")
        assert table.schema.equals(build_arrow_schema(name)), name
        assert table.column_names == list(columns)
        assert table.num_rows == document["tables"][name]["rows"]
    assert [path.name for path in sorted(tmp_path.iterdir())] == sorted(
        ["report.html", "summary.json", *(f"{name}.parquet" for name in TABLE_COLUMNS)]
    )


def test_every_key_of_a_summary_is_in_its_schema(tmp_path: Path) -> None:
    for made in (different(), clean()):
        assert set(written(tmp_path, made)) <= set(SCHEMA["properties"])
    assert set(encode_chunk_row(row(0))) | {"run_id", "chunk"} == set(TABLE_COLUMNS["chunks"])


def test_the_documentation_names_every_column() -> None:
    said = Path("docs/proof.md").read_text()
    for name, columns in TABLE_COLUMNS.items():
        assert f"`{name}.parquet`" in said
        for column in columns:
            plain = column.removeprefix("source_").removeprefix("target_")
            assert f"`{column}`" in said or f"`source_{plain}`" in said or f"`{plain}`" in said, (name, column)


def test_what_the_tables_say_of_differences_and_groups(tmp_path: Path) -> None:
    document = written(tmp_path, different())
    assert (document["verdict"], document["unproven"], document["pending"]) == ("different", 2, 3)
    assert document["named"] == {"differences": 2, "of": 2, "all": True}
    missing, altered = read_evidence_table(tmp_path, "diffs")
    assert (missing["chunk"], missing["kind"], missing["source_offset"], missing["target_offset"]) == (
        "orders-3@10", "missing", 12, None,
    )  # fmt: skip
    assert (missing["source_fp"], missing["target_fp"], missing["key_hash"]) == ("0" * 15 + "1", None, "f" * 16)
    assert altered["components"] == ["value"]
    [worst] = document["worst_chunks"]
    assert (worst["chunk"], worst["differences"]) == ("orders-3@10", {"altered": 1, "missing": 1})
    assert [(each["id"], each["guarantee"]) for each in document["flows"]] == [("a-to-b", "exactly_once: sequence")]
    [topic] = document["topics"]
    assert (topic["topic"], topic["partitions"], topic["chunks"], topic["pending"]) == ("orders", 2, 3, 3)
    assert [each["judged"] for each in document["groups"]["positions"]] == ["different", "unknown"]
    assert document["groups"]["landings"] == {"ahead": 1, "not there": 1}
    assert [(p["partition"], p["pending"], p["barrier"]) for p in read_evidence_table(tmp_path, "partitions")] == [
        (3, 1, 31),
        (4, 2, None),
    ]
    [run] = read_evidence_table(tmp_path, "runs")
    assert (run["verdict"], run["flows"], run["diffs"], run["groups"]) == ("different", ["a-to-b"], 2, 2)


def test_no_more_differences_than_asked_for(tmp_path: Path) -> None:
    document, tables = build_results(different(), facts(policy=ProofRequest(max_diffs=1).to_json()), [])
    assert (len(tables["diffs"]), document["missing"], document["altered"]) == (1, 1, 1)
    assert document["named"] == {"differences": 1, "of": 2, "all": False}


def test_untouched_evidence_is_as_it_was(tmp_path: Path) -> None:
    document = written(tmp_path, different())
    assert check_evidence_folder(tmp_path) == []
    assert check_evidence_folder(tmp_path, document["proof_root"]) == []
    assert check_evidence_folder(tmp_path, document["seal"]) == []
    assert "the one that was asked for" in check_evidence_folder(tmp_path, "sha256:" + "0" * 64)[0]


@pytest.mark.parametrize("name", TABLE_COLUMNS)
def test_a_changed_table_is_noticed(name: str, tmp_path: Path) -> None:
    written(tmp_path, different())
    path = tmp_path / f"{name}.parquet"
    table = parquet.read_table(path)
    parquet.write_table(table.slice(1), path)
    wrong = check_evidence_folder(tmp_path)
    assert any(f"{name}.parquet was changed" in line for line in wrong)
    path.unlink()
    assert any(f"{name}.parquet cannot be read" in line for line in check_evidence_folder(tmp_path))


def test_a_nicer_summary_is_noticed(tmp_path: Path) -> None:
    document = written(tmp_path, different())
    for change, word in (
        ({"missing": 0, "unproven": 1}, "missing is 0 in the summary, 1 in the table"),
        ({"verdict": "proven"}, "do not belong together"),
        ({"verdict": "proven", "exit_code": 0}, "verdict proven with 2 unproven"),
        ({"proof_root": "sha256:00"}, "the chunks give the root"),
    ):
        (tmp_path / "summary.json").write_text(json.dumps(document | change))
        assert any(word in line for line in check_evidence_folder(tmp_path)), change


def test_a_seal_vouches_for_what_no_chunk_says(tmp_path: Path) -> None:
    document = written(tmp_path, different())
    nicer = document | {"verdict": "incomplete", "exit_code": 3}
    (tmp_path / "summary.json").write_text(json.dumps(nicer))
    assert any("summary.json was changed" in line for line in check_evidence_folder(tmp_path))
    (tmp_path / "summary.json").write_text(json.dumps(nicer | {"seal": compute_seal(nicer)}))
    assert any("the one that was asked for" in line for line in check_evidence_folder(tmp_path, document["seal"]))


def test_a_chunk_is_shown_to_be_in_the_root(tmp_path: Path) -> None:
    document = written(tmp_path, clean())
    rows = read_evidence_table(tmp_path, "chunks")
    for each in rows:
        text, steps, found = build_inclusion_proof(rows, each)
        assert found == document["proof_root"] == merkle_tree.compute_root_from_path(text, steps)
        assert merkle_tree.compute_root_from_path(text.replace('"equal"', '"EQUAL"'), steps) != found


@given(st.sets(st.text(max_size=5), max_size=40), st.data())
def test_every_leaf_has_a_way_up(texts: set[str], data: st.DataObject) -> None:
    top = merkle_tree.compute_merkle_root(texts)
    for text in texts:
        assert merkle_tree.compute_root_from_path(text, merkle_tree.build_inclusion_path(texts, text)) == top
    other = data.draw(st.text(max_size=6).filter(lambda text: text not in texts))
    with pytest.raises(ValueError, match="not in list"):
        merkle_tree.build_inclusion_path(texts, other)


def test_the_root_is_that_of_rfc_6962() -> None:
    """The tree of three leaves: the third stands alone on its level."""
    import hashlib

    def h(*parts: bytes) -> bytes:
        return hashlib.sha256(b"".join(parts)).digest()

    a, b, c = (h(b"\x00", text) for text in (b"a", b"b", b"c"))
    assert merkle_tree.compute_merkle_root(["b", "c", "a"]) == "sha256:" + h(b"\x01", h(b"\x01", a, b), c).hex()
    rows = [row(0), row(10)]
    assert compute_proof_root(rows) == merkle_tree.compute_merkle_root(
        merkle_tree.encode_leaf(encode_chunk_row(each)) for each in rows
    )


def test_a_full_disk_leaves_nothing_of_this_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document, tables = build_results(different(), facts(), [])
    synced: list[int] = []

    def full(_file: int) -> None:
        synced.append(1)
        if len(synced) == 4:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unwritable, match=r"No space left on device.*Make room, or choose another folder"):
        write_evidence_folder(tmp_path, document, tables)
    assert list(tmp_path.iterdir()) == []


def test_an_old_verdict_goes_before_a_proof_begins(tmp_path: Path) -> None:
    written(tmp_path, clean())
    (tmp_path / ".chunks.parquet.99").write_text("left by a proof that was killed")
    (tmp_path / "notes.txt").write_text("somebody else's")
    clear_evidence(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_takes_no_files_is_an_error_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "deeper", Path("/proc/nothing")):
        assert main(["--topology", "nowhere.yaml", "--out", str(out), "--level", "L0"]) == 2
        said = capsys.readouterr().err
        assert "cannot write the evidence to" in said
        assert "Traceback" not in said


def test_an_error_has_the_same_files(tmp_path: Path) -> None:
    assert main(["--topology", "nowhere.yaml", "--out", str(tmp_path), "--level", "L0"]) == 2
    document = json.loads((tmp_path / "summary.json").read_text())
    jsonschema.validate(document, SCHEMA)
    assert (document["verdict"], document["exit_code"], document["level"]) == ("error", 2, "L0")
    assert "nowhere.yaml" in document["error"]
    assert check_evidence_folder(tmp_path) == []
    assert [run["error"] for run in read_evidence_table(tmp_path, "runs")] == [document["error"]]


def test_what_is_no_evidence(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="holds no evidence of a proof"):
        check_evidence_folder(tmp_path)
    (tmp_path / "summary.json").write_text('{"schema": 1, "verdict": "proven"}')
    with pytest.raises(WrongUse, match="names no tables"):
        check_evidence_folder(tmp_path)
    (tmp_path / "summary.json").write_text("[]")
    with pytest.raises(WrongUse, match="not the summary of a proof"):
        check_evidence_folder(tmp_path)


def test_error_results_name_no_tables_rows() -> None:
    document, tables = build_error_results("cluster cloud does not answer", facts())
    assert (document["verdict"], document["unproven"]) == ("error", 0)
    assert {name: len(rows) for name, rows in tables.items()} == {
        "runs": 1, "partitions": 0, "chunks": 0, "diffs": 0, "groups": 0,
    }  # fmt: skip
