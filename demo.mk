# make demo [FAULT=worker] [RECORDS=10000000] [SOURCE=2.4.1] · make up · make down: the demonstration (lab/demo)

.PHONY: demo up down

RECORDS ?= 2000000
SOURCE ?= 4.3.1
demo: env jars ## a whole migration on real clusters, with proof; FAULT=worker kills a worker meanwhile; SOURCE=2.4.1 moves from that Kafka
	.venv/bin/python -m watershed.lab.demo run --fault "$(FAULT)" --records $(RECORDS) --source $(SOURCE)

up: env jars ## clusters, applications, workers and Airflow, left running
	.venv/bin/python -m watershed.lab.demo up --source $(SOURCE)

down: ## end what make up started
	.venv/bin/python -m watershed.lab.demo down
