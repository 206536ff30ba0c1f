"""The one place that makes a SparkSession, here and on a cluster.

Needs Java 17 or newer (Spark 4). `WATERSHED_SPARK_MASTER` names the master; default `local[2]`. Everything binds to
the loopback interface for a local master, and this Python runs the workers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from spark.errors import JavaMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = 17  # oldest that Spark 4 runs on
HOW_TO_GET_JAVA = (
    "Install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17), "
    "or point JAVA_HOME at it."
)


def spark_session(
    name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> SparkSession:
    """A session called `name`. Raises JavaMissing before pyspark is imported. A first session takes 5-10 s."""
    find_java(environ)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    master = master or environ.get("WATERSHED_SPARK_MASTER") or "local[2]"
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": "/nonexistent",  # we have no tables
        "spark.python.worker.reuse": "true",
    }
    if master.startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (settings | dict(conf or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def end_session(session: SparkSession, patience: float = 15.0) -> None:
    """Stop the session and wait until its Java is gone; left alone it ends a moment after this process."""
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    java: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or java is None:
        return
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    if java.stdin is not None:
        java.stdin.close()  # what it ends on
    try:
        java.wait(patience)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


def find_java(environ: Mapping[str, str] = os.environ) -> int:
    """Major version of the Java that Spark would start. Raises JavaMissing, which says how to get one."""
    home = environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environ.get("PATH"))
    where = f"JAVA_HOME={home}" if home else "PATH"
    if program is None or not os.access(program, os.X_OK):
        raise JavaMissing(f"Spark needs Java {JAVA} or newer, and there is none ({where}). {HOW_TO_GET_JAVA}")
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(f"{program} does not start ({error}). {HOW_TO_GET_JAVA}") from None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if not found:
        raise JavaMissing(f"{program} does not say which version it is. {HOW_TO_GET_JAVA}")
    major = int(found[2] or 0) if found[1] == "1" else int(found[1])
    if major < JAVA:
        raise JavaMissing(f"Spark needs Java {JAVA} or newer; {program} is Java {major}. {HOW_TO_GET_JAVA}")
    return major
