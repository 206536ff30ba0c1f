# make demo [FAULT=worker] [RECORDS=10000000] · make up · make down: the demonstration (lab/demo)

.PHONY: demo up down

RECORDS ?= 2000000
demo: env jars ## a whole migration on real clusters, with proof; FAULT=worker kills a worker meanwhile
	.venv/bin/python -m lab.demo run --fault "$(FAULT)" --records $(RECORDS)

up: env jars ## clusters, applications, workers and Airflow, left running
	.venv/bin/python -m lab.demo up

down: ## end what make up started
	.venv/bin/python -m lab.demo down
