// destination initiated, from a module
variable "kafka_source" {
  type = object({ id = string, bootstrap_endpoint = string })
}
resource "confluent_cluster_link" "this" {
  count     = var.enabled ? 1 : 0
  link_name = var.cluster_link_name
  source_kafka_cluster {
    id                 = var.kafka_source.id
    bootstrap_endpoint = var.kafka_source.bootstrap_endpoint
    credentials {
      key    = var.kafka_source_api_key
      secret = var.kafka_source_api_secret
    }
  }
  destination_kafka_cluster {
    id            = module.dst.cluster.id
    rest_endpoint = module.dst.cluster.rest_endpoint
    credentials {
      key    = var.a
      secret = "${var.b}"
    }
  }
  config = merge(var.link_config, local.defaults, {
    "consumer.offset.sync.enable" = "true"
    "consumer.offset.sync.ms"     = var.interval
  })
}
resource "confluent_kafka_mirror_topic" "t" {
  for_each = { orders = "a.orders", "x" = "y" }
  source_kafka_topic { topic_name = each.key }
  mirror_topic_name = each.value
  cluster_link { link_name = confluent_cluster_link.this[0].link_name }
  kafka_cluster { id = module.dst.cluster.id }
}
locals {
  defaults = { "consumer.offset.sync.ms" = 5000, "cluster.link.prefix" = "dst." }
}
