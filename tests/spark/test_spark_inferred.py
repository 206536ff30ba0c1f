"""Copies that nobody kept a ledger of: what is told by content alone, with logs in memory."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.spark.logs import Log, a_log, packed, records_of
from tests.spark.memory import CLUSTER, Stored
from tests.spark.mutations import COUNT, LOST, MUTATIONS, Mutation
from tests.spark.test_mutations_in_memory import found, named
from watershed.clusters.cluster_protocol import LogRange, TopicDescription
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.spark.foreign.inferred_alignment import (
    OffsetHint,
    SamplingSizes,
    build_local_sampler,
    choose_window_start,
    observe_foreign_copy,
)
from watershed.spark.judging.flow_observation import FlowFacts, TopicPair
from watershed.spark.judging.proof import ComparisonOutcome, compare_and_judge
from watershed.spark.judging.proof_inputs import ProofPartition
from watershed.spark.judging.proof_window import fix_window
from watershed.topology.plan import Plan, PlanFlow, seal_plan
from watershed.topology.selectors import Selector, TopicSelection

PLAN = seal_plan(Plan("memory", tuple(CLUSTER.values()), ()))
FLOW = PlanFlow("onprem-to-cloud", "onprem", "cloud", TopicSelection((Selector("literal", "t"),)))
SMALL = SamplingSizes(samples=64, close=64)  # one record in three of 200


class Ends:
    """Stands in for `Admin`: where a log begins and ends."""

    def __init__(self, start: int, end: int) -> None:
        self.range = LogRange(start, end)

    def offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, LogRange]:
        return dict.fromkeys(partitions, self.range)


def proof_of(
    source: Log,
    target: Log,
    *,
    starts: tuple[int, int] = (0, 0),
    at: tuple[Sequence[int] | None, Sequence[int] | None] = (None, None),
    chunk: int = 40,
    **options: Any,
) -> tuple[ComparisonOutcome, FlowFacts]:
    """starts: where the logs begin now. at: base offsets of the batches."""
    stored, ends, topics = Stored(), [], []
    for side, (alias, log) in enumerate((("onprem", source), ("cloud", target))):
        ends.append(stored.put((alias, "t", 0), log, at[side]))
        stored.starts[alias, "t", 0] = starts[side]
        topics.append(TopicDescription("t", uuid.UUID(int=side + 1), 1, 1))
    admins: list[Any] = [Ends(start, end) for start, end in zip(starts, ends, strict=True)]
    facts = FlowFacts(FLOW, *admins, ConnectionSettings("cloud", ("127.0.0.1:1",)))
    facts.pairs.append(TopicPair(topics[0], topics[1], False, True))
    with stored.in_place_of_clusters() as readers:
        [seen] = observe_foreign_copy(facts, build_local_sampler(PLAN), **options)
        window = fix_window(seen, start=choose_window_start(seen))
        subject = ProofPartition(window, seen.map, ("onprem", "cloud"), chunk=chunk)
        return compare_and_judge([subject], readers), facts


NEAR = [each for each in MUTATIONS if each.name != "another log"]


@pytest.mark.parametrize("sizes", [SamplingSizes(), SMALL], ids=["whole", "sampled"])
@pytest.mark.parametrize("mutation", NEAR, ids=lambda mutation: mutation.name)
def test_a_mutation_is_found_without_a_ledger(mutation: Mutation, sizes: SamplingSizes) -> None:
    source, other = packed(a_log(1, COUNT)), packed(a_log(2, COUNT))
    target = packed(records_of(mutation.apply(source, other)), (17, 3), "gzip")
    proof, facts = proof_of(source, target, earliest=True, sizes=sizes, chunk=1_000)
    counts = proof.judgement.total
    assert found(counts) == mutation.found, facts.notes
    assert counts.proven == COUNT - sum(
        mutation.found.get(k, 0) for k in ("missing", "altered", "reordered", "pending")
    )
    assert named(proof) == set(mutation.components)
    assert proof.judgement.exact


@pytest.mark.parametrize("sizes", [SamplingSizes(), SMALL], ids=["whole", "sampled"])
def test_what_stands_before_the_copy_is_told_apart(sizes: SamplingSizes) -> None:
    source = packed(a_log(1, COUNT))
    target = packed(records_of(source)[60:])
    proof, facts = proof_of(source, target, sizes=sizes)
    assert (proof.judgement.verdict, proof.judgement.total.proven) == ("proven", COUNT - 60)
    [note] = facts.notes
    assert note.startswith(
        "t-0: source offsets 0 to 59 stand before the copy begins (source offset 60 at target offset 0)"
    )
    assert "--from-start" in note
    asked, _ = proof_of(source, target, earliest=True, sizes=sizes)
    assert found(asked.judgement.total) == {"missing": 60}


@pytest.mark.parametrize("sizes", [SamplingSizes(), SMALL], ids=["whole", "sampled"])
def test_what_the_source_no_longer_has_is_told_apart(sizes: SamplingSizes) -> None:
    source = packed(a_log(1, COUNT))
    proof, facts = proof_of(source, packed(records_of(source)), starts=(80, 0), sizes=sizes)
    assert (proof.judgement.verdict, proof.judgement.total.proven) == ("proven", COUNT - 80)
    assert facts.notes == ["t-0: target offsets 0 to 79 are older than all that the source still has"]


@pytest.mark.parametrize("sizes", [SamplingSizes(), SMALL], ids=["whole", "sampled"])
def test_a_copier_that_began_again_repeats(sizes: SamplingSizes) -> None:
    records = a_log(1, COUNT)
    again = packed([*records[:150], *records[120:]])
    proof, _ = proof_of(packed(records), again, sizes=sizes)
    assert found(proof.judgement.total) == {"duplicates": 30}
    whole = packed([*records, *records])
    proof, _ = proof_of(packed(records), whole, sizes=sizes)
    assert found(proof.judgement.total) == {"duplicates": COUNT}


@pytest.mark.parametrize("sizes", [SamplingSizes(), SMALL], ids=["whole", "sampled"])
def test_gaps_on_both_sides_are_no_loss(sizes: SamplingSizes) -> None:
    """Markers and compaction take offsets: a batch at every 20th here, at every 31st there."""
    log = packed(a_log(1, COUNT), (10,))
    proof, _ = proof_of(log, log, at=(range(5, 500, 20), range(0, 900, 31)), sizes=sizes)
    assert (proof.judgement.verdict, proof.judgement.total.proven) == ("proven", COUNT)
    lagging, _ = proof_of(log, log[:12], at=(range(5, 500, 20), range(0, 900, 31)), sizes=sizes)
    assert found(lagging.judgement.total) == {"pending": 80}


def test_contents_that_all_repeat_are_paired_by_their_number() -> None:
    same = [replace(record, key=b"k", value=b"v", timestamp=7, headers=()) for record in a_log(1, COUNT)]
    proof, _ = proof_of(packed(same), packed(same, (9,)))
    assert (proof.judgement.verdict, proof.judgement.total.proven) == ("proven", COUNT)
    proof, _ = proof_of(packed(same), packed(same[:-20], (9,)), earliest=True)
    assert found(proof.judgement.total) == {"pending": 20}


def test_one_distance_is_tried_before_all_is_read() -> None:
    source = packed(a_log(1, 2_000))
    hints = {("t", 0): [OffsetHint(1_234, 34), OffsetHint(500, 300)]}
    target = packed(a_log(1, 2_000)[300:])
    for told, distance, whence in (
        (hints, 200, "one"),
        ({("t", 0): [OffsetHint(400, 100)]}, 300, "MirrorMaker 2's offset syncs"),
    ):
        proof, facts = proof_of(source, target, sizes=SamplingSizes(256, 256), hints=lambda told=told: told)
        assert (proof.judgement.verdict, proof.judgement.total.proven) == ("proven", 1_700)
        [[how]] = facts.alignments.values()
        assert how.startswith(whence if distance == 300 else "content: cut at"), how
    proof, facts = proof_of(source, source, sizes=SamplingSizes(256, 256))
    assert proof.judgement.total.proven == 2_000
    assert facts.alignments == {"t": ["equal offsets: the same records at 12 places, 0 offsets apart"]}


def test_a_guess_that_is_nearly_true_misses_nothing() -> None:
    """One record is lost and one comes twice between the places that were tried."""
    records = a_log(1, 2_000)
    target = [*records[:1_001], *records[1_002:1_040], records[1_039], *records[1_040:]]
    proof, facts = proof_of(packed(records), packed(target), sizes=SamplingSizes(256, 256))
    assert found(proof.judgement.total) == {"missing": 1, "duplicates": 1}
    assert facts.alignments["t"][0].startswith("equal offsets")


def test_strangers_are_foreign_and_the_naming_is_asked_about() -> None:
    proof, facts = proof_of(packed(a_log(1, 50)), packed(a_log(2, 50)))
    assert found(proof.judgement.total) == {"pending": 50, "foreign": 50}
    assert "is it a copy of this topic" in facts.notes[0]


def test_nothing_anywhere_is_proven_and_nothing_copied_is_pending() -> None:
    proof, _ = proof_of((), ())
    assert proof.judgement.verdict == "proven"
    proof, _ = proof_of(packed(a_log(1, 50)), ())
    assert found(proof.judgement.total) == {"pending": 50}


@pytest.mark.parametrize("mutation", NEAR, ids=lambda mutation: mutation.name)
def test_cuts_close_to_a_difference_hide_none_of_it(mutation: Mutation) -> None:
    """What moved over a cut is named on both sides of it; there is never less than there is."""
    source, other = packed(a_log(1, COUNT)), packed(a_log(2, COUNT))
    proof, _ = proof_of(source, mutation.apply(source, other), earliest=True, chunk=20)
    counts = found(proof.judgement.total)
    assert bool(counts) == bool(mutation.found)
    assert sum(counts.values()) >= sum(mutation.found.values())


LOST_WITHOUT_HEAD = [each for each in LOST if each.name not in ("first lost", "every tenth lost")]


@pytest.mark.parametrize("mutation", LOST_WITHOUT_HEAD, ids=lambda mutation: mutation.name)
def test_losses_are_found_wherever_the_copy_begins(mutation: Mutation) -> None:
    source, other = packed(a_log(1, COUNT)), packed(a_log(2, COUNT))
    proof, _ = proof_of(source, mutation.apply(source, other))
    assert found(proof.judgement.total) == mutation.found
