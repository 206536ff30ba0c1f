"""What later steps, and the run that takes this one back, read of a step's outcome.

The journal holds outcomes as JSON. Its keys are decoded here, so that readers get types and no keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import JsonObject
from watershed.cutover.offsets import decode_offsets

_PREFLIGHTS = ("preflight", "preflight_back", "failover_preflight")
_TRANSLATIONS = ("translate_offsets", "translate_back")
_Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class GroupAtStart:
    """A group as preflight saw it. reads: topics of the wave in which it needs positions; None: all of them. internal:
    topics that a Streams application keeps for itself."""

    kind: str = "classic"
    static: bool = False
    internal: tuple[str, ...] = ()
    reads: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class TranslatedGroup:
    """A group's offsets on both sides, by that side's partitions. begins: at the source, where its next record stands.
    texts: source partitions whose commits carry an application's text. found: of a way back, what the group held at its
    target before; None for other runs."""

    source: _Offsets
    target: _Offsets
    begins: _Offsets
    kind: str
    texts: tuple[TopicPartition, ...]
    found: _Offsets | None


class StepOutcomes(dict[str, JsonObject]):
    """Step → its outcome. Each property raises KeyError while the step that it belongs to has no outcome."""

    @property
    def partitions(self) -> dict[str, int]:
        """Source topic → partition count, as preflight fixed it."""
        return dict(self._preflight["partitions"])

    @property
    def applications(self) -> Mapping[str, str]:
        """Application → its state before the run; empty without a preflight."""
        found: Mapping[str, str] = self._preflight.get("applications", {})
        return found

    def find_former(self, application: str) -> JsonObject:
        """What an order to start needs to know of the time before the run (`ObservedApplication.former`); of a failover
        whose preflight could not read the application, of the time before it was told to stop."""
        known = (self._preflight, self.get("stop_at_source", {}))
        found: JsonObject = next(
            (each["former"][application] for each in known if application in each.get("former", ())), {}
        )
        return found

    def find_group(self, group: str) -> GroupAtStart:
        """The group as preflight saw it; the defaults where it did not."""
        known: JsonObject = self._preflight.get("groups", {}).get(group, {})
        kind = str(known.get("kind", "unknown"))
        reads = tuple(known["reads"]) if "reads" in known else None
        kind = "classic" if kind == "unknown" else kind
        return GroupAtStart(kind, bool(known.get("static")), tuple(known.get("internal", ())), reads)

    def find_translation(self, group: str) -> TranslatedGroup | None:
        """What the step that translates found for the group; None before it."""
        step = next((name for name in _TRANSLATIONS if name in self), "")
        moved = self.get(step, {}).get("groups", {}).get(group)
        return None if moved is None else _decode_translation(moved)

    @property
    def standstill_ends(self) -> _Offsets:
        """The source's log ends while nobody wrote, before the barrier."""
        return decode_offsets(self["standstill"]["ends"])

    @property
    def barrier(self) -> _Offsets:
        """The source's log ends that everything is copied through."""
        return decode_offsets((self.get("barrier") or self._switch)["ends"])

    @property
    def drained_ends(self) -> _Offsets:
        """The target's log ends when the barrier was reached."""
        return decode_offsets(self["drain"]["target_ends"])

    @property
    def switch_source_ends(self) -> _Offsets:
        """The source's log ends at the point of no return."""
        return decode_offsets(self["point_of_no_return"]["source_ends"])

    @property
    def cut(self) -> _Offsets:
        """The target's log ends at the point of no return: where applications' own records begin. Of a wave of late
        groups, those of the runs that have moved the producers."""
        return decode_offsets((self.get("point_of_no_return") or self._switch)["target_ends"])

    @property
    def cut_off_ends(self) -> _Offsets:
        """Of a failover: the target's log ends when its workers were cut off."""
        return decode_offsets(self["cut_workers_off"]["target_ends"])

    @property
    def copied_topic_ids(self) -> Mapping[str, str]:
        """Of a failover: source topic → its id when it was copied."""
        found: Mapping[str, str] = self["cut_workers_off"].get("source_ids", {})
        return found

    @property
    def promoted_ends(self) -> _Offsets:
        """Of a failover: the target's log ends at the promotion."""
        return decode_offsets(self["promote"]["target_ends"])

    def find_placed_offsets(self, group: str) -> _Offsets:
        """Of a failover: where the group goes on at the target."""
        return decode_offsets(self["place_groups"]["groups"][group]["target"])

    @property
    def _switch(self) -> JsonObject:
        """Where earlier runs have moved producers, as the preflight of a wave of late groups found it."""
        found: JsonObject = self._preflight["switch"]
        return found

    @property
    def _preflight(self) -> JsonObject:
        """The outcome of the run's first step, whichever kind of run it is."""
        return next((self[name] for name in _PREFLIGHTS if name in self), {})


def _decode_translation(moved: JsonObject) -> TranslatedGroup:
    source = decode_offsets(moved["source"])
    return TranslatedGroup(
        source,
        decode_offsets(moved["target"]),
        decode_offsets(moved["from"]) if "from" in moved else source,
        moved.get("kind", "classic"),
        tuple(decode_offsets(moved.get("texts", {}))),
        decode_offsets(moved["found"]) if "found" in moved else None,
    )
