"""What becomes of a group's position: every combination of what both sides may say, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from watershed.clusters.control_topics import encode_control_value
from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition, ListedGroup
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.offset_translation import OffsetNotCopied
from watershed.replicator.sync.group_control_records import GroupResetDecision, SyncedPositions
from watershed.replicator.sync.group_decisions import (
    GroupObservation,
    PositionMark,
    TranslatedPosition,
    decide_positions,
    is_set_by_another,
    pick_worst_sync_state,
)
from watershed.replicator.sync.group_sync import is_group_selected
from watershed.replicator.sync.groups import (
    MAX_REPORTED_PARTITIONS,
    build_group_differences,
    build_group_report,
    shorten_group_report,
    summarize_group_state,
)
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import GroupSync, NameFilter

HERE, THERE = TopicPartition("orders", 0), TopicPartition("a.orders", 0)
FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "orders"),)))
MINE = str(PositionMark("a-to-b", 50, ("A",)))
OTHERS = str(PositionMark("c-to-b", 50, ("C",)))


def sight(at=100, there=None, mark="", state=None, ordered=None, returned=None, came="", **more) -> GroupObservation:
    """A group that committed offset 200 at the source, which is `at` on the target."""
    return GroupObservation(
        flow="a-to-b",
        group="billing",
        target_group="billing",
        here=ListedGroup("billing", "Stable", "classic", "consumer"),
        there=None if state is None else ListedGroup("billing", state, "classic", "consumer"),
        source=CommittedOffsets({HERE: CommittedPosition(200, came)}),
        target=CommittedOffsets({} if there is None else {THERE: CommittedPosition(there, mark)}),
        landings={HERE: at if isinstance(at, TranslatedPosition) else TranslatedPosition(THERE, at)},
        here_id="A",
        there_id="B",
        target_alias="b",
        decided_positions={} if ordered is None else {THERE: ordered},
        returned={} if returned is None else {THERE: returned},
        **more,
    )


def only(given: GroupObservation):
    [move] = decide_positions(given)
    return move


def test_a_group_that_is_new_there_gets_its_position_with_our_mark():
    move = only(sight())
    assert (move.state, move.write) == ("carried", CommittedPosition(100, str(PositionMark("a-to-b", 200, ("A",)))))
    assert (move.rereads, move.skips) == (0, 0)


@pytest.mark.parametrize(
    ("there", "mark", "state", "ordered", "returned"),
    list(product((None, 60, 100, 140), ("", MINE, OTHERS), (None, "Empty", "Stable", "PreparingRebalance"),
                 (None, 60, 140, 7), (None, 60, 140, 7))),
)  # fmt: skip
def test_what_is_written_and_what_never_is(there, mark, state, ordered, returned):
    """Every combination: only into a group that is empty, only over what is ours (or ordered), only forward (or
    ordered)."""
    move = only(sight(100, there, mark, state, ordered, returned))
    ours = there is None or mark == MINE or (mark == "" and returned == there)
    order = there is not None and ordered == there
    alive = state in ("Stable", "PreparingRebalance")
    allowed = there != 100 and not alive and (ours or order) and (there is None or there < 100 or order)
    assert (move.write is not None) == allowed
    if allowed:
        assert move.write == CommittedPosition(100, str(PositionMark("a-to-b", 200, ("A",))))
        assert move.state == "carried"
        assert move.obeys == order
    elif there == 100:
        assert move.state == "equal"
    else:
        assert move.state == "different"
        assert move.why
        assert (move.rereads, move.skips) == (
            (None, None) if there is None else (max(0, 100 - there), max(0, there - 100))
        )


def test_what_came_from_the_target_does_not_go_back_there():
    back = str(PositionMark("b-to-a", 12, ("B",)))
    for there, state in product((None, 60, 140), (None, "Empty", "Stable")):
        move = only(sight(100, there, "", state, came=back))
        assert (move.state, move.write) == ("equal", None)


def test_what_came_from_elsewhere_goes_on_and_says_its_whole_path():
    move = only(sight(came=str(PositionMark("c-to-a", 12, ("C",)))))
    assert move.write is not None
    assert PositionMark.of(move.write.metadata) == PositionMark("a-to-b", 200, ("C", "A"))


def test_a_commit_beyond_the_copy_waits_behind_what_is_copied():
    ahead = OffsetNotCopied(HERE, 200, 150)
    move = only(sight(TranslatedPosition(THERE, 80, ahead, 150), there=60, mark=MINE, state="Empty"))
    assert (move.state, move.translated) == ("waiting", None)
    assert move.write == CommittedPosition(80, str(PositionMark("a-to-b", 150, ("A",))))
    assert move.why == "orders-0 committed 200, copied through 150 (50 to go)"
    still = only(sight(TranslatedPosition(THERE, 80, ahead, 150), there=80, mark=MINE, state="Empty"))
    assert (still.state, still.write) == ("waiting", None)
    nothing = only(sight(TranslatedPosition(THERE, None, ahead)))
    assert (nothing.state, nothing.write) == ("waiting", None)


def test_open_transactions_wait_on_either_side():
    given = sight()
    here = replace(
        given,
        source=CommittedOffsets(unstable=frozenset({HERE})),
        landings={HERE: TranslatedPosition(THERE, None, why="open")},
    )
    assert (only(here).state, only(here).why) == ("waiting", "open")
    there = only(replace(given, target=CommittedOffsets(unstable=frozenset({THERE}))))
    assert (there.state, there.write) == ("waiting", None)


def test_a_share_group_is_never_mixed_with_a_consumer_group():
    given = sight(state="Empty")
    assert given.there is not None
    move = only(replace(given, there=replace(given.there, type="share")))
    assert (move.state, move.write) == ("refused", None)
    assert "share group at b" in move.why


def test_a_group_goes_there_and_back_and_never_to_and_fro():
    """Flow a-to-b carries it over; the application moves to b; b-to-a carries it back; it moves home again. At every
    step only the side where the application was last leads."""
    out = only(sight(100))
    assert out.write is not None
    carried = SyncedPositions("a-to-b", "billing").with_positions({HERE: 200}, {THERE: 100})
    # Now the flow back looks: at b stands a copy.
    assert (
        only(_back(at=200, here=CommittedPosition(100, out.write.metadata), there=CommittedPosition(200))).write is None
    )
    # The application reads at b up to 130, which is 230 at a, where nobody committed since.
    home = only(_back(at=230, here=CommittedPosition(130), there=CommittedPosition(200), returned=carried.source))
    assert (home.state, home.write and home.write.offset) == ("carried", 230)
    # The flow there sees the copy at a, and leaves b alone.
    assert home.write is not None
    assert only(sight(130, 130, "", "Empty", came=home.write.metadata)).write is None
    # The application is home and reads to 260, which is 160 at b: b's own position is what was carried home last.
    back = SyncedPositions("b-to-a", "billing").with_positions({THERE: 130}, {HERE: 230})
    again = only(sight(160, 130, "", "Empty", returned=back.source[THERE]))
    assert (again.state, again.write and again.write.offset) == ("carried", 160)
    # Alive on both sides under one name: neither is touched.
    assert only(sight(170, 150, "", "Empty", returned=back.source[THERE])).state == "different"
    assert (
        only(_back(at=250, here=CommittedPosition(150), there=CommittedPosition(270), returned=carried.source)).state
        == "different"
    )


def _back(at: int, here: CommittedPosition, there: CommittedPosition, returned=None) -> GroupObservation:
    """The same group as the flow b-to-a sees it."""
    given = sight(state="Empty")
    return replace(
        given,
        flow="b-to-a",
        source=CommittedOffsets({THERE: here}),
        target=CommittedOffsets({HERE: there}),
        landings={THERE: TranslatedPosition(HERE, at)},
        here_id="B",
        there_id="A",
        target_alias="a",
        returned=returned or {},
    )


def test_a_group_that_is_refused_as_a_whole_moves_nowhere():
    given = replace(sight(), refusal="an application of Kafka Streams")
    assert decide_positions(given) == []
    assert summarize_group_state(given, []) == ("refused", "an application of Kafka Streams")
    [told] = build_group_differences(given, [])
    assert (told.applied, told.why) == (False, "an application of Kafka Streams")
    connect = replace(given, here=ListedGroup("workers", "Stable", "classic", "connect"))
    assert summarize_group_state(connect, [])[0] == "different"


def test_the_report_tells_every_partition_and_the_worst_of_them():
    other = TopicPartition("orders", 1)
    given = sight(100, 60, MINE, "Empty")
    given = replace(
        given,
        source=CommittedOffsets({HERE: CommittedPosition(200), other: CommittedPosition(9)}),
        landings={
            HERE: TranslatedPosition(THERE, 100),
            other: TranslatedPosition(TopicPartition("a.orders", 1), None, OffsetNotCopied(other, 9, 0)),
        },
    )
    told = build_group_report(FLOW, given, decide_positions(given))
    assert (told.state, told.why) == ("waiting", "orders-1 committed 9, copied through 0 (9 to go)")
    assert [each["at_target"] for each in told.detail["partitions"]] == [60, None]
    shown = build_group_differences(given, decide_positions(given))
    assert [(each.field, each.live, each.wanted, each.applied) for each in shown] == [
        ("a.orders-0", "60", "100", True),
        ("positions", None, None, False),
    ]
    assert pick_worst_sync_state(decide_positions(given)) == "waiting"


@pytest.mark.parametrize(
    ("names", "group", "chosen"),
    [
        (NameFilter(), "billing", True),
        (NameFilter(), "connect-sink", False),
        (NameFilter(), "console-consumer-7", False),
        (NameFilter(), "watershed.orders", False),
        (NameFilter((Selector("literal", "connect-sink"),)), "connect-sink", True),
        (NameFilter((Selector("glob", "*"),), (Selector("glob", "connect-*"),)), "connect-sink", False),
        (NameFilter((Selector("literal", "billing"),)), "audit", False),
    ],
)
def test_groups_of_tools_only_where_they_are_named(names, group, chosen):
    assert is_group_selected(GroupSync("continuous", names), ListedGroup(group, "Empty")) is chosen


@pytest.mark.parametrize("text", ["", "watershed", "watershed 2 a 1 x", "watershed 1 a x y", "my own state 1 2"])
def test_what_applications_write_is_no_mark(text):
    assert PositionMark.of(text) is None


def test_marks_and_records_survive_being_written_down():
    assert PositionMark.of(MINE) == PositionMark("a-to-b", 50, ("A",))
    carried = SyncedPositions("f", "g").with_positions({HERE: 3}, {THERE: 2}).with_positions({HERE: 9}, {THERE: 8})
    assert SyncedPositions.from_json(carried.to_json()) == carried
    assert [carried.ours(THERE, at) for at in (8, 2, 5)] == [True, True, False]
    order = GroupResetDecision("f", "g", {THERE: 7, HERE: None}, "me")
    assert GroupResetDecision.from_json(order.to_json()) == order


@pytest.mark.parametrize(
    ("mark", "came", "theirs"),
    [
        ("", "", True),
        (OTHERS, "", True),
        (MINE, "", False),
        ("", str(PositionMark("b-to-a", 100, ("B",))), False),  # the application reads at the target
    ],
)
def test_a_position_at_the_right_place_is_taken_over_by_an_order_only(mark, came, theirs):
    """As MirrorMaker leaves them: without the order, nobody would follow the group on."""
    asked = sight(100, 100, mark, "Empty", came=came)
    assert (only(asked).state, only(asked).write) == ("equal", None)
    assert is_set_by_another(asked, only(asked)) == theirs
    if theirs:
        move = only(sight(100, 100, mark, "Empty", ordered=100))
        assert (move.state, move.obeys, move.write) == (
            "carried",
            True,
            CommittedPosition(100, str(PositionMark("a-to-b", 200, ("A",)))),
        )
        assert only(sight(100, 100, mark, "Stable", ordered=100)).write is None
    assert only(sight(100, 100, MINE, "Empty", ordered=100)).state == "equal"
    assert not is_set_by_another(sight(100), only(sight(100)))


def test_a_report_of_very_many_partitions_fits_into_one_record():
    told = build_group_report(FLOW, sight(), decide_positions(sight()))
    row = told.detail["partitions"][0]
    rows = [row | {"partition": number, "state": "equal"} for number in range(MAX_REPORTED_PARTITIONS + 5)]
    rows[-1] = rows[-1] | {"state": "waiting"}
    short = shorten_group_report(replace(told, detail={**told.detail, "partitions": rows}))
    assert (len(short.detail["partitions"]), short.detail["more"]) == (MAX_REPORTED_PARTITIONS, 5)
    assert short.detail["partitions"][0]["state"] == "waiting"
    assert len(encode_control_value(short.to_json())) < 1_000_000  # librdkafka's message.max.bytes
    assert shorten_group_report(told) == told
