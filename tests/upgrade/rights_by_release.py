"""Gives rights with the code of v0.1.0, which PYTHONPATH names, and writes them down as it does.

stdin: JSON, `stored`: what `watershed.flows` holds, by key, and `given`: rights. For each of these, all records of flow
`f` are read, and written with that right as well. stdout: JSON, what the topic holds then.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Self

from watershed.clusters import synced_access_records as records
from watershed.clusters.settings import ConnectionSettings
from watershed.topology.inventory import InventoryAcl

TARGET = ConnectionSettings("b", ("b:9092",))


def give(stored: dict[str, Any], acl: InventoryAcl) -> None:
    class Writer:
        def __init__(self, *_: Any) -> None: ...
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...
        def put(self, _topic: str, key: str, value: Any, _partition: int) -> None:
            stored.pop(key, None)
            if value is not None:
                stored[key] = value

    replaced: Any = records
    replaced.ControlWriter = Writer
    replaced.read_latest_records = lambda _target, _topic, parse, wanted: {
        key: parse(value, key) for key, value in stored.items() if wanted(key)
    }
    before: Any = records.read_synced_access(TARGET, "f").acls
    replaced.write_synced_acls(TARGET, "f", before, [*before, records.SyncedAcl(acl, (acl,), 1_750_000_000_000)])


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    for each in asked["given"]:
        give(asked["stored"], InventoryAcl(**each))
    print(json.dumps(asked["stored"]))
