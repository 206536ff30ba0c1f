"""What Spark's Python daemons of the tests import before they fork their workers (tests/spark/conftest.py); by itself
each worker imports it anew, for 0.7 s of processor time. Python runs this file at every start that finds it."""

import sys

if "pyspark.daemon" in sys.orig_argv:
    import watershed.spark.source
    import watershed.spark.spark_range_readers  # noqa: F401
