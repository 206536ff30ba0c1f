resource "confluent_cluster_link" "destination" {
  link_name       = "source-initiated"
  link_mode       = "DESTINATION"
  connection_mode = "INBOUND"
  destination_kafka_cluster {
    id            = var.destination_kafka_cluster_id
    rest_endpoint = "https://pkc-2.example.internal:443"
    credentials {
      key    = var.k
      secret = var.s
    }
  }
  source_kafka_cluster {
    id                 = "lkc-src9"
    bootstrap_endpoint = "pkc-1.example.internal:9092"
  }
}

resource "confluent_cluster_link" "source" {
  link_name       = "source-initiated"
  link_mode       = "SOURCE"
  connection_mode = "OUTBOUND"
  source_kafka_cluster {
    id            = "lkc-src9"
    rest_endpoint = "https://pkc-1.example.internal:443"
  }
  destination_kafka_cluster {
    id                 = var.destination_kafka_cluster_id
    bootstrap_endpoint = "pkc-2.example.internal:9092"
  }
}

resource "confluent_kafka_mirror_topic" "orders" {
  source_kafka_topic { topic_name = "orders" }
  cluster_link { link_name = confluent_cluster_link.source.link_name }
  kafka_cluster { id = var.destination_kafka_cluster_id }
}
