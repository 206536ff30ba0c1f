"""Taking over from MirrorMaker 2 that copied from Kafka 2.4, as docs/takeover.md says, and then moving applications.

MirrorMaker is that of Kafka 4.3: the newest one, whose clients still speak to 2.4. It is killed once, so that it copies
records twice; these are named, and nothing else is lost or repeated. Applications run all the time. Soak.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cutover.commands import (
    GROUP,
    NO_WAY_BACK,
    PAID,
    PARTITIONS,
    PLAIN,
    MovingScene,
    moving_scene,
    run_topology,
    wait_for,
    worker_running,
)
from tests.replicator.real import Record, read_all
from watershed.clusters.admin import Admin
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab import mirrormaker

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1_800)]

FLOW = "onprem-to-cloud"
MORE = {
    "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    "scheduled.rebalance.max.delay.ms": "0",  # or a worker that comes again waits for five minutes
    "sync.group.offsets.enabled": "true",  # so positions of groups at the target are MirrorMaker's
    "sync.group.offsets.interval.seconds": "2",
    "emit.checkpoints.interval.seconds": "2",
    "refresh.groups.interval.seconds": "5",
}


def find_ends(scene: MovingScene, topic: str) -> list[int]:
    """The log ends at the target, by partition; zeros while the topic is not there."""
    with Admin(scene.settings["cloud"]) as admin:
        if admin.topic(topic) is None:
            return [0] * PARTITIONS
        found = admin.offsets([TopicPartition(topic, number) for number in range(PARTITIONS)], "read_uncommitted")
        return [span.end for _, span in sorted(found.items())]


def has_positions(scene: MovingScene) -> bool:
    """Whether the group has a position of each partition at the target."""
    with Admin(scene.settings["cloud"]) as admin:
        return len(admin.group(GROUP).offsets) == 2 * PARTITIONS


def copy_with_mirrormaker(scene: MovingScene) -> None:
    """It copies, is killed before it has noted anything, copies again from the start, and is stopped in good order."""
    pair = tuple((alias, scene.bootstrap(alias)) for alias in ("onprem", "cloud"))
    topics = f"{PLAIN}|{PAID}"
    first = mirrormaker.start_dedicated_mirrormaker(
        scene.home / "first", *pair, topics, MORE | {"offset.flush.interval.ms": "3600000"}
    )
    second = None
    try:
        wait_for("MirrorMaker copies", lambda: min(find_ends(scene, PLAIN) + find_ends(scene, PAID)) > 50)
        first.kill()
        before = {topic: find_ends(scene, topic) for topic in (PLAIN, PAID)}
        second = mirrormaker.start_dedicated_mirrormaker(scene.home / "second", *pair, topics, MORE)
        wait_for(
            "MirrorMaker copies again",
            lambda: all(
                end > 2 * old + 50
                for topic in (PLAIN, PAID)
                for end, old in zip(find_ends(scene, topic), before[topic], strict=True)
            ),
        )
        assert second.runs()
        wait_for("MirrorMaker moves the group", lambda: has_positions(scene))
        second.stop()
    finally:
        first.kill()
        if second is not None and second.runs():
            second.kill()


def import_file(scene: MovingScene) -> None:
    """The topology out of MirrorMaker's own properties, with the migration that it does not know of."""
    properties = scene.home / "second" / "mm2.properties"
    assert run_topology("import", properties, "-o", scene.path, home=scene.home).code in (0, 1)
    scene.path.write_text(scene.path.read_text() + scene.build_migration(NO_WAY_BACK["rollback"]))


def take_group_over(scene: MovingScene) -> None:
    """The group's positions at the target are MirrorMaker's: they are left alone, until somebody decides."""
    group = ("--flow", FLOW, "--group", GROUP)
    refused = scene.run("migrate", "--approve", "auto")
    assert refused.code == 1
    assert f"`topology offsets reset-group FILE --flow {FLOW} --group {GROUP}` replaces them" in refused.text
    assert set(scene.find_places().values()) == {("running", "onprem")}
    assert run_topology("offsets", "reset-group", scene.path, *group, "--yes", home=scene.home).code == 0

    def follows() -> bool:
        shown = run_topology("offsets", "groups", scene.path, *group, home=scene.home)
        return "different" not in shown.out

    wait_for("the group follows the flow", follows)


def keep_wanted(found: list[tuple[int, Record]], extra: set[int]) -> list[Record]:
    """The records of the target without those that MirrorMaker copied too often."""
    return [record for at, record in found if at not in extra]


def test_mirrormaker_from_2_4_is_taken_over_and_applications_move(tmp_path: Path) -> None:
    with moving_scene(tmp_path, "2.4.1") as scene:
        scene.start_applications()
        copy_with_mirrormaker(scene)
        import_file(scene)
        assert scene.run("plan").code == 0
        assert scene.run("apply").code == 0
        with worker_running(scene.path, "cloud", scene.home):
            scene.wait_for_more()
            dry = run_topology(
                *("flow", "adopt", FLOW, scene.path, "--from", "mm2", "--dry-run", "--format", "json"), home=scene.home
            )
            assert dry.code == 1
            named: dict[tuple[str, int], dict[str, Any]] = {
                (each["topic"], each["partition"]): each for each in dry.read_json()["partitions"]
            }
            assert len(named) == 2 * PARTITIONS
            for (topic, _), each in named.items():
                assert set(each["refused"]) == ({"duplicates", "aborted"} if topic == PAID else {"duplicates"})
                assert each["syncs"] == each["syncs_true"] > 0
                assert each["noted_position"] == each["position"]
            accepted = ("--accept", "duplicates,aborted", "--yes", "--wait", "180")
            adopted = run_topology("flow", "adopt", FLOW, scene.path, "--from", "mm2", *accepted, home=scene.home)
            assert adopted.code == 0
            wait_for("every partition is copied", scene.is_served)
            assert scene.run("verify", "-o", tmp_path / "proof").code == 0
            take_group_over(scene)
            assert scene.run("migrate", "--approve", "auto").code == 0
            assert set(scene.find_places().values()) == {("running", "cloud")}
            scene.wait_for_more()
        found = scene.settle()
        here = {topic: read_all(scene.settings["onprem"], topic, PARTITIONS) for topic in (PLAIN, PAID)}
        there = {topic: read_all(scene.settings["cloud"], topic, PARTITIONS) for topic in (PLAIN, PAID)}
    (group,) = found.groups
    assert (group.lost, group.repeated, group.out_of_order_per_key) == (0, 0, 0), group
    for (topic, number), each in named.items():
        extra = {
            at
            for finding in each["findings"]
            if finding["kind"] in ("duplicates", "aborted")
            for at in range(*finding["target"])
        }
        assert len(extra) == sum(each["counts"].values()) > 0
        original = [record for _, record in here[topic][number]]
        copied = keep_wanted(there[topic][number], extra)
        assert copied[: len(original)] == original, f"{topic}-{number}"
        assert len({value for _, value, *_ in copied}) == len(copied) > len(original)
