"""Group translation against a log that is simply copied: exact both ways, at every offset, over every gap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.offsets import decode_offsets, encode_offsets, find_offset_changes
from watershed.replicator.ledger.offset_map import OffsetMap, OffsetRun
from watershed.replicator.ledger.offset_translation import CopiedPartition, translate_group, translate_group_back

HERE, THERE = TopicPartition("orders", 0), TopicPartition("dc.orders", 0)
LOGS = st.lists(st.booleans(), max_size=30)  # True: a record, False: a marker


def copied(log: list[bool], upto: int) -> tuple[CopiedPartition, list[int]]:
    """The copy of the first `upto` offsets, and which source offset each target offset holds."""
    runs, held = [OffsetRun(0, 0)], []
    for offset, record in enumerate(log[:upto]):
        if record:
            held.append(offset)
        else:
            runs.append(OffsetRun(len(held), offset + 1))
    return CopiedPartition(OffsetMap(tuple(runs)), len(held)), held


def rename(topic: str) -> str:
    return f"dc.{topic}"


@given(LOGS, st.data())
def test_a_translated_group_goes_on_with_the_same_record(log: list[bool], data: st.DataObject) -> None:
    upto = data.draw(st.integers(0, len(log)))
    committed = data.draw(st.integers(0, len(log)))
    part, held = copied(log, upto)
    found = translate_group({HERE: committed}, [HERE], {HERE: part}, rename, {HERE: 0}, {HERE: len(log)})
    if committed > part.position:
        assert [str(ahead.place) for ahead in found.ahead] == ["orders-0"]
        assert found.offsets == {}
        return
    next_record = next((offset for offset in held if offset >= committed), None)
    at = found.offsets[THERE]
    assert (held[at] if at < len(held) else None) == next_record


@given(LOGS, st.data())
def test_a_returned_group_reads_exactly_what_it_has_not_read(log: list[bool], data: st.DataObject) -> None:
    part, held = copied(log, len(log))
    committed = data.draw(st.integers(0, len(log)))
    given_there = translate_group({HERE: committed}, [HERE], {HERE: part}, rename, {HERE: 0}, {HERE: len(log)}).offsets
    read_on = data.draw(st.integers(given_there[THERE], len(held)))
    back = translate_group_back({THERE: read_on}, given_there, {HERE: committed}, {HERE: part}, rename)
    left = [offset for offset, record in enumerate(log) if record and offset >= back[HERE]]
    assert left == held[read_on:]
    if read_on == given_there[THERE]:
        assert back == {HERE: committed}


def test_partitions_without_a_commit_follow_the_declared_policy_only() -> None:
    part, _ = copied([True] * 5, 5)
    for policy, at in (("earliest", 0), ("latest", 5)):
        found = translate_group({}, [HERE], {HERE: part}, rename, {HERE: 0}, {HERE: 5}, policy)
        assert found.offsets == {THERE: at}
    refused = translate_group({}, [HERE], {HERE: part}, rename, {HERE: 0}, {HERE: 5})
    assert (refused.offsets, refused.uncommitted) == ({}, (HERE,))


def test_an_empty_partition_needs_no_policy() -> None:
    assert translate_group({}, [HERE], {}, rename, {HERE: 0}, {HERE: 0}).offsets == {THERE: 0}


def test_json_and_growth() -> None:
    offsets = {TopicPartition("b", 1): 5, TopicPartition("a", 10): 7}
    assert encode_offsets(offsets) == {"a": {"10": 7}, "b": {"1": 5}}
    assert decode_offsets(encode_offsets(offsets)) == offsets
    assert find_offset_changes(offsets, {**offsets, TopicPartition("b", 1): 9}) == {TopicPartition("b", 1): 4}
