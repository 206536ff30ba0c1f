"""The shapes of `delivery.start` and `delivery.end`: a word, an instant, offsets by partition, a group's position."""

from __future__ import annotations

import re
from typing import Final

from watershed.topology.copy_bounds import CopyBound, build_offsets_bound
from watershed.topology.language.scalars import (
    EXACT_INSTANT_SHAPE,
    IDENTIFIER_SHAPE,
    TOPIC_TEXT,
    build_enum_shape,
    build_integer_shape,
    build_regex_converter,
    build_text_shape,
)
from watershed.topology.model import CheckedValue
from watershed.topology.yaml_shapes import ConvertedShape, MapShape, NamedShape, RecordShape, ScalarOrShape, ShapeKey

_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_USUAL: Final = '{timestamp: "2026-03-02T02:00:00Z"}'


def _parse_partition(text: str) -> int:
    if _PARTITION.fullmatch(text) is None:
        raise ValueError("expected a partition's number, such as `0`")
    return int(text)


def _convert_bound(value: CheckedValue) -> CopyBound:
    if (instant := value.get("timestamp")) is not None:
        return CopyBound(timestamp_ms=instant)
    if (group := value.get("group")) is not None:
        return CopyBound(group=group)
    topics = value.fields["offsets"].fields
    found = {topic: {int(at): offset.data for at, offset in each.fields.items()} for topic, each in topics.items()}
    if not found or not all(found.values()):
        raise ValueError("`offsets` names no partition; write `{offsets: {TOPIC: {0: 100}}}`")
    return build_offsets_bound(found)


_TIMESTAMP = ShapeKey(
    EXACT_INSTANT_SHAPE, "The first record of each partition whose timestamp is at least this instant, with its zone."
)
_OFFSETS = MapShape(
    MapShape(build_integer_shape(0, 10**18 - 1), _parse_partition, names={"pattern": f"^({_PARTITION.pattern})$"}),
    build_regex_converter(TOPIC_TEXT, "a topic's name"),
    names={"pattern": f"^{TOPIC_TEXT.pattern}$"},
)
START_SHAPE = NamedShape(
    "copy_start",
    ScalarOrShape(
        build_enum_shape("earliest", "latest"),
        ConvertedShape(
            RecordShape(
                {
                    "timestamp": _TIMESTAMP,
                    "offsets": ShapeKey(
                        _OFFSETS, "Source topic → partition → offset; partitions without one begin at `earliest`."
                    ),
                    "group": ShapeKey(
                        IDENTIFIER_SHAPE,
                        "Where this consumer group stands at the source when a worker first takes the partition; where "
                        "it has no position, the partition waits for one, and says so.",
                    ),
                },
                one_of=True,
                expected="`earliest`, `latest`, or a mapping",
                usual=_USUAL,
            ),
            _convert_bound,
        ),
        expected="`earliest`, `latest`, or a mapping",
    ),
)
_END_WORD = build_text_shape(
    "`latest`, or a mapping", build_regex_converter(re.compile("latest"), "`latest`, or a mapping"), enum=["latest"]
)
END_SHAPE = NamedShape(
    "copy_end",
    ScalarOrShape(
        _END_WORD,
        ConvertedShape(
            RecordShape(
                {
                    "timestamp": _TIMESTAMP,
                    "offsets": ShapeKey(
                        _OFFSETS, "Source topic → partition → offset; partitions without one have no end."
                    ),
                },
                one_of=True,
                expected="`latest`, or a mapping",
                usual=_USUAL,
            ),
            _convert_bound,
        ),
        expected="`latest`, or a mapping",
    ),
)
