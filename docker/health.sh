#!/usr/bin/env bash
# health.sh PORT: whether a worker or an exporter at this port of the container is ready (docs/metrics.md).
set -euo pipefail
exec 3<>"/dev/tcp/127.0.0.1/${1:?name a port}"
printf 'GET /health/ready HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&3
read -r -t 5 status <&3
[[ $status == *" 200 "* ]]
