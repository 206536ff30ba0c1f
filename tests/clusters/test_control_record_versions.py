"""What any version wrote into a control topic is read, what this one writes has the same bytes, and what a newer one
writes is refused by its version."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.clusters.control_record_cases import RECORDS
from watershed import clusters, cutover, replicator
from watershed.clusters.control_record_codec import ControlRecordBody, _form_fields
from watershed.clusters.control_records import ControlRecord
from watershed.clusters.control_topics import encode_control_value
from watershed.clusters.control_values import decode_control_value
from watershed.clusters.errors import ProtocolError, UnreadableControlRecord
from watershed.replicator.ledger.foreign_part import FOREIGN_RECORD_KIND, build_foreign_records, decode_foreign_parts
from watershed.replicator.ledger.ledger_block import LedgerBlock
from watershed.replicator.ledger.transaction_positions import (
    TRANSACTION_RECORD_KINDS,
    build_path_entry,
    decode_explicit_runs,
    decode_positions,
)
from watershed.replicator.partition_key import PartitionKey

_LINES = Path(__file__).with_name("control_record_samples.tsv").read_text(encoding="utf-8").splitlines()
SAMPLES = {name: (key, value.encode()) for name, key, value in (line.split("\t") for line in _LINES)}
_LEDGER_KINDS = {"block", FOREIGN_RECORD_KIND, *TRANSACTION_RECORD_KINDS}
_BODIES = [name for name in SAMPLES if name.partition(":")[0] not in _LEDGER_KINDS]
_WRITTEN_NOW = [name for name in _BODIES if name.partition(":")[2].startswith("now")]


def find_record_kinds() -> dict[str, type[ControlRecordBody]]:
    """Every class that uses the codec, in whatever module."""
    for room in (clusters, replicator, cutover):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            importlib.import_module(module.name)
    return {
        kind.__name__: kind
        for kind in ControlRecordBody.__subclasses__()
        if "FORMAT" in vars(kind) and "__slots__" in vars(kind)
    }


KINDS = find_record_kinds()


def read_sample(name: str, value: dict[str, Any]) -> Any:
    """Decodes a sample as its readers do."""
    kind, key = name.partition(":")[0], SAMPLES[name][0]
    if kind in KINDS:
        return KINDS[kind].from_json(value, key)
    record = ControlRecord(3, 40, 0, key, value)
    if kind == "block":
        return LedgerBlock.from_record(record)
    if kind == FOREIGN_RECORD_KIND:
        return next(iter(decode_foreign_parts([record]).values()))
    if kind == "stretches":
        assert decode_positions([record]) == {}, "a block without a position says nothing"
        return tuple(decode_explicit_runs(value["stretches"]))
    if value.get("filled"):
        stretches = ("stretches:now", decode_control_value(SAMPLES["stretches:now"][1]))
        return next(iter(decode_positions([record, ControlRecord(3, 39, 0, *stretches)]).values())).position
    return next((found.position for found in decode_positions([record]).values()), None)


def test_every_kind_of_record_has_samples() -> None:
    assert set(RECORDS) == set(SAMPLES)
    kinds = {name.partition(":")[0] for name in SAMPLES}
    assert kinds == _LEDGER_KINDS | set(KINDS)
    assert {f"{kind}:now" for kind in kinds} <= set(SAMPLES), "what this version writes"
    for name, kind in KINDS.items():  # fields that may be missing are missing in some sample of an earlier version
        earlier = [set(decode_control_value(value)) for each, (_, value) in SAMPLES.items() if each.startswith(name)]
        missing = {each.name for each in fields(kind) for keys in earlier if each.name not in keys}  # type: ignore[arg-type]
        assert missing == {each.name for each in _form_fields(kind) if not each.required}, name


@pytest.mark.parametrize("name", SAMPLES)
def test_what_any_version_wrote_is_read(name: str) -> None:
    value = decode_control_value(SAMPLES[name][1])
    found, expected = read_sample(name, value), RECORDS[name]
    if isinstance(expected, LedgerBlock):
        assert (found.at, found.record_key) == (40, SAMPLES[name][0])
        assert tuple(found.runs) == tuple(expected.runs)
        assert all(
            getattr(found, e.name) == getattr(expected, e.name) for e in fields(found) if e.name not in ("runs", "at")
        )
    else:
        assert found == expected
    assert read_sample(name, value | {"of_a_newer_version": [1]}) == found


@pytest.mark.parametrize("name", _WRITTEN_NOW)
def test_the_bytes_of_what_is_written_stay(name: str) -> None:
    assert (RECORDS[name].key, encode_control_value(RECORDS[name].to_json())) == SAMPLES[name]


def test_the_bytes_of_ledger_records_stay() -> None:
    """Packed columns are left out: another zlib packs them otherwise, and each unpacks what the other packed."""
    block, position = RECORDS["block:now"], RECORDS["position:now"]
    assert (block.record_key, encode_control_value(block.to_json())) == SAMPLES["block:now"]
    assert encode_control_value(position.to_json()) == SAMPLES["position:now"][1]
    repeating = RECORDS["position:now, with repeats"]
    assert (repeating.record_key, encode_control_value(repeating.to_json())) == SAMPLES["position:now, with repeats"]
    key, value = build_path_entry("a-to-b", 5, ("Cd", "Ab"))
    assert (key, encode_control_value(value or {})) == SAMPLES["path:now"]
    wrote = build_foreign_records(PartitionKey("a-to-b", "orders", "orders", 3), "one", RECORDS["foreign:now"])
    stored = decode_control_value(SAMPLES["foreign:now"][1])
    assert [(key, value | {"stretches": 0}) for key, value in wrote] == [
        (SAMPLES["foreign:now"][0], stored | {"stretches": 0})
    ]


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("stated", [3, 0, "1", None, True, [1]], ids=repr)
def test_a_version_that_is_not_known_is_refused(name: str, stated: object) -> None:
    value = decode_control_value(SAMPLES[name][1])
    with pytest.raises(ProtocolError, match="schema") as refused:
        read_sample(name, value | {"schema": stated})
    assert "watershed." in str(refused.value)
    if name in _BODIES:
        assert isinstance(refused.value, UnreadableControlRecord)
        assert (refused.value.key, refused.value.field) == (SAMPLES[name][0], "schema")
        assert f"schema {stated}, and versions up to 1 are known here. Use the version" in str(refused.value)


@pytest.mark.parametrize("name", _WRITTEN_NOW)
def test_one_kind_of_error_names_topic_key_and_field(name: str) -> None:
    kind, key = KINDS[name.partition(":")[0]], SAMPLES[name][0]
    value = decode_control_value(SAMPLES[name][1])
    for field in (each for each in _form_fields(kind) if each.required):
        with pytest.raises(UnreadableControlRecord, match=rf"read: {field.name} is missing") as refused:
            kind.from_json({name: each for name, each in value.items() if name != field.name}, key)
        assert (refused.value.topic, refused.value.key, refused.value.field) == (kind.FORMAT.topic, key, field.name)
    for field in _form_fields(kind):
        with pytest.raises(UnreadableControlRecord, match=rf"read: {field.name}: ") as refused:
            kind.from_json(value | {field.name: [[{}]]}, key)
        assert refused.value.field == field.name
        again = pickle.loads(pickle.dumps(refused.value))
        assert (str(again), again.topic, again.key, again.field) == (
            str(refused.value), kind.FORMAT.topic, key, field.name,
        )  # fmt: skip
    with pytest.raises(UnreadableControlRecord, match="something else than its key"):
        kind.from_json(value, f"{key}x")


def test_content_that_no_version_wrote_is_refused() -> None:
    for name, wrong in {
        "ProducerRecord:now": {"path": []},
        "AlignmentRecord:now": {"mode": "unreadable"},
        "WithheldRights:now": {"acls": [{"principal": "User:x"}]},
        "FlowRecord:now": {"begins": {"orders": {"x": 1}}},
    }.items():
        with pytest.raises(UnreadableControlRecord, match=f"read: {next(iter(wrong))}: "):
            read_sample(name, decode_control_value(SAMPLES[name][1]) | wrong)


def test_what_stands_inside_a_record_has_no_version_and_is_read_strictly() -> None:
    """A key that would limit a right must not be passed over by a version that does not know it."""
    value = decode_control_value(SAMPLES["WithheldRights:now"][1])
    value["acls"][0]["only_on_sundays"] = True
    with pytest.raises(UnreadableControlRecord, match="acls: TypeError"):
        read_sample("WithheldRights:now", value)
