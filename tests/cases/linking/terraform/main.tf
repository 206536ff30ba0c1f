terraform {
  required_providers {
    confluent = { source = "confluentinc/confluent", version = ">= 2.0" }
  }
}

data "confluent_kafka_cluster" "london" {
  id = "lkc-lon111"
  environment { id = var.environment_id }
}

resource "confluent_kafka_cluster" "dublin" {
  display_name = "dublin"
  availability = "MULTI_ZONE"
  cloud        = "AWS"
  region       = "eu-west-1"
  dedicated { cku = 2 }
}

resource "confluent_api_key" "link" {
  display_name = "link"
}

resource "confluent_cluster_link" "dr" {
  link_name = local.link_name
  source_kafka_cluster {
    id                 = data.confluent_kafka_cluster.london.id
    bootstrap_endpoint = "SASL_SSL://pkc-lon.eu-west-2.aws.example.internal:9092"
    credentials {
      key    = var.london_key
      secret = "s3cr3t"
    }
  }
  destination_kafka_cluster {
    id            = confluent_kafka_cluster.dublin.id
    rest_endpoint = confluent_kafka_cluster.dublin.rest_endpoint
    credentials {
      key    = confluent_api_key.link.id
      secret = confluent_api_key.link.secret
    }
  }
  config = {
    "consumer.offset.sync.enable"      = true
    "consumer.offset.sync.ms"          = var.offset_sync_ms
    "acl.sync.ms"                      = var.unknown ? 1 : 2
    "auto.create.mirror.topics.enable" = "true"
    "auto.create.mirror.topics.filters" = jsonencode({
      topicFilters = [
        { name = "${local.domain}.", patternType = "PREFIXED", filterType = "INCLUDE" },
        { name = "ledger.scratch", patternType = "LITERAL", filterType = "EXCLUDE" },
      ]
    })
    "consumer.offset.group.filters" = <<-EOT
      {"groupFilters": [{"name": "ledger-", "patternType": "PREFIXED", "filterType": "INCLUDE"}]}
    EOT
  }
  lifecycle {
    prevent_destroy = true
  }
}
