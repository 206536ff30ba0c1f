"""What a format makes of one cluster's assets: files, and what a person has to know about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from watershed.topology.assets.target_assets import LeftOutAsset


@dataclass(frozen=True, slots=True)
class AssetFiles:
    """files: name → text, in the order in which they are applied. steps: commands and sentences, in order, in Markdown.
    to_fill: what a person puts in. left_out: what this format cannot say."""

    files: Mapping[str, str]
    steps: tuple[str, ...]
    to_fill: tuple[str, ...] = ()
    left_out: tuple[LeftOutAsset, ...] = ()
