resource "confluent_cluster_link" "main" {
  link_name = "main
  source_kafka_cluster { id = "lkc-1" }
}
