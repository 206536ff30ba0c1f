resource "confluent_kafka_mirror_topic" "rates" {
  for_each = toset(var.mirrored)
  source_kafka_topic { topic_name = each.value }
  cluster_link { link_name = confluent_cluster_link.dr.link_name }
  kafka_cluster {
    id = confluent_kafka_cluster.dublin.id
  }
}

resource "confluent_kafka_mirror_topic" "old" {
  source_kafka_topic { topic_name = "old" }
  cluster_link { link_name = local.link_name }
  kafka_cluster { id = confluent_kafka_cluster.dublin.id }
  status = "PROMOTED"
}

resource "confluent_kafka_mirror_topic" "computed" {
  source_kafka_topic { topic_name = upper(var.environment_id) }
  cluster_link { link_name = local.link_name }
}

module "network" {
  source = "./network"
}
