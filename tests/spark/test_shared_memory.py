"""Bytes that pass between processes without a name, and are gone with their owner."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pyarrow as pa
import pytest

from watershed.replicator.batch.record_batch import decode_batch, decode_batches
from watershed.replicator.batch.records import RawRecord, build_raw_batch
from watershed.spark.transform.changed_rows import ChangeOrder, PackedRow, list_packed, pack_rows
from watershed.spark.transform.record_arrays import SPARE
from watershed.spark.transform.record_rows import RowNeeds, SourcePart, open_parts
from watershed.spark.transform.shared_memory import (
    MemoryFile,
    MemoryRegion,
    RegionWriter,
    SharedMemory,
    can_share_memory,
    read_assignment,
    write_answer,
)
from watershed.topology.record_transform import RecordTransform

pytestmark = pytest.mark.skipif(not can_share_memory(), reason="this system has no memory files")


def test_what_one_process_writes_another_one_reads() -> None:
    file = MemoryFile()
    file.append([b"before"])
    region = file.append([b"ab", memoryview(b"cde"), b""])
    assert region == MemoryRegion(file.path, 6, 5)
    code = f"import os; print(os.pread(os.open({region.path!r}, os.O_RDONLY), 5, 6))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == repr(b"abcde")
    assert region.read() == b"abcde"
    file.close()


def test_more_pieces_than_one_call_takes_are_all_there() -> None:
    file = MemoryFile()
    pieces = [bytes([number % 256]) * 3 for number in range(2_000)]
    assert file.append(pieces).read() == b"".join(pieces)
    file.close()


def test_memory_is_used_again_after_it_was_cleared() -> None:
    file = MemoryFile()
    file.append([b"x" * 100])
    file.clear()
    assert file.append([b"y"]) == MemoryRegion(file.path, 0, 1)
    assert os.stat(file.path).st_size == 100
    file.close()


def test_nothing_else_is_read_when_the_owner_is_gone() -> None:
    file = MemoryFile()
    region = file.append([b"abc"])
    with pytest.raises(OSError, match="has 3 bytes at 0, not 5"):
        MemoryRegion(region.path, 0, 5).read()
    file.close()
    with pytest.raises(OSError, match="No such file"):
        region.read()


def test_a_region_is_looked_at_where_it_lies() -> None:
    file = MemoryFile()
    file.append([b"before"])
    region = file.append([b"abc"])
    seen = region.map()
    assert seen == b"abc"
    file.append([b"x" * (1 << 20)])  # the file grows
    assert [region.map(), file.append([b"behind"]).map()] == [b"abc", b"behind"]
    file.clear()
    file.append([b"BEFOREABC"])
    assert [seen, region.map()] == [b"ABC"] * 2
    with pytest.raises(OSError, match="has 6 bytes at 1048585, not 7"):
        MemoryRegion(region.path, (1 << 20) + 9, 7).map()
    file.close()
    assert seen == b"ABC"
    with pytest.raises(OSError, match="No such file"):
        region.map()


def test_a_path_that_is_used_again_is_another_file() -> None:
    one, two = MemoryFile(), MemoryFile()
    before = one.append([b"one"])
    assert before.map() == b"one"
    one.close()
    region = two.append([b"two"])
    assert region.path == before.path
    assert region.map() == b"two"
    two.close()


def test_a_late_task_finds_zeros_in_memory_that_was_given_back() -> None:
    """To look at pages that a file does not have any more would end its process."""
    memory = SharedMemory()
    region = memory.input.append([b"abc" * 10_000])
    seen = region.map()
    memory.retire()
    assert os.stat(region.path).st_blocks == 0
    assert {*seen} == {0}
    assert {*region.map()} == {0}
    memory.close()


def test_a_part_in_memory_is_opened_and_packed_like_one_that_travels() -> None:
    records = [RawRecord(at, 1_700_000_000_000, b"\x01\x02v\x00") for at in range(100, 140)]
    batch = build_raw_batch(records, 0, 140)
    file, output = MemoryFile(), MemoryFile()
    transform = RecordTransform(changes=(("headers.origin", "'prod'"),))
    seen = []
    for batches, path in ((bytes(batch.data), ""), (file.append([batch.data, SPARE]), output.path)):
        part = SourcePart(7, "orders", 3, 100, 140, batches, (), 400, path)
        seen.append(_pack(part, transform))
    travelled, shared = ([row for row in rows if row.spans is not None] for rows in seen)
    assert [len(rows) for rows in seen] == [len(travelled) + 1] * 2  # behind them stands that the part was answered
    assert len(travelled) > 1  # several batches
    assert [row.data for row in shared] == [b""] * len(travelled)
    found = [MemoryRegion(output.path, row.at, row.size).read() for row in shared]
    assert found == [row.data for row in travelled]
    assert [row.spans for row in shared] == [row.spans for row in travelled]
    assert sum(each.records for data in found for each in decode_batches(memoryview(data))) == 40
    assert decode_batch(memoryview(found[0]), 0, len(found[0])).records > 1
    file.close()
    output.close()


def _pack(part: SourcePart, transform: RecordTransform) -> list[PackedRow]:
    rows = pa.RecordBatch.from_pydict({"part": pa.array([pickle.dumps(part)], pa.binary())})
    opened = pa.Table.from_batches(open_parts(RowNeeds.of(transform), [rows]))
    n = opened.num_rows
    decided = opened.select(["_part", "_source", "_left_out", "_problem", "offset"]).append_column(
        "_keep", pa.array([True] * n)
    )
    decided = decided.append_column("_change_0", pa.array([b"prod"] * n, pa.binary())).combine_chunks()
    return list_packed(pa.Table.from_batches(pack_rows(ChangeOrder.of(transform), decided.to_batches())))


def test_memory_of_a_job_that_failed_is_used_by_no_other_one() -> None:
    """A task of it may still write."""
    now = [0.0]
    memory = SharedMemory(lambda: now[0])
    memory.begin()
    before = memory.output.path
    late = RegionWriter(before, 0)
    late.append([b"in time"])
    memory.retire()
    memory.begin()
    RegionWriter(memory.output.path, 0).append([b"another job"])
    late.append([b"late"])
    assert memory.output.path != before
    assert MemoryRegion(memory.output.path, 0, 11).read() == b"another job"
    now[0] = 61.0
    memory.begin()
    with pytest.raises(OSError, match="No such file"):
        late.append([b"much too late"])
    memory.close()


def test_memory_is_exchanged_where_the_system_cannot_give_its_pages_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """gVisor answers MADV_REMOVE with ENOSYS. The next job must not write where tasks of the failed one do."""

    def refuse(_file: MemoryFile) -> None:
        raise OSError(38, "Function not implemented")

    for name in ("shrink", "blank"):
        monkeypatch.setattr(MemoryFile, name, refuse)
    now = [0.0]
    memory = SharedMemory(lambda: now[0])
    before = [memory.assignments.path, memory.input.path, memory.output.path]
    memory.retire()
    after = [memory.assignments.path, memory.input.path, memory.output.path]
    assert not {*before} & {*after}
    assert [os.readlink(path) for path in before] == ["/dev/null"] * 3, "taken, and without pages"
    now[0] = 61.0
    memory.begin()
    assert not any(map(os.path.exists, before))
    memory.close()


def test_jobs_that_follow_one_another_use_the_same_memory() -> None:
    memory = SharedMemory()
    memory.begin()
    paths = [memory.input.path, memory.output.path, memory.assignments.path]
    memory.input.append([b"some"])
    memory.begin()
    assert [memory.input.path, memory.output.path, memory.assignments.path] == paths
    assert memory.input.append([b"more"]).at == 0
    memory.close()


def test_tasks_write_side_by_side() -> None:
    output = MemoryFile()
    writers = [RegionWriter(output.path, task) for task in (0, 1, 300, 1 << 20)]
    places = [[writer.append([b"%d %d" % (writer.area, at)]) for writer in writers] for at in (0, 1)]
    for at, row in enumerate(places):
        for writer, place in zip(writers, row, strict=True):
            told = b"%d %d" % (writer.area, at)
            assert MemoryRegion(output.path, place, len(told)).read() == told
    assert os.stat(output.path).st_blocks * 512 < 1 << 20
    output.close()


def test_a_writer_appends() -> None:
    output = MemoryFile()
    writer = RegionWriter(output.path, 0)
    assert [writer.append([b"ab", b"c"]), writer.append([memoryview(b"de")])] == [0, 3]
    assert MemoryRegion(output.path, 0, 5).read() == b"abcde"
    output.close()


def test_each_task_answers_once_more_in_each_job() -> None:
    memory = SharedMemory()
    for answers in ([b"a long answer", b"b"], [b"ab", b"c"]):
        for task, answer in enumerate(answers):
            write_answer(memory.output.path, task, answer)
        assert memory.read_answers(2) == answers
    with pytest.raises(OSError, match="has 0 bytes"):
        memory.read_answers(3)
    write_answer(memory.output.path, 3, b"d")
    with pytest.raises(OSError, match="task 2 left no answer"):  # a hole in front of another answer
        memory.read_answers(4)
    memory.close()


def test_each_task_is_told_what_to_do_as_long_as_its_job_counts() -> None:
    memory = SharedMemory()
    for job in (b"a long one", b"two"):
        memory.begin()
        memory.assign([job, b""])
        path = memory.assignments.path
        assert [read_assignment(path, task) for task in (0, 1)] == [job, b""]
    memory.retire()
    with pytest.raises(OSError, match="has 0 bytes"):  # a task of the failed job that begins now
        read_assignment(path, 0)
    memory.close()
