// One link, two resources: each is the half at its local cluster.
resource "confluent_cluster_link" "at-east" {
  link_name = "bidirectional-link"
  link_mode = "BIDIRECTIONAL"
  local_kafka_cluster {
    id            = data.confluent_kafka_cluster.east.id
    rest_endpoint = data.confluent_kafka_cluster.east.rest_endpoint
    credentials {
      key    = confluent_api_key.east.id
      secret = confluent_api_key.east.secret
    }
  }
  remote_kafka_cluster {
    id                 = data.confluent_kafka_cluster.west.id
    bootstrap_endpoint = data.confluent_kafka_cluster.west.bootstrap_endpoint
    credentials {
      key    = confluent_api_key.west.id
      secret = confluent_api_key.west.secret
    }
  }
  config = { "cluster.link.prefix" = "west." }
}

resource "confluent_cluster_link" "at-west" {
  link_name = "bidirectional-link"
  link_mode = "BIDIRECTIONAL"
  local_kafka_cluster {
    id            = data.confluent_kafka_cluster.west.id
    rest_endpoint = data.confluent_kafka_cluster.west.rest_endpoint
  }
  remote_kafka_cluster {
    id                 = data.confluent_kafka_cluster.east.id
    bootstrap_endpoint = data.confluent_kafka_cluster.east.bootstrap_endpoint
  }
}

data "confluent_kafka_cluster" "east" { id = var.east_kafka_cluster_id }
data "confluent_kafka_cluster" "west" { id = var.west_kafka_cluster_id }

resource "confluent_kafka_mirror_topic" "from_east" {
  source_kafka_topic { topic_name = "trips" }
  cluster_link { link_name = confluent_cluster_link.at-east.link_name }
  kafka_cluster { id = data.confluent_kafka_cluster.west.id }
  status = "PAUSED"
}

resource "confluent_kafka_mirror_topic" "from_west" {
  source_kafka_topic { topic_name = "trips" }
  mirror_topic_name = "west.trips"
  cluster_link { link_name = confluent_cluster_link.at-east.link_name }
  kafka_cluster { id = data.confluent_kafka_cluster.east.id }
}
