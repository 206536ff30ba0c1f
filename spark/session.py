"""The one place that makes a SparkSession, here and on a cluster (docs/engines.md).

Needs Java 17 or newer (Spark 4). `WATERSHED_SPARK_MASTER` names the master (default `local[2]`; `spark://`, `yarn`,
`k8s://`), `WATERSHED_SPARK_CONF` a file of further settings in the form of spark-defaults.conf. The driver is this
process, always. On a local master everything binds to the loopback interface and this Python runs the workers; on a
cluster our own packages travel with the application, and everything else has to be in the executors' Python.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from watershed.spark.cluster_cores import list_master_addresses
from watershed.spark.errors import JavaMissing, WrongUse
from watershed.spark.failure_text import raise_as_spark_error
from watershed.spark.shipping import PACKAGE_ARCHIVE, write_package_archive

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_JAVA = 17  # oldest that Spark 4 runs on
_HOW_TO_GET_JAVA = (
    "Install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17), "
    "or point JAVA_HOME at it."
)
_MASTER_S = 5.0  # for a standalone master to accept a connection
_NO_SESSION = "Look at WATERSHED_SPARK_MASTER and WATERSHED_SPARK_CONF (docs/engines.md)"
_SETTINGS = {
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


def create_spark_session(
    name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    must: Mapping[str, str] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> SparkSession:
    """A session called `name`. A first session takes 5-10 s.

    conf: what this application wants unless the file of WATERSHED_SPARK_CONF says otherwise; must: what it wants in any
    case. Raises JavaMissing before pyspark is imported, WrongUse for settings that cannot be used, SparkError.
    """
    require_java(environ)
    master = master or read_spark_master(environ)
    settings = merge_spark_settings(conf or {}, must or {}, environ)
    if is_local_master(master):
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    else:
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["PYSPARK_PYTHON"] = environ.get("PYSPARK_PYTHON") or sys.executable
        settings.setdefault("spark.driver.host", environ.get("SPARK_LOCAL_IP") or _seen_by(master))
    from pyspark.sql import SparkSession

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # what it says is in the exception as well
    with raise_as_spark_error(f"no Spark session on {master}", _NO_SESSION):
        builder = SparkSession.builder.appName(name).master(master)
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        if not is_local_master(master):
            ship_packages(session.sparkContext)
    return session


@contextlib.contextmanager
def borrow_spark_session(name: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """The session that this process has, or one that is started and ended here. Raises as `create_spark_session`."""
    require_java(os.environ)
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession()
    session = there or create_spark_session(name, conf=conf)
    try:
        yield session
    finally:
        if there is None:
            end_session(session)


def merge_spark_settings(
    conf: Mapping[str, str], must: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """All settings but where the driver is; later ones win: ours, `conf`, those of WATERSHED_SPARK_CONF, `must`.

    Raises WrongUse.
    """
    return _SETTINGS | dict(conf) | _further(environ) | dict(must)


def read_spark_master(environ: Mapping[str, str] = os.environ) -> str:
    """The master that WATERSHED_SPARK_MASTER names, else `local[2]`."""
    return environ.get("WATERSHED_SPARK_MASTER") or "local[2]"


def is_local_master(master: str) -> bool:
    """Whether driver and executors are one process on this machine."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def find_driver_address(context: SparkContext) -> tuple[str, str]:
    """(address to listen at, address by which executors reach it) for a line of ours from tasks to the driver."""
    conf = context.getConf()
    host = conf.get("spark.driver.host") or "127.0.0.1"
    bind = conf.get("spark.driver.bindAddress") or host
    return bind, host


def end_session(session: SparkSession, patience: float = 15.0) -> None:
    """Stop the session and wait until its Java is gone; left alone it ends a moment after this process."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    with contextlib.suppress(Py4JError, OSError):  # Java is gone already
        session.stop()
    gateway = SparkContext._gateway
    java: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or java is None:
        return
    with contextlib.suppress(Py4JError, OSError):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    if java.stdin is not None:
        with contextlib.suppress(OSError):
            java.stdin.close()  # what it ends on
    try:
        java.wait(patience)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


def _further(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of WATERSHED_SPARK_CONF: a key, blanks (or `=`, or `:`), its value; `#` begins a comment line."""
    name = environ.get("WATERSHED_SPARK_CONF")
    if not name:
        return {}
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"cannot read WATERSHED_SPARK_CONF={name}: {error}") from None
    settings = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = re.fullmatch(r"\s*(spark\.[^\s=:]+)(?:\s*[=:]\s*|\s+)(.*?)\s*", line)
        if not found:
            # the line is not shown: what stands in such files may be a password
            raise WrongUse(f"{name}, line {number}: expected `spark.KEY VALUE`")
        settings[found[1]] = found[2]
    if "spark.master" in settings:
        raise WrongUse(
            f"{name}: spark.master is not read from here; set WATERSHED_SPARK_MASTER={settings['spark.master']}"
        )
    if settings.get("spark.submit.deployMode", "client") != "client":
        raise WrongUse(f"{name}: spark.submit.deployMode must be client, the evidence is written where the driver runs")
    return settings


def _seen_by(master: str) -> str:
    """This machine's address on the way to the master (of several: to the first that answers).

    Raises WrongUse when no standalone master answers (Spark itself would try for a minute and then say little).
    """
    addresses = list_master_addresses(master)
    for host, port in addresses:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=_MASTER_S) as line:
            return str(line.getsockname()[0])
    if master.startswith("spark://"):
        told = ", ".join(f"{host}:{port}" for host, port in addresses)
        raise WrongUse(f"no Spark master answers at {told} (WATERSHED_SPARK_MASTER={master}). Is it running?")
    return socket.getfqdn()


def ship_packages(context: SparkContext) -> None:
    """Give the executors our packages as they are here. The archive lies in a folder that Spark removes in the end."""
    if not any(Path(each).name == PACKAGE_ARCHIVE for each in context.listFiles):
        context.addPyFile(str(write_package_archive(Path(context._temp_dir))))


def require_java(environ: Mapping[str, str] = os.environ) -> int:
    """Major version of the Java that Spark would start. Raises JavaMissing, which says how to get one."""
    home = environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environ.get("PATH"))
    where = f"JAVA_HOME={home}" if home else "PATH"
    if program is None or not os.access(program, os.X_OK):
        raise JavaMissing(f"Spark needs Java {_JAVA} or newer, and there is none ({where}). {_HOW_TO_GET_JAVA}")
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(f"{program} does not start ({error}). {_HOW_TO_GET_JAVA}") from None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if not found:
        raise JavaMissing(f"{program} does not say which version it is. {_HOW_TO_GET_JAVA}")
    major = int(found[2] or 0) if found[1] == "1" else int(found[1])
    if major < _JAVA:
        raise JavaMissing(f"Spark needs Java {_JAVA} or newer; {program} is Java {major}. {_HOW_TO_GET_JAVA}")
    return major
