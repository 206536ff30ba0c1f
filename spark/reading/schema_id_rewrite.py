"""Rewrites schema ids of source records as the flow does, before they are hashed.

Which id stands for which is asked of both registries when the window is fixed
(`clusters.registry.schema_id_translation`); how they are written shares no code with the replicator, whose work it is
to judge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from watershed.clusters.registry.schema_id_translation import SideSchemaIds, read_schema_ids
from watershed.clusters.settings import ConnectionSettings
from watershed.spark.fingerprint import RecordSlices
from watershed.spark.reading.schema_id_pairs import NO_ID_REWRITE, KeyValueIdPairs, SchemaIdPairs
from watershed.spark.reading.xxh64 import I64, ByteArray
from watershed.topology.plan import PlanFlow


def read_schema_id_pairs(
    flow: PlanFlow, source: ConnectionSettings, target: ConnectionSettings, topics: Iterable[str]
) -> dict[str, KeyValueIdPairs]:
    """Pairs of schema ids by source topic, from both registries as of now. Raises ClusterError."""
    if not flow.sync.schemas.translated:
        return {}
    found = read_schema_ids(flow, source, target, topics)
    return {topic: (_pairs(ids.key), _pairs(ids.value)) for topic, ids in found.items()}


def rewrite_schema_ids(slices: RecordSlices, ids: KeyValueIdPairs) -> RecordSlices:
    """The same records with the ids of the target. An id without a counterpart stays, so that its record differs."""
    if ids == NO_ID_REWRITE:
        return slices
    data = slices.data.copy()
    for at, length, pairs in ((slices.key_at, slices.key_len, ids[0]), (slices.value_at, slices.value_len, ids[1])):
        if pairs:
            _write(data, at[length >= 5], pairs)
    return replace(slices, data=data)


def _write(data: ByteArray, at: I64, pairs: SchemaIdPairs) -> None:
    """at: where each payload begins. Magic byte 0, then four bytes of id, the highest first."""
    at = at[data[at] == 0]
    if not len(at):
        return
    places = at[:, None] + np.arange(1, 5)
    found = data[places].astype(np.int64) @ np.array([1 << 24, 1 << 16, 1 << 8, 1], dtype=np.int64)
    known = dict(pairs)
    distinct, which = np.unique(found, return_inverse=True)
    wanted = np.array([known.get(int(id), int(id)) for id in distinct], dtype=np.int64)[which]
    data[places] = ((wanted[:, None] >> np.array([24, 16, 8, 0])) & 0xFF).astype(np.uint8)


def _pairs(side: SideSchemaIds | None) -> SchemaIdPairs | None:
    return None if side is None else tuple(sorted(side.ids.items()))
