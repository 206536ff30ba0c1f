"""SCRAM users: which of the source's users the target lacks, by mechanism and iterations.

Brokers never hand out a credential, salted or not (KIP-554), so a user cannot be carried over: somebody who knows the
password, or gives a new one, types the command that is shown. Nothing is ever made up here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clusters.errors import RequestUnsupported
from clusters.settings import ConnectionSettings
from clusters.wire.admin_reads import read_scram_users
from clusters.wire.connection import open_connection
from replicator.sync import sync_kind
from replicator.sync.sync_kind import DifferenceOutcome, SyncClusters
from topology.drift import FieldDrift
from topology.plan import PlanFlow
from topology.shell_command import render_shell_command
from topology.sync_settings import SyncMode

_KIND: Final = "user"
_ClusterUsers = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class ScramUserKind:
    """See `replicator.sync.sync_kind.SyncKind`."""

    name: str = "users"

    def mode(self, flow: PlanFlow) -> SyncMode:
        """`sync.users` of the flow."""
        return flow.sync.users.mode

    def every_ms(self, flow: PlanFlow) -> int:
        """METADATA_INTERVAL_MS, for every flow."""
        return sync_kind.METADATA_INTERVAL_MS

    def compare(self, flow: PlanFlow, sides: SyncClusters) -> list[FieldDrift]:
        """SCRAM users of the source that the target lacks or keeps with fewer iterations. Kafka before 2.7 keeps them
        in ZooKeeper and tells nobody (KIP-554)."""
        with open_connection(sides.source) as source, open_connection(sides.target) as target:
            try:
                here, there = read_scram_users(source), read_scram_users(target)
            except RequestUnsupported as error:
                return [sync_kind.build_unsupported(flow, self.name, error, _carrying_by_hand(sides.target))]
        return find_user_differences(flow, here, there, sides.target)

    def carry(self, flow: PlanFlow, sides: SyncClusters, differences: Sequence[FieldDrift]) -> list[DifferenceOutcome]:
        """Nothing: no difference of `compare` is one that can be applied."""
        return []


def find_user_differences(
    flow: PlanFlow, here: _ClusterUsers, there: _ClusterUsers, target: ConnectionSettings
) -> list[FieldDrift]:
    """here, there: user → mechanism → iterations. Pure."""
    found = []
    for user in sorted(here):
        if not flow.sync.users.names.selects(user):
            continue
        for mechanism, iterations in sorted(here[user].items()):
            live = there.get(user, {}).get(mechanism)
            if live is not None and live >= iterations:
                continue
            lacking = f"{flow.target} has no such user" if live is None else f"{flow.target} stretches it less"
            why = (
                f"{lacking}, and brokers never hand out credentials (KIP-554); with the password: "
                f"{_making(user, mechanism, iterations, target)}"
            )
            found.append(
                FieldDrift(
                    flow.target,
                    _KIND,
                    user,
                    mechanism,
                    None if live is None else _iterations(live),
                    _iterations(iterations),
                    "unsupported",
                    False,
                    why,
                )
            )
    return found


def _iterations(number: int) -> str:
    return f"{number} iterations"


def _carrying_by_hand(target: ConnectionSettings) -> str:
    showing = ("kafka-configs", "--zookeeper", "ZOOKEEPER", "--describe", "--entity-type", "users")
    making = _making("USER", "SCRAM-SHA-512", 4096, target)
    return f"{render_shell_command(*showing)} shows who has one; with the password: {making}"


def _making(user: str, mechanism: str, iterations: int, target: ConnectionSettings) -> str:
    credential = f"{mechanism}=[iterations={iterations},password=PASSWORD]"
    return render_shell_command(
        *("kafka-configs", "--bootstrap-server", ",".join(target.bootstrap)),
        *("--command-config", "admin.properties", "--alter", "--entity-type", "users", "--entity-name", user),
        *("--add-config", credential),
    )
