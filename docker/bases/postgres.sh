#!/usr/bin/env bash
# Postgres as its image starts it, as far as docker-compose.yaml asks for: POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB.
set -euo pipefail
programs=$(echo /usr/lib/postgresql/*/bin)
PATH=$programs:$PATH
if [[ ! -s ${PGDATA:?}/PG_VERSION ]]; then
  initdb --username "${POSTGRES_USER:?}" --pwfile <(printf '%s' "${POSTGRES_PASSWORD:?}") --auth scram-sha-256 --encoding UTF8
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  pg_ctl --wait --silent --options "-c listen_addresses= -k /tmp" start
  PGPASSWORD=$POSTGRES_PASSWORD createdb --host /tmp --username "$POSTGRES_USER" "${POSTGRES_DB:?}"
  pg_ctl --wait --silent --mode fast stop
fi
exec postgres -c 'listen_addresses=*' "$@"
