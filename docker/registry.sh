#!/usr/bin/env bash
# A schema registry that keeps what it knows in /var/lib/registry: `registry.sh`, and `registry.sh ready`.
set -euo pipefail
if [[ ${1:-} == ready ]]; then
  exec 3<>/dev/tcp/127.0.0.1/8080
  printf 'GET /health/ready HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&3
  read -r -t 5 status <&3
  [[ $status == *" 200 "* ]]
  exit
fi
export REGISTRY_DATASOURCE_URL=${REGISTRY_DATASOURCE_URL:-jdbc:h2:file:${REGISTRY_DATA:-/var/lib/registry}/registry}
exec java -Xmx256m -Dquarkus.http.host=0.0.0.0 -Dquarkus.http.port="${REGISTRY_PORT:-8080}" -jar "${REGISTRY_HOME:-/opt/registry}"/*-runner.jar
