#!/usr/bin/env bash
# Spark standalone out of the Python package: `spark.sh master`, `spark.sh worker`, `spark.sh ready`.
set -euo pipefail
SPARK_HOME=$(python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
export SPARK_HOME
class=org.apache.spark.deploy
case ${1:-} in
master) exec "$SPARK_HOME/bin/spark-class" $class.master.Master --host "$(hostname)" --port 7077 --webui-port 8080 ;;
worker)
  exec "$SPARK_HOME/bin/spark-class" $class.worker.Worker --cores "${SPARK_CORES:-2}" --memory "${SPARK_MEMORY:-2g}" \
    --work-dir /tmp/spark-work "${SPARK_MASTER:-spark://spark-master:7077}"
  ;;
ready) python -c 'import socket; socket.create_connection((socket.gethostname(), 7077), 3)' ;;
*)
  echo "usage: spark.sh master | worker | ready" >&2
  exit 2
  ;;
esac
