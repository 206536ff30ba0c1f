"""The offset map on real brokers: every offset of a transactional topic, both ways, by the command, after crashes."""

from __future__ import annotations

import pytest

from tests.replicator.brokers.test_real_copy import transactions
from tests.replicator.faults import times
from tests.replicator.real import applied, plan_for, read_all, settings_of, wait_copied, wait_progress, workers
from watershed.cli import offsets_map
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.topic_partition import TopicPartition

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("delivery", ["sequence", "transactions"])
def test_every_offset_both_ways_by_one_read(kafka_pair, topic_name, tmp_path, monkeypatch, capsys, delivery):
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1)
    plan = applied(settings, plan_for(settings, topic_name, topic_name, delivery=delivery))
    with workers(plan, "cloud", tmp_path, times(session=3)) as start:
        for round_ in range(2):
            worker = start()
            transactions(settings["onprem"], topic_name, 30)
            wait_progress(settings, plan, topic_name, 1, 100 + 200 * round_)
            worker.kill()
        start()
        wait_copied(settings, plan, topic_name, 1)
    here = [offset for offset, _ in read_all(settings["onprem"], topic_name, 1)[0]]
    there = [offset for offset, _ in read_all(settings["cloud"], topic_name, 1)[0]]
    with Admin(settings["onprem"]) as source, Admin(settings["cloud"]) as target:
        where = TopicPartition(topic_name, 0)
        ends = source.offsets([where])[where].end, target.offsets([where], "read_uncommitted")[where].end
    monkeypatch.setattr(offsets_map, "compile_plan_at", lambda _path: plan)
    ask = ["offsets", "translate", "plan.yaml", "--flow", plan.flows[0].id, "-t", topic_name, "-p", "0"]

    def answers(first: int, end: int, *more: str) -> dict[int, int]:
        listed = tmp_path / "offsets.txt"
        listed.write_text("\n".join(map(str, range(first, end))))
        assert main([*ask, "--file", str(listed), *more]) == 0
        return dict(tuple(map(int, line.split("\t"))) for line in capsys.readouterr().out.splitlines())

    behind = there[-1] + 1
    to_target = answers(0, ends[0] + 1)
    to_source = answers(there[0], ends[1] + 1, "--reverse")
    for source_offset, found in to_target.items():
        following = [at for mine, at in zip(here, there, strict=True) if mine >= source_offset]
        assert found == (following[0] if following else behind), source_offset
    for target_offset, found in to_source.items():
        following = [mine for mine, at in zip(here, there, strict=True) if at >= target_offset]
        assert found == (following[0] if following else ends[0]), target_offset
    assert main([*ask, "--offset", str(ends[0] + 1)]) == 1
    assert f"the target holds everything below {ends[0]};" in capsys.readouterr().err
