"""The whole of Watershed in containers: `python -m watershed.lab.containers run|down` (make containers, make
containers-down).

It finds an engine, makes base images where no registry can be asked, builds the images of docker/Dockerfile, starts
docker-compose.yaml with docker/demo.yaml, and carries the demonstration out in them.
"""
