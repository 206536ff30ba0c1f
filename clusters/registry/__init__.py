"""Schema registries with the REST API of Confluent's: what is in one (`client`), and whether two schemas are the same.

`settings` says where a cluster's registry is, `translation` which id at the target stands for an id of the source.
"""
