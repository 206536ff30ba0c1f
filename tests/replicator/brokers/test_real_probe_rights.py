"""`topology probe` by an account with only the rights that docs/guarantees.md names, and with fewer."""

from __future__ import annotations

import time

import pytest

from tests.replicator.guarded import Guarded, await_rights, grant, guarded, revoke
from watershed.clusters.errors import ClusterError
from watershed.clusters.required_role_acls import RequiredRight
from watershed.replicator.capability_probe import probe_cluster
from watershed.replicator.probe_topic import PROBE_TOPIC_PREFIX, find_left_topics

__all__ = ["guarded"]  # the fixture
pytestmark = [pytest.mark.kafka, pytest.mark.slow]
ON_TOPICS = ("CREATE", "DELETE", "WRITE", "READ", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
NEEDED = [
    *(RequiredRight("cloud", "TOPIC", PROBE_TOPIC_PREFIX, "PREFIXED", each, "docs") for each in ON_TOPICS),
    RequiredRight("cloud", "TRANSACTIONAL_ID", "watershed-probe|", "PREFIXED", "WRITE", "docs"),
]


def test_a_right_that_is_missing_is_held_against_no_cluster(guarded: Guarded) -> None:
    grant(guarded, "probe", tuple(NEEDED))
    await_rights(guarded, "probe", NEEDED)
    account, everybody = guarded.settings("probe")["cloud"], guarded.admin["cloud"]
    found = probe_cluster(account).tried
    assert {name: each.works for name, each in found.items() if not each.works} == {"markers": None}
    [writing] = [each for each in NEEDED if (each.resource, each.operation) == ("TOPIC", "WRITE")]
    revoke(guarded, "probe", writing)
    deadline = time.monotonic() + 180
    while (found := probe_cluster(account).tried)["idempotence"].works:  # ACLs travel by the metadata log
        assert time.monotonic() < deadline, f"{writing} was not taken"
    assert {name: each.told for name, each in found.items() if each.works is False} == {}
    assert {name for name, each in found.items() if each.works} == {"compaction"}
    assert find_left_topics(everybody) == []


def test_an_account_without_rights_is_told_what_was_refused(guarded: Guarded) -> None:
    with pytest.raises(ClusterError, match=r"creating topic watershed\.probe-") as caught:
        probe_cluster(guarded.settings("nobody")["cloud"])
    assert "user nobody" in str(caught.value)
    assert find_left_topics(guarded.admin["cloud"]) == []
