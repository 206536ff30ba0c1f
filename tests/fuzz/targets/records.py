"""Values of control topics: every reader of them, the page's view, the journal's chain, the ledger's map.

An input is a value; every reader gets it. Oracle: what a reader understood can be written and is understood alike.
"""

from __future__ import annotations

import json

from clusters.control import FLOWS, JOURNAL, STATUS, encode
from clusters.control_values import decoded, understood
from clusters.following import Seen
from cutover.errors import BrokenChain
from cutover.journal.chain import GENESIS, Chain, Entry
from plugins.watershed_page_reading import View
from tests.clusters.test_control_values import BAD, GOOD
from tests.fuzz.target import OracleViolated, Target

_TOPOLOGY = "shop"


def target() -> Target:
    entry = Entry(_TOPOLOGY, "r1", 0, "run", "intent", "", "ann", "w1", "sha256:0", "orders", 5, {"a": 1}, GENESIS)
    values = [each.to_json() for each in (*GOOD, entry.sealed())]
    keys = {key.encode() for value in values for key in value}
    seeds = [*map(encode, values), *BAD.values()]
    return Target("records", seeds, _attempt, (ValueError, BrokenChain), sorted(keys), "json")


def _attempt(payload: bytes) -> str:
    _page(payload)
    value = decoded(payload)
    read = [type(good).__name__ for good in GOOD if _is_understood(type(good), value)]
    return f"{read} {_chained(value)}"


def _is_understood(kind: type, value: dict[str, object]) -> bool:
    try:
        found = understood(kind.from_json, value)  # type: ignore[attr-defined]
    except ValueError as error:
        if not str(error).strip():
            raise OracleViolated("a record is refused without a word") from error
        return False
    if understood(kind.from_json, decoded(encode(found.to_json()))) != found:  # type: ignore[attr-defined]
        raise OracleViolated(f"a {kind.__name__} that was written again is another")
    return True


def _page(payload: bytes) -> None:
    view = View()
    keys = (FLOWS, "a-to-b"), (FLOWS, "order|x"), (STATUS, "a-to-b|orders|0"), (STATUS, "sync|a-to-b|groups|x")
    view.take([Seen(topic, at, key, payload) for at, (topic, key) in enumerate((*keys, (STATUS, ""), (JOURNAL, "k")))])
    view.take([Seen(JOURNAL, 9, "k", payload)])
    view.snapshot(1.0)


def _chained(value: dict[str, object]) -> str:
    chain = Chain(_TOPOLOGY)
    entry = json.loads(json.dumps(value))
    try:
        chain.follow([(0, entry)])
        if isinstance(entry.get("topology"), str) and set(entry) >= {"hash", "previous"}:
            entry["topology"], entry["previous"] = _TOPOLOGY, GENESIS
            entry["hash"] = Entry(**entry).computed()  # whoever forges one seals it
            chain.follow([(1, entry)])
            chain.unfinished()
    except (BrokenChain, TypeError) as error:
        return type(error).__name__
    return f"chained {len(chain.entries)}"
