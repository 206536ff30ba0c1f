"""Values of control topics: every reader of them, the page's view, the journal's chain, the ledger's map.

An input is a value; every reader gets it. Oracle: what a reader understood can be written and is understood alike.
"""

from __future__ import annotations

import json
from contextlib import suppress

from tests.clusters.test_control_values import BAD, GOOD
from tests.fuzz.target import OracleViolated, Target
from watershed.clusters.control_follower import FollowedRecord
from watershed.clusters.control_topics import FLOWS_TOPIC, JOURNAL_TOPIC, STATUS_TOPIC, encode_control_value
from watershed.clusters.control_values import decode_control_value
from watershed.cutover.errors import BrokenChain
from watershed.cutover.journal.hash_chain import GENESIS_HASH, JournalChain, JournalEntry
from watershed.cutover.journal.signing import TRUSTING, UNSIGNED, Signing
from watershed.plugins.page.cluster_snapshots import ControlTopicsView

_TOPOLOGY = "shop"
_SIGNING = Signing((b"a key",))


def target() -> Target:
    entry = JournalEntry(
        _TOPOLOGY, "r1", 0, "run", "intent", "", "ann", "w1", "sha256:0", "orders", 5, {"a": 1}, GENESIS_HASH
    )
    values = [each.to_json() for each in (*GOOD, entry.sealed())]
    keys = {key.encode() for value in values for key in value}
    seeds = [*map(encode_control_value, values), *BAD.values()]
    return Target("records", seeds, _attempt, (ValueError, BrokenChain), sorted(keys), "json")


def _attempt(payload: bytes) -> str:
    _page(payload)
    value = decode_control_value(payload)
    read = [type(good).__name__ for good in GOOD if _is_understood(type(good), value)]
    return f"{read} {_chained(value)}"


def _is_understood(kind: type, value: dict[str, object]) -> bool:
    try:
        found = kind.from_json(value)  # type: ignore[attr-defined]
    except ValueError as error:
        if not str(error).strip():
            raise OracleViolated("a record is refused without a word") from error
        return False
    if kind.from_json(decode_control_value(encode_control_value(found.to_json()))) != found:  # type: ignore[attr-defined]
        raise OracleViolated(f"a {kind.__name__} that was written again is another")
    return True


def _page(payload: bytes) -> None:
    view = ControlTopicsView()
    keys = (
        (FLOWS_TOPIC, "a-to-b"),
        (FLOWS_TOPIC, "order|x"),
        (STATUS_TOPIC, "a-to-b|orders|0"),
        (STATUS_TOPIC, "sync|a-to-b|groups|x"),
    )
    view.take(
        [
            FollowedRecord(topic, at, key, payload)
            for at, (topic, key) in enumerate((*keys, (STATUS_TOPIC, ""), (JOURNAL_TOPIC, "k")))
        ]
    )
    view.take([FollowedRecord(JOURNAL_TOPIC, 9, "k", payload)])
    view.snapshot(1.0)


def _chained(value: dict[str, object]) -> str:
    """What a chain makes of it, as it is and sealed by who has the key. Whatever it is, it may not stop the chain."""
    counting = []
    for signing in (UNSIGNED, _SIGNING, TRUSTING):
        chain = JournalChain(_TOPOLOGY, signing=signing)
        entry = json.loads(json.dumps(value)) | {"topology": _TOPOLOGY}
        lines = [entry]
        with suppress(TypeError, ValueError):  # not even the fields of an entry
            lines.append(JournalEntry(**entry | {"previous": GENESIS_HASH}).sealed(signing).to_json())
        try:
            chain.follow(enumerate(lines))
        except ValueError as error:
            raise OracleViolated("a line stops the chain") from error
        except BrokenChain:
            counting.append("broken")
            continue
        chain.unfinished()
        json.dumps([each.to_json() for each in chain.void])
        counting.append(str(len(chain.entries)))
    return f"chained {counting}"
