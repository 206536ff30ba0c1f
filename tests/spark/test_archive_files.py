"""An archive's files: what is changed, missing, half or foreign is found, and nothing is overwritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.archives import TOPIC, TOPIC_ID, batch_at, write_archive, write_object
from watershed.spark.archive.archive_reader import (
    find_faults,
    find_left_objects,
    open_object,
    read_manifest,
    require_manifest,
)
from watershed.spark.archive.manifest import (
    MANIFEST_FILE,
    ArchivedPosition,
    ArchivedSchema,
    advance_manifest,
    decode_manifest,
    encode_manifest,
    find_objects_root,
    find_seal,
)
from watershed.spark.archive.object_format import ObjectPlace, decode_object, describe_object, encode_object
from watershed.spark.archive.storage import FolderStorage
from watershed.spark.errors import ArchiveDamaged, Unwritable, WrongUse
from watershed.spark.evidence.evidence_folder import compute_seal


def test_a_batch_comes_back_byte_for_byte() -> None:
    batches = [batch_at(5, 10), batch_at(15, 4, codec="gzip", epoch=3), batch_at(30, 10, missing=(0, 4, 9))]
    place = ObjectPlace(TOPIC, TOPIC_ID, 2, 8, 40)
    content = encode_object(place, batches)
    opened = decode_object(content, "x")
    assert opened.place == place
    assert [bytes(each.raw) for each in opened.batches] == [bytes(each.raw) for each in batches]
    entry = describe_object(place, batches, content)
    assert (entry.batches, entry.records, entry.last_offset) == (3, 7 + 4 + 7, 39)  # three records lie below the place
    name = f"00000000000000000008-00000000000000000040-{entry.sha256[:16]}.parquet"
    assert entry.path == f"topics/orders/2/{name}"


def test_an_object_may_hold_nothing_but_a_gap() -> None:
    place = ObjectPlace(TOPIC, TOPIC_ID, 0, 3, 9)
    opened = decode_object(encode_object(place, []), "x")
    assert (opened.place, opened.batches) == (place, ())


@pytest.mark.parametrize("at", range(0, 100, 7))
def test_no_flipped_byte_of_an_object_goes_unseen(tmp_path: Path, at: int) -> None:
    manifest = write_archive(tmp_path, 40)
    path = tmp_path / manifest.objects[1].path
    content = bytearray(path.read_bytes())
    content[at * len(content) // 100] ^= 1
    path.write_bytes(content)
    [fault] = find_faults(FolderStorage(tmp_path), manifest.objects)
    assert str(path) in fault
    assert "was changed" in fault
    assert "Copy it again" in fault
    with pytest.raises(ArchiveDamaged, match="was changed"):
        open_object(FolderStorage(tmp_path), manifest.objects[1])


def test_every_missing_and_cut_object_is_named(tmp_path: Path) -> None:
    manifest = write_archive(tmp_path, 40, 20)
    (tmp_path / manifest.objects[0].path).unlink()
    cut = tmp_path / manifest.objects[2].path
    cut.write_bytes(cut.read_bytes()[:-10])
    faults = find_faults(FolderStorage(tmp_path), manifest.objects)
    assert len(faults) == 2
    assert f"{tmp_path / manifest.objects[0].path} is missing" in faults[0]
    assert str(cut) in faults[1]


def test_the_manifest_says_what_it_holds_and_is_sealed(tmp_path: Path) -> None:
    before = write_archive(tmp_path, 40)
    after = advance_manifest(
        before, written_at=1, cluster="a", cluster_id="cluster-a", topics=before.topics,
        positions=[ArchivedPosition("g", TOPIC, 0, 7, "mark")],
        schemas=[ArchivedSchema("orders-value", 1, 3, "AVRO", '"string"', (("a", "b", 1),))], objects=(),
    )  # fmt: skip
    assert decode_manifest(encode_manifest(after), "x") == after
    assert (after.version, after.previous_seal) == (2, find_seal(before))
    document = json.loads(encode_manifest(after))
    assert document["merkle_root"] == find_objects_root(after) == find_objects_root(before)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d["objects"][0].update(sha256="0" * 64), "was changed"),
        (lambda d: d["groups"].append({"group": "g"}), "was changed"),
        (lambda d: d.update(schema=99), "has schema 99"),
        (lambda d: d.pop("seal"), "was changed"),
    ],
)
def test_a_changed_manifest_is_refused(tmp_path: Path, change, told: str) -> None:
    write_archive(tmp_path, 40)
    path = tmp_path / MANIFEST_FILE
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(ArchiveDamaged, match=told):
        read_manifest(FolderStorage(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["objects"][0].update(path="../../etc/passwd"),
        lambda d: d["objects"].pop(0),
        lambda d: d["topics"][0].update(name="../orders"),
        lambda d: d["topics"][0]["partitions"][0].update(end=1_000),
        lambda d: d["objects"][0].update(first="x"),
        lambda d: d["topics"].clear(),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused_although_its_seal_fits(tmp_path: Path, change) -> None:
    write_archive(tmp_path, 40)
    document = json.loads((tmp_path / MANIFEST_FILE).read_bytes())
    change(document)
    document["seal"] = compute_seal(document)
    with pytest.raises(ArchiveDamaged):
        decode_manifest(json.dumps(document).encode(), "x")


def test_what_is_no_archive_is_said(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match=r"manifest\.json is missing"):
        require_manifest(FolderStorage(tmp_path))
    (tmp_path / MANIFEST_FILE).write_text("{")
    with pytest.raises(ArchiveDamaged, match="is no manifest"):
        require_manifest(FolderStorage(tmp_path))


def test_complete_objects_of_a_killed_run_are_found_and_half_ones_are_not(tmp_path: Path) -> None:
    write_archive(tmp_path, 20)
    storage = FolderStorage(tmp_path)
    written = [
        write_object(storage, 0, 20, 40, [batch_at(20, 20)]),
        write_object(storage, 0, 40, 50, []),
        write_object(storage, 1, 3, 9, [batch_at(0, 9)]),
    ]
    (tmp_path / "topics/orders/0/.tmp-00000000000000000050-00000000000000000060.parquet").write_bytes(b"half")
    found = find_left_objects(storage, read_manifest(storage), [(TOPIC, 0), (TOPIC, 1)])
    assert [entry for _, entry in found] == written


def test_an_object_of_a_killed_run_that_was_damaged_is_named(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    entry = write_object(storage, 0, 0, 20, [batch_at(0, 20)])
    (tmp_path / entry.path).write_bytes((tmp_path / entry.path).read_bytes()[:-3])
    with pytest.raises(ArchiveDamaged, match=r"was changed since it was written\. Delete it"):
        find_left_objects(storage, None, [(TOPIC, 0)])


@pytest.mark.parametrize("name", ["notes.txt", f"{30:020d}-{40:020d}-{0:016x}.parquet"])
def test_a_file_that_does_not_belong_there_is_refused(tmp_path: Path, name: str) -> None:
    write_archive(tmp_path, 20)
    (tmp_path / "topics/orders/0" / name).write_bytes(b"x")
    storage = FolderStorage(tmp_path)
    with pytest.raises(ArchiveDamaged, match="none of the archive's objects"):
        find_left_objects(storage, read_manifest(storage), [(TOPIC, 0)])


def test_objects_are_never_overwritten(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    storage.write_new("a/b", b"first")
    with pytest.raises(Unwritable, match="never overwritten"):
        storage.write_new("a/b", b"second")
    assert storage.read("a/b") == b"first"
    (tmp_path / "a/.tmp-c").write_bytes(b"of a killed run")
    storage.write_new("a/c", b"whole")
    assert storage.list_names("a") == ["b", "c"]


def test_a_folder_that_takes_no_files_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unwritable, match="run it again"):
        FolderStorage(tmp_path / "file").write_new("x/y", b"")


def test_a_full_disk_is_said_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unwritable, match="No space left on device"):
        FolderStorage(tmp_path).write_new("x/y", b"content")
    assert list((tmp_path / "x").iterdir()) == []


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with FolderStorage(tmp_path).lock():
        code = "import sys; from pathlib import Path; from watershed.spark.archive.storage import FolderStorage\n"
        code += "with FolderStorage(Path(sys.argv[1])).lock(): pass"
        other = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "another run writes" in other.stderr
    with FolderStorage(tmp_path).lock():
        pass


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(200) + b"PAR1", bytes(1000)])
def test_foreign_bytes_are_no_object(content: bytes) -> None:
    with pytest.raises(ArchiveDamaged, match="is no object of an archive"):
        decode_object(content, "x")
