"""A real MirrorMaker 2 with IdentityReplicationPolicy copies back what our flow copies there. Its records are told by
their header, and do not circulate. Nor do ours, where `provenance.header` marks them and it leaves them out."""

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
    leave_out,
    name_all,
    wait_everywhere,
    writing_everywhere,
)
from tests.replicator.real import applied, plan_for, read_all, settings_of, workers
from watershed.clusters.admin import Admin
from watershed.clusters.provenance_header import decode_record_origin
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


def test_mirrormaker_that_leaves_out_our_provenance_header_has_each_record_once(
    kafka_pair, topic_name: str, tmp_path: Path
) -> None:
    """As docs/provenance.md says: `leaves_out` names the header of our flow, so every record stands on both clusters
    once. A worker is killed twice while both applications write."""
    settings = settings_of(kafka_pair)
    for each in settings.values():
        with Admin(each) as admin:
            admin.create_topic(topic_name, PARTITIONS, 1, {})
    selection = TopicSelection((Selector("literal", topic_name),))
    tool = ExternalFlow("back", "mirrormaker2", "cloud", "onprem", selection, marks_with=MARK, leaves_out="came-from")
    plan = applied(
        settings,
        plan_for(
            settings, topic_name, topic_name, merge=True, delivery="transactions", header="came-from", beside=(tool,)
        ),
    )
    with (
        workers(plan, "cloud", tmp_path) as start,
        copying_back(settings, topic_name, tmp_path / "mirrormaker", leave_out("came-from")),
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
        assert found == {alias: Counter(names) for alias in ("onprem", "cloud")}
        assert worker.runs()
    with Admin(settings["onprem"]) as admin:
        onprem = admin.cluster_id()
    for rows in read_all(settings["cloud"], topic_name, PARTITIONS).values():
        for _, (_, value, _, headers) in rows:
            told = [decode_record_origin(text).cluster_id for name, text in headers if name == "came-from"]
            assert told == ([onprem] if (value or b"").startswith(b"onprem/") else [])
    print(f"written {dict(wrote)}, each on both clusters once")
