#!/usr/bin/env bash
# Spark standalone out of the Python package: `spark.sh master`, `spark.sh worker`, and `spark.sh ready PORT`: whether
# somebody listens at this port of the container.
set -euo pipefail
if [[ ${1:-} == ready ]]; then
  exec 3<>"/dev/tcp/$(hostname)/${2:?name a port}"
  exit
fi
SPARK_HOME=$(python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
export SPARK_HOME
class=org.apache.spark.deploy
# A machine that is gone closes no connection. Workers report four times in this time (s); Spark's own is 60.
export SPARK_DAEMON_JAVA_OPTS="-Dspark.worker.timeout=10 ${SPARK_DAEMON_JAVA_OPTS:-}"
case ${1:-} in
master)
  # A master that starts again finds its workers and applications in this folder; without it, fleets would end for good.
  export SPARK_DAEMON_JAVA_OPTS="-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory=${SPARK_RECOVERY:-/state/master} $SPARK_DAEMON_JAVA_OPTS"
  exec "$SPARK_HOME/bin/spark-class" $class.master.Master --host "$(hostname)" --port 7077 --webui-port 8080
  ;;
worker)
  exec "$SPARK_HOME/bin/spark-class" $class.worker.Worker --cores "${SPARK_CORES:-2}" --memory "${SPARK_MEMORY:-2g}" \
    --work-dir /tmp/spark-work "${SPARK_MASTER:-spark://spark-master:7077}"
  ;;
*)
  echo "usage: spark.sh master | worker | ready PORT" >&2
  exit 2
  ;;
esac
