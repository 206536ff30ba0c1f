"""Which files of a run stay together: a process takes one group after the other (`--dist loadfile`, decision 0070)."""

from __future__ import annotations

import zlib

from xdist.scheduler import LoadFileScheduling

SESSIONS = "tests/spark/sessions/"
# Files that share brokers: no other process starts such brokers, and no two files use them at the same time.
PAIRS = {
    "faulty pair": tuple(
        f"tests/replicator/brokers/test_fault_{name}.py"
        for name in ("budgets", "disks", "network", "oddities", "restarts")
    ),
    "secured_cluster": tuple(
        f"tests/clusters/brokers/test_{name}.py"
        for name in (
            *("connection_refused", "connection_rotation", "connection_ways", "connection_worker"),
            *("key_stores_real", "token_providers_real"),
        )
    ),
    "guarded pair": (
        *(f"tests/cutover/brokers/test_real_{name}.py" for name in ("drill", "fences", "protection")),
        *(
            f"tests/replicator/brokers/test_real_{name}.py"
            for name in ("metadata", "probe_rights", "revoked_access", "rights")
        ),
        "tests/clusters/brokers/test_client_inventory_real.py",
        "tests/spark/brokers/test_archive_rights.py",
    ),
}


def name_group(file: str) -> str:
    """A file is a group by itself. Those that use the session of `tests/spark` are two groups: each process that has
    one of them starts a session, with Python workers of its own. Those that share a pair are one."""
    if file.startswith(SESSIONS):
        return f"{SESSIONS} {zlib.crc32(file.encode()) % 2}"
    return next((pair for pair, files in PAIRS.items() if file in files), file)


class GroupScheduling(LoadFileScheduling):
    """As pytest-xdist does it, with these groups in place of files."""

    def _split_scope(self, nodeid: str) -> str:
        return name_group(super()._split_scope(nodeid))
