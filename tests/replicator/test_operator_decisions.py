"""Orders: obeyed once when they answer what is there, refused and said otherwise."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from tests.replicator.test_resume import NOW, OTHER, SEEN, SOURCE, TARGET, known, tail
from watershed.clusters.control_topics import JOURNAL_TOPIC
from watershed.clusters.errors import ProtocolError
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.ledger.offset_map import OffsetMap, OffsetRun, build_offset_map
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.recovery.operator_decisions import (
    OperatorDecision,
    apply_decision,
    build_decision_key,
    build_policy_decision,
    submit_decision,
)
from watershed.replicator.recovery.producer_epochs import MAX_PRODUCER_EPOCH
from watershed.replicator.recovery.recovery_point import LogInspection, RecoveryPoint, find_recovery_point
from watershed.replicator.recovery.takeover import _Takeover
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

EXPIRED = LogInspection(**SEEN | {"source_start": 150, "settled": True})
ONPREM = ConnectionSettings("onprem", ("127.0.0.1:1",))  # nobody listens there
GAP = OperatorDecision(
    "accept-gap", "f", "orders", 0, "source_expired", 7, "ann", lost=OffsetSpan(100, 150), id="one", at_ms=NOW
)
RENEWED = LogInspection(
    **SEEN | {"target_id": OTHER, "target_end": 0, "target_start": 0, "tail": None, "producer": None, "settled": True}
)
SEED = OperatorDecision("reseed", "f", "orders", 0, "target_gone", 7, "ann", target_id=OTHER, id="two", at_ms=NOW)


def decide(
    order: OperatorDecision,
    seen: LogInspection,
    remembered: LedgerState | None = None,
    start: str = "earliest",
    generation: int = 7,
):
    remembered = known() if remembered is None else remembered
    decided = find_recovery_point(remembered, seen, 7, start)
    return apply_decision(order, decided, remembered, generation, seen, start)


def test_a_gap_that_is_accepted() -> None:
    found = decide(GAP, EXPIRED)
    assert isinstance(found, RecoveryPoint)
    assert (found.position, found.target_end, found.depth) == (150, 100, 1)
    assert found.identity == ProducerIdentity(7, 1, 100)
    assert (found.order, found.since, found.claims) == ("one", 0, True)
    assert "source offsets 100 to 149 were given up" in found.note
    assert found.note.endswith("by ann")


@pytest.mark.parametrize(
    ("order", "seen", "says"),
    [
        (GAP, replace(EXPIRED, source_start=151), "100 to 149, but 100 to 150 are gone"),
        (replace(GAP, generation=6), EXPIRED, "generation 6"),
        (replace(GAP, generation=8), EXPIRED, "generation 8"),
        (replace(GAP, state="source_truncated"), EXPIRED, "answers source_truncated"),
        (GAP, replace(EXPIRED, source_id=OTHER), "answers source_expired"),
        (SEED, replace(RENEWED, target_id=uuid.UUID(int=9)), "there is 00000000-0000-0000-0000-000000000009"),
        (SEED, replace(RENEWED, target_end=5, tail=tail(0, 5, producer=-1)), "still holds offsets 0 to 4"),
    ],
    ids=["more expired", "older", "newer", "another state", "source recreated", "another topic", "not empty"],
)
def test_an_order_that_does_not_fit_is_refused_and_said(
    order: OperatorDecision, seen: LogInspection, says: str
) -> None:
    before = find_recovery_point(known(), seen, 7, "earliest")
    assert isinstance(before, Halt)
    found = decide(order, seen)
    assert isinstance(found, Halt)
    assert found.state == before.state
    assert found.error.startswith(before.error)
    assert f"{order.kind} {order.id} of ann is refused" in found.error
    assert says in found.error


def test_nothing_is_obeyed_while_something_may_be_under_way() -> None:
    assert isinstance(decide(GAP, replace(EXPIRED, settled=False)), Reinspect)
    assert isinstance(decide(SEED, replace(RENEWED, settled=False)), Reinspect)


def test_an_order_is_obeyed_once() -> None:
    found = decide(GAP, EXPIRED)
    assert isinstance(found, RecoveryPoint)
    afterwards = replace(
        known((0, 0), (100, 150)), identity=found.identity, order=found.order, note=found.note
    )  # fmt: skip
    # Expired again before anything was copied: the very same order says nothing about that.
    again = decide(GAP, replace(EXPIRED, source_start=170), afterwards, generation=8)
    assert isinstance(again, Halt)
    assert again.source == OffsetSpan(150, 170)
    assert "refused" not in again.error
    # And while all is well it changes nothing.
    fine = decide(GAP, EXPIRED, afterwards, generation=8)
    assert isinstance(fine, RecoveryPoint)
    assert (fine.position, fine.identity, fine.order, fine.claims) == (150, ProducerIdentity(7, 1, 100), "one", False)


def test_a_partition_that_healed_is_left_alone() -> None:
    assert decide(GAP, replace(EXPIRED, source_start=0)) == find_recovery_point(
        known(), replace(EXPIRED, source_start=0), 7, "earliest"
    )


def test_a_copy_that_begins_again() -> None:
    found = decide(SEED, RENEWED)
    assert isinstance(found, RecoveryPoint)
    assert (found.position, found.target_end, found.since) == (0, 0, 1)
    assert found.identity == ProducerIdentity(7, 1, 0)


def test_an_emptied_partition_begins_behind_what_it_held() -> None:
    emptied = LogInspection(
        **SEEN | {"target_start": 130, "target_end": 130, "tail": None, "source_start": 20, "settled": True}
    )
    found = decide(replace(SEED, target_id=TARGET), emptied)
    assert isinstance(found, RecoveryPoint)
    assert (found.position, found.identity, found.since) == (20, ProducerIdentity(7, 1, 130), 1)


def test_a_copy_that_began_at_the_end_begins_there_again() -> None:
    late = known((0, 480))
    assert decide(SEED, RENEWED, late, "latest").position == 480
    assert decide(SEED, replace(RENEWED, source_start=490), late, "latest").position == 490
    assert decide(SEED, replace(RENEWED, source_id=OTHER), late, "latest").position == 0


def test_nothing_known_nothing_to_obey() -> None:
    decided = find_recovery_point(None, RENEWED, 7, "earliest")
    assert apply_decision(SEED, decided, None, 0, RENEWED, "earliest") == decided


# -- the producer epoch that an order begins ---------------------------------------------------------------------

AFTER = LedgerState(OffsetMap.of([(0, 0), (100, 150)]), ProducerIdentity(7, 1, 100), SOURCE, TARGET, order="one")


def test_before_the_first_batch_of_the_new_epoch() -> None:
    found = find_recovery_point(AFTER, EXPIRED, 7, "earliest")  # the broker still holds the state of epoch 0
    assert isinstance(found, RecoveryPoint)
    assert (found.position, found.depth, found.depth_confirmed) == (150, 1, 5)


def test_batches_of_before_that_land_after_the_order_are_noticed() -> None:
    late = replace(EXPIRED, target_end=110, tail=tail(100, 110), producer=(0, 109, NOW))
    found = find_recovery_point(AFTER, late, 7, "earliest")
    assert isinstance(found, Halt)
    assert (found.state, found.target) == ("duplicated", OffsetSpan(100, 110))


def test_going_on_in_the_new_epoch() -> None:
    later = replace(EXPIRED, target_end=110, tail=tail(100, 110, epoch=1, sequence=0), producer=(1, 9, NOW))
    found = find_recovery_point(AFTER, later, 7, "earliest")
    assert isinstance(found, RecoveryPoint)
    assert (found.position, found.depth) == (160, 5)


def test_a_worker_that_does_not_know_of_the_order_looks_again() -> None:
    assert isinstance(
        find_recovery_point(known(), replace(EXPIRED, source_start=0, producer=(1, 9, NOW)), 7, "earliest"), Reinspect
    )


# -- records -----------------------------------------------------------------------------------------------------


class Writer:
    def __init__(self) -> None:
        self.told: list[tuple[str, str, dict]] = []

    def put(self, topic: str, key: str, value: dict, partition: int | None = None) -> int:
        self.told.append((topic, key, value))
        return 0


def test_the_journal_knows_before_anybody_obeys() -> None:
    writer = Writer()
    submit_decision(writer, GAP, "orders-move")  # type: ignore[arg-type]
    (journal, name, line), (flows, key, value) = writer.told
    assert (journal, flows, key) == (JOURNAL_TOPIC, "watershed.flows", "order|f|orders|0")
    assert name == "order/f/orders/0/one"
    assert (line["record"], line["of"], line["lost"], line["actor"]) == ("order", "orders-move", [100, 150], "ann")
    assert line["hash"].startswith("sha256:")
    assert "topology" not in line  # it is no entry of a migration's chain
    assert OperatorDecision.from_json(value) == GAP


@pytest.mark.parametrize("order", [GAP, SEED], ids=lambda order: order.kind)
def test_an_order_survives_its_record(order: OperatorDecision) -> None:
    assert OperatorDecision.from_json(order.to_json()) == order
    assert order.key == build_decision_key("f", "orders", 0)


@pytest.mark.parametrize("broken", [{"schema": 2}, {"lost": 3}, {"target_id": "x"}], ids=str)
def test_a_record_of_another_kind_is_refused(broken: dict) -> None:
    with pytest.raises(ProtocolError, match="operator decision"):
        OperatorDecision.from_json(GAP.to_json() | broken)


def test_two_workers_give_the_same_order_by_policy() -> None:
    key = PartitionKey("f", "orders", "orders", 0)
    found = Halt("source_expired", "gone", source=OffsetSpan(100, 150))
    first, second, other = (
        build_policy_decision(key, halt, 7, at_ms, "on_gap: continue")
        for halt, at_ms in ((found, NOW), (found, NOW + 5), (replace(found, source=OffsetSpan(100, 151)), NOW))
    )
    assert first.id == second.id
    assert first.id != other.id
    assert "on_gap: continue" in first.note


def test_a_map_that_contradicts_itself_can_be_given_up() -> None:
    """The ledger's runs are wrong: the partition is `duplicated`, and an order to copy it again is heard."""
    broken = replace(known(), map=build_offset_map((OffsetRun(0, 20), OffsetRun(10, 25))))
    flow = PlanFlow("f", "onprem", "cloud", TopicSelection(include=(Selector("literal", "orders"),)))
    record = FlowRecord(flow, "sha256:0", "orders-move", 1, "running", 7)
    key = PartitionKey("f", "orders", "orders", 0)
    emptied = LogInspection(**SEEN | {"target_start": 100, "tail": None, "settled": True})

    def judged(order: OperatorDecision | None = None) -> RecoveryPoint | Halt | Reinspect:
        orders = {} if order is None else {key: order}
        return _Takeover(record, ONPREM, Writer(), orders, "", frozenset(), Ledger({})).decide(key, broken, 7, emptied)  # type: ignore[arg-type]

    found = judged()
    assert isinstance(found, Reinspect)
    assert found.halts_as == "duplicated"
    assert "contradicts itself" in found.reason
    refused = judged(replace(SEED, target_id=OTHER))
    assert isinstance(refused, Halt)
    assert (refused.state, "is refused" in refused.error) == ("duplicated", True)
    obeyed_now = judged(replace(SEED, target_id=TARGET))
    assert isinstance(obeyed_now, RecoveryPoint)
    assert (obeyed_now.position, obeyed_now.since) == (0, 1)


