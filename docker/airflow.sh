#!/usr/bin/env bash
# Airflow's components in a container: `airflow.sh init`, `airflow.sh healthy COMPONENT`, `airflow.sh COMPONENT …`.
# Secrets that all components share are made once, in the shared volume.
set -euo pipefail
secrets=${AIRFLOW_HOME:?}/secrets
secret() { python -c 'import base64, secrets; print(base64.urlsafe_b64encode(secrets.token_bytes(int(__import__("sys").argv[1]))).decode())' "$1"; }

if [[ ${1:-} == init ]]; then
  topologies=${WATERSHED_TOPOLOGIES:?}
  if [[ ! -r $topologies || ! -x $topologies ]]; then
    echo "airflow.sh: uid $(id -u) of the containers cannot read the folder of topologies ($topologies here); on the host:" \
      "chmod go+rx FOLDER && chmod go+r FOLDER/*" >&2
    exit 2
  fi
  umask 077
  mkdir -p "$secrets" "${WATERSHED_STATE:?}"
  for name in jwt session; do [[ -s $secrets/$name ]] || secret 64 >"$secrets/$name"; done
  [[ -s $secrets/fernet ]] || secret 32 >"$secrets/fernet"
  if [[ ! -s $AIRFLOW_HOME/passwords.json ]]; then
    python -c 'import json, secrets; print(json.dumps({name: secrets.token_urlsafe(12) for name in ("admin", "ops", "view")}))' \
      >"$AIRFLOW_HOME/passwords.json"
  fi
  exec airflow db migrate
fi

AIRFLOW__API_AUTH__JWT_SECRET=$(<"$secrets/jwt")
AIRFLOW__API__SECRET_KEY=$(<"$secrets/session")
AIRFLOW__CORE__FERNET_KEY=$(<"$secrets/fernet")
export AIRFLOW__API_AUTH__JWT_SECRET AIRFLOW__API__SECRET_KEY AIRFLOW__CORE__FERNET_KEY

case ${1:-} in
healthy)
  # What the api-server knows of the component from its heartbeats: asking Airflow itself imports all of it, every time.
  exec python -c 'import json, sys, urllib.request
url = "http://airflow-api-server:8080/api/v2/monitor/health"
health = json.load(urllib.request.urlopen(url, timeout=8))
sys.exit(health[sys.argv[1]]["status"] != "healthy")' "${2:?name a component}"
  ;;
api-server) shift && exec airflow api-server --host 0.0.0.0 --port 8080 "$@" ;;
scheduler | triggerer) exec airflow "$1" --skip-serve-logs ;;
*) exec airflow "$@" ;;
esac
