"""SCRAM users: which of the source's users the target lacks, by mechanism and iterations.

Brokers never hand out a credential, salted or not (KIP-554), so a user cannot be carried over: somebody who knows the
password, or gives a new one, types the command that is shown. Nothing is ever made up here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clusters.settings import ConnectionSettings
from clusters.wire.inquiry import inquire
from clusters.wire.readings import scram_users
from replicator.sync import kind
from replicator.sync.kind import Done, Sides
from topology.command import command
from topology.drift import Difference
from topology.plan import PlanFlow
from topology.sync import Mode

_KIND: Final = "user"
_Users = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class ScramUsers:
    """See `replicator.sync.kind.Kind`."""

    name: str = "users"

    def mode(self, flow: PlanFlow) -> Mode:
        return flow.sync.users.mode

    def every_ms(self, flow: PlanFlow) -> int:
        return kind.METADATA_EVERY_MS

    def compare(self, flow: PlanFlow, sides: Sides) -> list[Difference]:
        with inquire(sides.source) as source, inquire(sides.target) as target:
            return user_differences(flow, scram_users(source), scram_users(target), sides.target)

    def carry(self, flow: PlanFlow, sides: Sides, differences: Sequence[Difference]) -> list[Done]:
        """Nothing: no difference of `compare` is one that can be applied."""
        return []


def user_differences(flow: PlanFlow, here: _Users, there: _Users, target: ConnectionSettings) -> list[Difference]:
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
                Difference(
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


def _making(user: str, mechanism: str, iterations: int, target: ConnectionSettings) -> str:
    credential = f"{mechanism}=[iterations={iterations},password=PASSWORD]"
    return command(
        *("kafka-configs", "--bootstrap-server", ",".join(target.bootstrap)),
        *("--command-config", "admin.properties", "--alter", "--entity-type", "users", "--entity-name", user),
        *("--add-config", credential),
    )
