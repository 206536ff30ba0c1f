"""What is reported of an aligned partition while its log is filled."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

from watershed.clusters.flow_records import FlowRecord
from watershed.replicator.copy.aligned.aligned_copy import AlignedCopy, AlignmentState
from watershed.replicator.copy.aligned.empty_log_filler import FillProgress
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.worker.partition_task import PartitionTask
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

ALL = TopicSelection((Selector("glob", "*"),))


def test_while_it_is_filled_nobody_knows_the_lag() -> None:
    key = PartitionKey("f", "orders", "orders", 0)
    copy = AlignedCopy(
        key=key,
        source_id=uuid.uuid4(),
        target_id=uuid.uuid4(),
        source=SourceCursor(0),
        progress=TargetProgress(0),
        producer=SequencedProducer(ProducerIdentity(1, 0, 0), depth=1, depth_confirmed=1),
        alignment=AlignmentState(filling=True),
    )
    copy.source.end = 0
    task = PartitionTask(
        key,
        FlowRecord(PlanFlow("f", "a", "b", ALL), "", ""),
        active=SimpleNamespace(copy=copy, counted="", hindrance="", replica="", source_seen_at=0.0),
    )
    assert task.report("w", 1).lag_records == 0
    copy.alignment.progress = FillProgress("orders", 0, done=25, of=100, rate=5.0)
    report = task.report("w", 1)
    assert (report.state, report.lag_records) == ("aligning", None)
    assert report.aligning == {"done": 25, "of": 100, "rate": 5.0, "seconds_left": 15.0}
