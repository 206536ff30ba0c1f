"""Archives and restores by accounts with only the rights that docs/archive.md names, and with fewer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.replicator.guarded import Guarded, await_rights, grant, guarded, revoke
from tests.replicator.real import producer, put, read_all
from tests.spark.brokers.test_archive_restore import commit, delete_below, held
from watershed.clusters.admin import Admin
from watershed.clusters.errors import ClusterError
from watershed.clusters.required_role_acls import CLUSTER_RESOURCE_NAME, PROBE_TOPIC, RequiredRight
from watershed.spark.archive.archive_run import archive_topics
from watershed.spark.archive.restore_run import RestoreRequest, restore_topics
from watershed.spark.archive.storage import FolderStorage
from watershed.spark.errors import NotRestorable
from watershed.topology.selectors import Selector, TopicSelection

__all__ = ["guarded"]  # the fixture
pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PREFIX = "archive-rights"
WRITING = ("CREATE", "WRITE", "READ", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "DELETE")
ARCHIVING = (
    *(RequiredRight("onprem", "TOPIC", PREFIX, "PREFIXED", each, "docs") for each in ("READ", "DESCRIBE_CONFIGS")),
    RequiredRight("onprem", "GROUP", PREFIX, "PREFIXED", "DESCRIBE", "docs"),
)
RESTORING = (
    *(RequiredRight("cloud", "TOPIC", PREFIX, "PREFIXED", each, "docs") for each in WRITING),
    *(RequiredRight("cloud", "TOPIC", PROBE_TOPIC, "LITERAL", each, "docs") for each in WRITING),
    *(
        RequiredRight("cloud", "TRANSACTIONAL_ID", name, "PREFIXED", "WRITE", "docs")
        for name in ("watershed-restore|", "watershed-fill|")
    ),
    RequiredRight("cloud", "GROUP", PREFIX, "PREFIXED", "READ", "docs"),
    RequiredRight("cloud", "CLUSTER", CLUSTER_RESOURCE_NAME, "LITERAL", "DESCRIBE_CONFIGS", "docs"),
)


def test_the_rights_of_the_page_are_enough_and_a_missing_one_is_named(guarded: Guarded, tmp_path: Path) -> None:
    topic, group = f"{PREFIX}-orders", f"{PREFIX}-billing"
    chosen = TopicSelection((Selector("literal", topic),))
    with Admin(guarded.admin["onprem"]) as admin:
        admin.create_topic(topic, 2, 1)
    put(sending := producer(guarded.admin["onprem"]), topic, 500)
    sending.flush()
    delete_below(guarded.admin["onprem"], topic, 0, 20)
    commit(guarded.admin["onprem"], group, topic, {0: 30})
    storage = FolderStorage(tmp_path / "archive")
    with pytest.raises(ClusterError, match=topic):
        archive_topics(guarded.settings("nobody")["onprem"], chosen, storage, object_bytes=1 << 20)
    grant(guarded, "observe", ARCHIVING)
    await_rights(guarded, "observe", ARCHIVING)
    account = guarded.settings("observe")["onprem"]
    outcome = archive_topics(account, chosen, storage, object_bytes=1 << 20)
    assert [each.group for each in outcome.manifest.positions] == [group]

    request = RestoreRequest(None, (), "auto", tmp_path / "map.json")
    grant(guarded, "apply", RESTORING)
    await_rights(guarded, "apply", RESTORING)
    account = guarded.settings("apply")["cloud"]
    [writing] = [each for each in RESTORING if (each.name, each.operation) == (PREFIX, "WRITE")]
    revoke(guarded, "apply", writing)

    def restore_until_refused() -> None:  # ACLs travel by the metadata log
        for number in range(20):
            renames = (f"{topic}={topic}-{number}",)
            restore_topics(account, storage, RestoreRequest(None, renames, "auto", request.map_file))
            time.sleep(1)

    with pytest.raises((ClusterError, NotRestorable), match=rf"{topic}.*(WRITE|refused)"):
        restore_until_refused()
    grant(guarded, "apply", (writing,))
    await_rights(guarded, "apply", RESTORING)
    restored = restore_topics(account, storage, request)
    assert restored.plan.mode == "equal"
    assert read_all(guarded.admin["cloud"], topic, 2) == read_all(guarded.admin["onprem"], topic, 2)
    assert held(guarded.admin["cloud"], group) == held(guarded.admin["onprem"], group)
