"""A real MirrorMaker 2 with IdentityReplicationPolicy copies back what our flow copies there. Its records are told by
their header, and do not circulate."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.replicator.external import (
    MARK,
    PARTITIONS,
    assert_quiet,
    copying_back,
    name_all,
    wait_everywhere,
    writing_everywhere,
)
from tests.replicator.real import applied, plan_for, settings_of, workers
from watershed.clusters.admin import Admin
from watershed.topology.external_flows import ExternalFlow
from watershed.topology.selectors import Selector, TopicSelection

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(900)]

SECONDS = float(os.environ.get("SOAK_EXTERNAL_S", "60"))


def test_identity_mirrormaker_the_other_way_does_not_loop(kafka_pair, topic_name: str, tmp_path: Path) -> None:
    """MirrorMaker does not leave out what we copied, so a record of onprem comes back there, once. It is not copied
    again. A worker is killed twice while both applications write."""
    settings = settings_of(kafka_pair)
    for each in settings.values():
        with Admin(each) as admin:
            admin.create_topic(topic_name, PARTITIONS, 1, {})
    tool = ExternalFlow(
        "back",
        "mirrormaker2",
        "cloud",
        "onprem",
        TopicSelection((Selector("literal", topic_name),)),
        marks_with=MARK,
    )
    plan = applied(
        settings,
        plan_for(settings, topic_name, topic_name, merge=True, delivery="transactions", beside=(tool,)),
    )
    with (
        workers(plan, "cloud", tmp_path) as start,
        copying_back(settings, topic_name, tmp_path / "mirrormaker", {}),
    ):
        worker = start()
        with writing_everywhere(settings, topic_name) as wrote:
            for _ in range(2):
                time.sleep(SECONDS / 3)
                worker.kill()
                worker = start()
            time.sleep(SECONDS / 3)
        names = name_all(wrote)
        wait_everywhere(settings, topic_name, names)
        found = assert_quiet(settings, topic_name, 15)
        assert found["cloud"] == Counter(names)
        assert set(found["onprem"]) == names
        assert Counter(found["onprem"].values()) == {2: wrote["onprem"], 1: wrote["cloud"]}
        assert worker.runs()
        print(f"written {dict(wrote)}; stand on { ({alias: each.total() for alias, each in found.items()}) }")
