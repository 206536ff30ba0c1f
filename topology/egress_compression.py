"""`compression` of a flow: which codec its workers use for batches that the source stores uncompressed, how hard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from watershed.topology.rounded_amounts import render_decimal_size

CompressionCodec = Literal["gzip", "snappy", "lz4", "zstd"]
NO_COMPRESSION: Final = "none"
# Codec → lowest and highest level, and the one that is taken where the file says none; None: the codec has no levels.
# zstd and gzip have those of Kafka's producers (KIP-390). lz4 has those of the C library, where 1 is the fast way and
# 3 to 12 search harder; Java's library numbers up to 17, with the same algorithm.
CODEC_LEVELS: Final[Mapping[CompressionCodec, tuple[int, int, int] | None]] = {
    "zstd": (1, 22, 3),
    "lz4": (1, 12, 1),
    "gzip": (1, 9, 6),
    "snappy": None,
}
HIGHEST_LEVEL: Final = max(levels[1] for levels in CODEC_LEVELS.values() if levels is not None)


@dataclass(frozen=True, slots=True)
class EgressCompression:
    """level: None where the codec has none."""

    codec: CompressionCodec
    level: int | None = None

    def __str__(self) -> str:
        return self.codec if self.level is None else f"{self.codec}, level {self.level}"

    def to_json(self) -> dict[str, Any]:
        """The JSON form of the plan."""
        return {"codec": self.codec, "level": self.level}

    @classmethod
    def from_json(cls, value: dict[str, Any] | None) -> EgressCompression | None:
        """Reads the JSON form of the plan."""
        return None if value is None else cls(value["codec"], value["level"])


def build_egress_compression(codec: str, level: int | None = None) -> EgressCompression | None:
    """None for codec `none`. Raises ValueError for a level that the codec does not have, KeyError for another codec."""
    if codec == NO_COMPRESSION:
        levels, chosen = None, None
    else:
        chosen = _CODECS[codec]
        levels = CODEC_LEVELS[chosen]
    if level is not None and levels is None:
        raise ValueError(f"codec {codec} takes no `level`")
    if level is not None and levels is not None and not levels[0] <= level <= levels[1]:
        raise ValueError(f"`level: {level}` does not exist for {codec}; it has {levels[0]} to {levels[1]}")
    if chosen is None:
        return None
    return EgressCompression(chosen, level if level is not None or levels is None else levels[2])


def describe_saved_bytes(asked: EgressCompression, copied: int, saved: int) -> str:
    """What workers have saved since they took the partitions that they copy now. copied: bytes as at the source; saved:
    how many of them were not sent."""
    if not copied:
        return f"{asked}; nothing copied since the workers took the partitions"
    sent = f"{render_decimal_size(copied - saved)} sent of {render_decimal_size(copied)}"
    return f"{asked}; {saved / copied:.0%} fewer bytes since the workers took the partitions ({sent})"


_CODECS: Final[Mapping[str, CompressionCodec]] = {codec: codec for codec in CODEC_LEVELS}
