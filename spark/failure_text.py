"""What Spark says when it fails, as one sentence for people and one error of ours (exit 2).

Uncaught, a failure of Spark would end the proof with Python's 1, which means "different". Messages are found by what
Spark 4 and the kernel print; what is not recognised is named by its first line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from watershed.spark.errors import SparkError

# what our own code raised on an executor stands in the traceback of the task
_OURS = re.compile(r"^(?:clusters|replicator|spark|topology)\.[\w.]+: (.+)$", re.MULTILINE)
_JAVA_IS_GONE = "Spark's Java process has ended: it was killed, or ran out of memory (spark.driver.memory)"
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)$", re.MULTILINE)
_KNOWN = (
    (
        r"No module named '([\w.]+)'",
        "an executor's Python has no module {0}: install Watershed's requirements there (requirements/spark.txt), "
        "or name a Python that has them by PYSPARK_PYTHON",
    ),
    (
        r'Cannot run program "([^"]+)"',
        "an executor has no Python at {0}: name the one on the executors' machines by PYSPARK_PYTHON",
    ),
    (
        r"PYTHON_VERSION_MISMATCH|Python in worker has different version",
        "the executors' Python is of another minor version than this one: name an equal one by PYSPARK_PYTHON",
    ),
    (
        r"OutOfMemoryError|\bMemoryError\b|OOMKilled|exceeding memory limits"
        r"|[Ee]xit(?:ed with)? (?:code|status):? (?:137|143)\b",
        "an executor ran out of memory or was ended from outside: give it more "
        "(spark.executor.memory, spark.executor.memoryOverhead)",
    ),
    (
        r"Python worker exited unexpectedly|Python worker failed to connect back",
        "a Python process on an executor was ended from outside, as the kernel does when memory is short "
        "(spark.executor.memoryOverhead)",
    ),
    (r"CANNOT_OPEN_SOCKET|JAVA_GATEWAY_EXITED|Answer from Java side is empty", _JAVA_IS_GONE),
    (r"ExecutorLostFailure", "executors were lost, more often than Spark tries a task again (spark.task.maxFailures)"),
    (
        r"All masters are unresponsive|Master removed our application|stopped SparkContext|SparkContext was shut down",
        "the Spark cluster ended our application, or its master is gone; its log says why",
    ),
)


@contextmanager
def raise_as_spark_error(what: str, remedy: str) -> Iterator[None]:
    """Raises SparkError `WHAT: why. REMEDY` for whatever Spark raises inside: a failed job, or Java that is gone."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, OSError, EOFError) as error:
        raise SparkError(f"{what}: {describe_failure(error)}. {remedy}") from error


def describe_failure(error: BaseException) -> str:
    """Why Spark failed, in one line without a full stop."""
    from py4j.protocol import Py4JJavaError, Py4JNetworkError

    text = str(error)
    if ours := _OURS.findall(text):
        return str(ours[-1])[:300].rstrip(".")
    for pattern, told in _KNOWN:
        if found := re.search(pattern, text):
            return told.format(*found.groups())
    if isinstance(error, Py4JNetworkError | ConnectionError | EOFError):
        return _JAVA_IS_GONE
    if raised := _RAISED.findall(text):
        return str(raised[-1])[:300].rstrip(".")
    if isinstance(error, Py4JJavaError):
        text = str(error.java_exception)
    first = text.strip().split("\n")[0][:300].rstrip(".")
    return first or type(error).__name__
