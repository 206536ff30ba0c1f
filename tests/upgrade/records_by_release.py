"""Reads control records with the code that PYTHONPATH names, which may be of v0.1.0.

stdin: JSON, name → [key, value], where a name begins with the class of the record. stdout: JSON, name → why it cannot
be read, or an empty text. A record that is read is written again, and must say the same, as far as the release knows.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.clusters.test_control_record_versions import KINDS


def find_fault(kind: str, key: str, value: dict[str, Any]) -> str:
    if kind not in KINDS:
        return ""  # keys of other kinds are passed over, or named in the log: test_new_kinds_are_stated
    try:
        again = KINDS[kind].from_json(value, key).to_json()
    except ValueError as error:
        return str(error)
    lost = {name for name, each in again.items() if value.get(name, each) != each}
    return f"{', '.join(sorted(lost))} came out otherwise" if lost else ""


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(json.dumps({name: find_fault(name.partition(":")[0], *each) for name, each in asked.items()}))
