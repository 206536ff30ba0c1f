"""A proof's Spark session: it leaves a core of a standalone cluster to others, and says at once if there is none."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from watershed.spark.cluster_cores import (
    PROOF_NAME,
    compute_proof_limit,
    describe_core_wait,
    has_room,
    read_cluster_cores,
)
from watershed.spark.session import create_spark_session, merge_spark_settings, read_spark_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEFAULT_MEMORY_MB: Final = 1024  # Spark's own spark.executor.memory
_MIB: Final = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024.0}


def start_proof_session(topology: str, say: Callable[[str], None]) -> SparkSession:
    """A session for the proofs of a topology; `say` is told at once where the cluster has no core for it.

    Raises as `spark.session.create_spark_session`.
    """
    return create_spark_session(f"{PROOF_NAME}-{topology}", conf=build_proof_settings(say, os.environ))


def build_proof_settings(say: Callable[[str], None], environ: Mapping[str, str]) -> dict[str, str]:
    """What a proof asks a standalone master for, unless WATERSHED_SPARK_CONF says otherwise; nothing where the master
    does not say what it has. Raises WrongUse.
    """
    cores = read_cluster_cores(read_spark_master(environ), environ)
    if cores is None:
        return {}
    memory = parse_spark_memory(merge_spark_settings({}, {}, environ).get("spark.executor.memory", ""))
    if not has_room(cores, memory):
        say(describe_core_wait(cores, memory_mb=memory))
    return {"spark.cores.max": str(compute_proof_limit(cores))}


def parse_spark_memory(text: str) -> int:
    """MiB of a size as Spark writes it (`512m`, `2g`, a bare number of MiB); Spark's default for what is none."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    return int(int(found[1]) * _MIB[found[2] or "m"]) if found else _DEFAULT_MEMORY_MB
