variable "environment_id" { type = string }
variable "london_key" {
  type      = string
  sensitive = true
}
variable "offset_sync_ms" { default = 5000 }
variable "mirrored" {
  type    = list(string)
  default = ["rates.eur", "rates.usd"]
}
locals {
  link_name = "dr-link"
  domain    = "ledger"
}
