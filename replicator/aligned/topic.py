"""What a topic's settings have to be while its logs are filled, and putting them back.

Nothing is remembered: the settings that a topic is to have in the end follow from the flow and its source, for whoever
comes next; and a topic that has others than those or these is somebody else's, and is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from clusters.surface import Administration

POLICY: Final = "cleanup.policy"
OLDEST: Final = "message.timestamp.before.max.ms"
TIERED: Final = "remote.storage.enable"
KEPT: Final[Mapping[str, str]] = {"retention.ms": "-1", "retention.bytes": "-1"}  # only ever beside another POLICY
ANY_AGE: Final = str((1 << 63) - 1)
_OLDEST_OF_BROKER: Final = "log.message.timestamp.before.max.ms"


def while_filling(wanted: Mapping[str, str], target: Administration) -> dict[str, str]:
    """The settings of a topic's own that differ while it is filled, given those it is `wanted` to have in the end.

    Compaction refuses records without a key and DeleteRecords, and while it is off, retention must not take what other
    partitions of the topic hold already; filler is of 1970; and what is filled must not be moved to tiered storage. A
    new topic is created with `wanted | while_filling(wanted, target)`.
    """
    found: dict[str, str] = {}
    if "compact" in wanted.get(POLICY, target.broker_config("log.cleanup.policy") or "delete"):
        found |= {POLICY: "delete", **KEPT}
    oldest = wanted.get(OLDEST) or target.broker_config(_OLDEST_OF_BROKER) or ANY_AGE
    if int(oldest) < int(ANY_AGE):
        found[OLDEST] = ANY_AGE
    if wanted.get(TIERED) == "true":
        found[TIERED] = "false"
    return found


def prepared(target: Administration, topic: str, wanted: Mapping[str, str], meanwhile: Mapping[str, str]) -> str:
    """Give an existing topic the settings `meanwhile`; "" or why not. Does nothing where it has them.

    Raises ClusterError (Unauthorised without ALTER_CONFIGS).
    """
    own = target.topic_configs([topic])[topic]
    for key, value in meanwhile.items():
        ours = value if key not in KEPT or own.get(POLICY) == meanwhile.get(POLICY) else wanted.get(key)
        if own.get(key) not in (ours, wanted.get(key)):
            has = f"{key}={own[key]}" if key in own else f"no {key} of its own"
            meant = f"{key}={wanted[key]}" if key in wanted else f"no {key} of its own"
            return (
                f"the target topic {topic} has {has} where the flow gives it {meant}, so it is not changed to fill it"
            )
    target.alter_topic_configs(topic, {key: value for key, value in meanwhile.items() if own.get(key) != value})
    return ""


def restored(target: Administration, topic: str, wanted: Mapping[str, str], meanwhile: Mapping[str, str]) -> bool:
    """Take the settings `meanwhile` back to what is `wanted`; whether there was anything to do. Any number of workers
    may do it. Raises ClusterError."""
    back = taken_back(target.topic_configs([topic])[topic], wanted, meanwhile)
    target.alter_topic_configs(topic, back)
    return bool(back)


def taken_back(
    own: Mapping[str, str], wanted: Mapping[str, str], meanwhile: Mapping[str, str]
) -> dict[str, str | None]:
    """What has to change so that a topic with its `own` settings has what is `wanted`; None: the brokers' default.

    Who keeps its records for ever beside a policy that is not ours has said so himself.
    """
    prepared_by_us = own.get(POLICY) == meanwhile.get(POLICY)
    return {
        key: wanted.get(key)
        for key, value in meanwhile.items()
        if own.get(key) == value != wanted.get(key) and (key not in KEPT or prepared_by_us)
    }
