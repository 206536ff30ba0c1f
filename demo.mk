# make demo [FAULT=worker] · make up · make down: the demonstration (lab/demo)

.PHONY: demo up down

demo: env jars ## a whole migration on real clusters, with proof; FAULT=worker kills a worker meanwhile
	.venv/bin/python -m lab.demo run --fault "$(FAULT)"

up: env jars ## clusters, applications, workers and Airflow, left running
	.venv/bin/python -m lab.demo up

down: ## end what make up started
	.venv/bin/python -m lab.demo down
