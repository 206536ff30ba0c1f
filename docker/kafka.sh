#!/usr/bin/env bash
# A single KRaft broker (controller and broker in one): `kafka.sh broker ALIAS`, and `kafka.sh ready`.
# Inside the network it is ALIAS:9092; from the host 127.0.0.1 and the port of HOST_PORT.
set -euo pipefail
home=${KAFKA_HOME:-/opt/kafka} data=${KAFKA_DATA:-/var/lib/kafka}
run() { java -Xmx"${KAFKA_HEAP:-512m}" -Dlog4j2.configurationFile="$home/log4j2.properties" -cp "$home/libs/*" "$@"; }

case ${1:-} in
ready)
  # An ApiVersions request (key 18, version 0, correlation id 1, no client id), and the correlation id of its answer; a
  # Java program that asks the same takes a second of a processor, every five seconds.
  exec 3<>"/dev/tcp/127.0.0.1/${INNER_PORT:-9092}"
  printf '\0\0\0\012\0\022\0\0\0\0\0\001\377\377' >&3
  answer=$(timeout 5 head -c 8 <&3 | od -An -tx1 | tr -d ' \n')
  [[ ${answer:8} == 00000001 ]]
  ;;
broker)
  alias=${2:?name the cluster}
  case $alias in onprem) host_port=${HOST_PORT:-19092} ;; *) host_port=${HOST_PORT:-29092} ;; esac
  inner=${INNER_PORT:-9092} controller=${CONTROLLER_PORT:-9093} address=${ADDRESS:-$alias}
  mkdir -p "$data/log"
  cat >"$data/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
controller.listener.names=CONTROLLER
inter.broker.listener.name=INNER
listeners=INNER://:$inner,HOST://:$host_port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=INNER://$address:$inner,HOST://127.0.0.1:$host_port
listener.security.protocol.map=INNER:PLAINTEXT,HOST:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$data/log
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
PROPERTIES
  if [[ ! -e $data/log/meta.properties ]]; then
    [[ -s $data/cluster.id ]] || run kafka.tools.StorageTool random-uuid >"$data/cluster.id"
    run kafka.tools.StorageTool format -t "$(<"$data/cluster.id")" -c "$data/server.properties"
  fi
  exec java -Xmx"${KAFKA_HEAP:-512m}" -Dlog4j2.configurationFile="$home/log4j2.properties" -cp "$home/libs/*" \
    kafka.Kafka "$data/server.properties"
  ;;
*)
  echo "usage: kafka.sh broker ALIAS | kafka.sh ready" >&2
  exit 2
  ;;
esac
