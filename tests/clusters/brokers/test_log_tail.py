"""A partition that is read up to its end again and again, on a real broker."""

from __future__ import annotations

import pytest

from tests.clusters.sites import RealSite
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.errors import TopicMissing
from watershed.clusters.log_tail import LogTail
from watershed.clusters.settings import ConnectionSettings

pytestmark = pytest.mark.kafka


def test_each_read_goes_to_the_end(onprem: ConnectionSettings, topic_name: str) -> None:
    tail = LogTail(onprem, topic_name)

    def read(start: int) -> list[int]:
        return [int(record.value["n"]) for record in tail.read(start) if record.value is not None]

    with pytest.raises(TopicMissing):
        tail.read(0)
    with Admin(onprem) as admin:
        admin.create_topic(topic_name, 1)
    assert read(0) == []
    with ControlWriter(onprem) as writer:
        for number in range(5):
            assert writer.put(topic_name, "k", {"n": number}, 0) == number
            assert read(number) == [number]  # what was acknowledged is read
        assert read(5) == []
        assert read(2) == [2, 3, 4]  # back
        RealSite(onprem).transaction(topic_name, [[b'{"n":9}']], commit=False)
        assert read(5) == []  # an aborted record and its marker end the log
        end = writer.put(topic_name, "k", {"n": 5}, 0)
        assert read(5) == [5]
        tail.close()
        assert read(end) == [5]
        RealSite(onprem).transaction(topic_name, [[b"no JSON"]], commit=True)
        (foreign,) = tail.read(end + 1)  # it comes with why it is none of ours, and what is behind it comes as well
        assert (foreign.value, bool(foreign.why)) == (None, True)
        behind = writer.put(topic_name, "k", {"n": 6}, 0)
        assert read(behind) == [6]
    tail.close()
