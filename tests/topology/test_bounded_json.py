"""JSON of others is read within limits, by everybody who reads some."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.clusters.registry.schema import AVRO, Schema, render_canonical_schema
from watershed.replicator.adoption.mirrormaker_format import decode_source_offset
from watershed.replicator.mirrormaker_records import UnreadableNote
from watershed.spark.errors import WrongUse
from watershed.spark.evidence.evidence_folder import SUMMARY_FILE, read_summary
from watershed.spark.judging.earlier_proof import read_earlier_proof
from watershed.topology.bounded_json import parse_json
from watershed.topology.errors import UnreadablePlan
from watershed.topology.plan import decode_plan

BAD = ["[" * 100_000, '{"a":' * 100_000, '{"schema": 1e999}', '{"schema": NaN}', "[1]", "7"]


@pytest.mark.parametrize("text", [*BAD[:4], "[" * 65 + "]" * 65, ""])
def test_what_is_beyond_the_limits_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|nested|number"):
        parse_json(text.encode())


@pytest.mark.parametrize("text", BAD)
def test_documents_of_others_are_refused_with_words(text: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadablePlan):
        decode_plan(text)
    (tmp_path / SUMMARY_FILE).write_text(text)
    with pytest.raises(WrongUse):
        read_summary(tmp_path)
    with pytest.raises(WrongUse):
        read_earlier_proof(tmp_path / SUMMARY_FILE)
    with pytest.raises(UnreadableNote):
        decode_source_offset(text.encode(), b"{}")


def test_a_nested_schema_is_compared_as_text() -> None:
    assert render_canonical_schema(Schema(BAD[0], AVRO))
    assert Schema.from_json({"schema": BAD[0]}).text == BAD[0]
