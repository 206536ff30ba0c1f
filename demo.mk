# make demo [FAULT=worker] · make up · make down: the demonstration (lab/demo)

.PHONY: demo up down

demo: env jars
	.venv/bin/python -m lab.demo run --fault "$(FAULT)"

up: env jars
	.venv/bin/python -m lab.demo up

down:
	.venv/bin/python -m lab.demo down