def test_an_order_behind_a_disowned_producer_epoch_begins_one_that_nobody_claimed() -> None:
    """Epoch 1 was begun behind a hole and landed nothing, because a batch of epoch 0 came after all."""
    disowned = replace(known(), needs_epoch=True, last_epoch=1)
    found = decide(GAP, EXPIRED, disowned)
    assert isinstance(found, RecoveryPoint)
    assert (found.identity, found.after, found.since) == (ProducerIdentity(7, 2, 100), 0, 0)
    seeded = decide(SEED, RENEWED, disowned)
    assert isinstance(seeded, RecoveryPoint)
    assert (seeded.identity, seeded.after, seeded.since) == (ProducerIdentity(7, 2, 0), -1, 2)


def test_no_order_begins_a_producer_epoch_that_does_not_exist() -> None:
    found = decide(GAP, EXPIRED, replace(known(), last_epoch=MAX_PRODUCER_EPOCH))
    assert isinstance(found, Halt)
    assert found.state == "unsupported"


def test_a_gap_that_grew_as_far_as_was_allowed() -> None:
    """Retention went on while the worker waited: the offsets that are really lost are noted."""
    order = replace(GAP, through=170)
    found = decide(order, replace(EXPIRED, source_start=170))
    assert isinstance(found, RecoveryPoint)
    assert found.position == 170
    assert "source offsets 100 to 169 were given up" in found.note
    beyond = decide(order, replace(EXPIRED, source_start=171))
    assert isinstance(beyond, Halt)
    assert "no more than 100 to 169, but 100 to 170 are gone" in beyond.error
    assert OperatorDecision.from_json(order.to_json()) == order


def test_what_an_order_really_gave_up_is_journaled() -> None:
    writer = Writer()
    flow = PlanFlow("f", "onprem", "cloud", TopicSelection(include=(Selector("literal", "orders"),)))
    record = FlowRecord(flow, "sha256:0", "orders-move", 1, "running", 7)
    key = PartitionKey("f", "orders", "orders", 0)
    judge = _Takeover(record, ONPREM, writer, {key: replace(GAP, through=170)}, "w1", frozenset(), Ledger({}))  # type: ignore[arg-type]
    assert isinstance(judge.decide(key, known(), 7, replace(EXPIRED, source_start=160)), RecoveryPoint)
    ((topic, name, line),) = writer.told
    assert (topic, name) == ("watershed.flows", "journaled|order/f/orders/0/one/8.w1")
    assert (line["record"], line["lost"], line["obeyed_as"]) == ("order-obeyed", [100, 160], 8)
