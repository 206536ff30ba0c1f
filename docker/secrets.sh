#!/usr/bin/env bash
# secrets.sh FILE: writes the passwords that docker-compose.yaml asks for, random, readable by the owner only. A file that
# is there stays: Postgres keeps the password with which its volume was made.
set -euo pipefail
file=${1:?usage: secrets.sh FILE}
if [ -e "$file" ]; then
  echo "compose-secrets: $file is there and stays as it is" >&2
  exit 0
fi
password=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
umask 077
set -C # never over a file that came meanwhile
printf 'WATERSHED_POSTGRES_PASSWORD=%s\n' "$password" >"$file"
echo "compose-secrets: wrote $file" >&2
