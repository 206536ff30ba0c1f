"""Adds the provenance header to source records as the flow does, before they are hashed.

The text in it has one definition (`clusters.provenance_header`). How it is written into a record shares no code with
the replicator, whose work it is to judge.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from watershed.clusters.provenance_header import ProvenanceHeader
from watershed.clusters.record_fingerprint import encode_headers_bin
from watershed.spark.fingerprint import RecordSlices
from watershed.spark.reading.batch_decoding import decode_headers_bin

_SPARE = bytes(16)  # fingerprint_slices reads beyond the last record


def add_provenance_headers(slices: RecordSlices, header: ProvenanceHeader | None) -> RecordSlices:
    """The same records with one header more, from source offset `header.begin` on. Raises ValueError, IndexError for
    headers that cannot be read."""
    if header is None or not len(slices.offset):
        return slices
    at, length = slices.headers_at.copy(), slices.headers_len.copy()
    pieces: list[bytes] = []
    end = len(slices.data)
    for row in np.flatnonzero(slices.offset >= header.begin).tolist():
        stored = slices.data[at[row] : at[row] + length[row]].tobytes() or b"\x00"
        value = header.encode_value(int(slices.offset[row]), int(slices.ts[row]))
        packed = encode_headers_bin([*decode_headers_bin(stored), (header.name, value)])
        pieces.append(packed)
        at[row], length[row] = end, len(packed)
        end += len(packed)
    data = np.concatenate((slices.data, np.frombuffer(b"".join((*pieces, _SPARE)), dtype=np.uint8)))
    return replace(slices, data=data, headers_at=at, headers_len=length)
