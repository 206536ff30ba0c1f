"""What Airflow's triggerer asks of clusters, it asks in a process apart
(`clusters.crash_isolated_client`, decision 0057).

All waiting tasks of an Airflow share the triggerer. One topology's broker that ends the Kafka client must not end it.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from functools import cache
from typing import Any

from watershed.clusters.crash_isolated_client import CallFailed, ClientProcesses
from watershed.clusters.errors import ClusterError

_ANSWER_S = 600.0  # of questions to several clusters, each of which may be slow to answer


class QuestionFailed(Exception):
    """The question raised what is no ClusterError. kind: the name of its class."""

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


@cache
def shared_client_processes() -> ClientProcesses:
    """One a process of Airflow; nothing is started before somebody asks."""
    found = ClientProcesses()
    atexit.register(found.stop)
    return found


def ask_client_process(topology: str, function: str, arguments: Mapping[str, Any]) -> Any:
    """`module:function` there, with arguments and answer as JSON. Raises ClusterError, QuestionFailed."""
    try:
        return shared_client_processes().call(
            topology, name_topology_clusters(topology), function, arguments, _ANSWER_S
        )
    except CallFailed as failed:
        if failed.kind == ClusterError.__name__:
            raise
        raise QuestionFailed(str(failed), failed.kind) from None


def name_topology_clusters(topology: str) -> str:
    """What messages call the process that asks a topology's clusters."""
    return f"the clusters of topology {topology}"
