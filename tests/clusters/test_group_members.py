"""Which type a group is of is asked type by type; coordinators move while they are asked."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from watershed.clusters import group_members
from watershed.clusters.errors import RequestRefused
from watershed.clusters.group_members import (
    DESCRIBE_CONSUMER,
    DESCRIBE_GROUPS,
    DESCRIBE_SHARE,
    DESCRIBE_STREAMS,
    describe_group,
)
from watershed.clusters.wire import error_codes

UNKNOWN, UNSUPPORTED, FORBIDDEN = 69, 35, 30
_DEAD = SimpleNamespace(error_code=error_codes.NONE, group_state="Dead", members=())


class Coordinator:
    """`answers`: by request, what it says of any group, one after the other; the last one for ever."""

    def __init__(self, answers: dict[int, list[Any]]) -> None:
        self.answers = answers
        self.forgotten = 0

    def coordinator(self, _group: str) -> Any:
        return self

    def forget(self, _group: str) -> None:
        self.forgotten += 1

    def knows(self, key: int, version: int) -> bool:
        return key in self.answers and version <= 1

    def ask(self, key: int, **_values: Any) -> Any:
        row = self.answers[key]
        return SimpleNamespace(groups=(row.pop(0) if len(row) > 1 else row[0],))

    def check(self, code: int, doing: str) -> None:
        if code:
            raise RequestRefused(f"{code} while {doing}")


def failed(code: int) -> Any:
    return SimpleNamespace(error_code=code, group_state="", members=())


def classic(*members: Any) -> Any:
    return SimpleNamespace(
        error_code=error_codes.NONE,
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=members,
    )


def member(metadata: bytes, instance: str | None = None) -> Any:
    return SimpleNamespace(
        client_id="app", client_host="/10.0.0.1", group_instance_id=instance, member_metadata=metadata
    )


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1)


def test_a_classic_group_with_what_its_members_read() -> None:
    found = describe_group(
        Coordinator({DESCRIBE_GROUPS: [classic(member(subscription("orders", "a")), member(b"", "b-1"))]}), "g"
    )  # type: ignore[arg-type]
    assert (found.type, found.state, found.assignor, found.static) == ("classic", "Stable", "range", ("b-1",))
    assert [each.topics for each in found.members] == [{"orders", "a"}, set()]
    assert str(found.members[1]) == "app at 10.0.0.1 (group.instance.id b-1)"


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (b"\0\1", set()),
        (subscription("orders")[:10], set()),
        (subscription("a", "orders")[:12], {"a"}),
        (struct.pack(">hih", 1, 2**31 - 1, -2) * 3, set()),
        (struct.pack(">hi", 1, 2**31 - 1) + b"\0\0" * 10, {""}),
        (struct.pack(">hi", 1, -1), set()),
    ],
)
def test_a_subscription_that_ends_early_is_told(metadata: bytes, topics: set[str]) -> None:
    """A member's metadata are bytes of the client: no broker checks them."""
    found = describe_group(Coordinator({DESCRIBE_GROUPS: [classic(member(metadata))]}), "g")  # type: ignore[arg-type]
    [one] = found.members
    assert (one.topics, one.has_odd_subscription) == (topics, True)


def test_a_name_that_is_no_text_is_kept_as_far_as_it_is_one() -> None:
    metadata = struct.pack(">hih", 1, 1, 2) + b"a\xff"
    [one] = describe_group(Coordinator({DESCRIBE_GROUPS: [classic(member(metadata))]}), "g").members  # type: ignore[arg-type]
    assert (one.topics, one.has_odd_subscription) == ({"a\ufffd"}, False)


def test_the_type_that_knows_the_group() -> None:
    share = SimpleNamespace(error_code=error_codes.NONE, group_state="Empty", assignor_name="simple", members=())
    answers = {DESCRIBE_GROUPS: [_DEAD], DESCRIBE_CONSUMER: [failed(UNKNOWN)], DESCRIBE_SHARE: [share]}
    assert describe_group(Coordinator(answers), "g").type == "share"  # type: ignore[arg-type]


@pytest.mark.parametrize("streams", [[failed(UNSUPPORTED)], None])
def test_a_group_that_no_type_knows_on_brokers_of_any_age(streams: Any) -> None:
    answers = {DESCRIBE_GROUPS: [_DEAD]} | ({DESCRIBE_STREAMS: streams} if streams else {})
    found = describe_group(Coordinator(answers), "g")  # type: ignore[arg-type]
    assert (found.type, found.state, found.members) == ("unknown", "Dead", ())


def test_a_coordinator_that_moves_is_looked_for_again() -> None:
    at = Coordinator(
        {DESCRIBE_GROUPS: [failed(error_codes.NOT_COORDINATOR), failed(error_codes.NOT_COORDINATOR), classic()]}
    )
    assert describe_group(at, "g").type == "classic"  # type: ignore[arg-type]
    assert at.forgotten == 2


def test_neither_a_refusal_nor_a_coordinator_that_stays_away_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_members, "COORDINATOR_WAIT_S", 0.0)
    for code in (FORBIDDEN, error_codes.COORDINATOR_NOT_AVAILABLE):
        with pytest.raises(RequestRefused, match="describing group g"):
            describe_group(Coordinator({DESCRIBE_GROUPS: [failed(code)]}), "g")  # type: ignore[arg-type]
