# What compose.yaml needs besides the vacuum: an S3 server, an Azure server, and Spark. None is for production.

# Both may be given with digests: README.md says how to find them.
ARG PYTHON=python:3.11.14-slim-bookworm
ARG NODE=node:22.20.0-bookworm-slim

FROM ${PYTHON} AS s3
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1
WORKDIR /opt/s3
COPY .ci/constraints.txt ./
RUN python -m pip install --only-binary :all: -c constraints.txt "moto[s3,server]"
COPY docker/s3_server.py ./
USER 10001:10001
EXPOSE 5000
HEALTHCHECK --interval=2s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 5000), 3)"]
ENTRYPOINT ["python", "s3_server.py"]
CMD ["0.0.0.0", "5000"]

FROM ${NODE} AS azure
WORKDIR /opt/azurite
COPY .ci/npm/azurite/package.json .ci/npm/azurite/package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund
ENV PATH=/opt/azurite/node_modules/.bin:${PATH}
USER 10001:10001
WORKDIR /tmp
EXPOSE 10000
HEALTHCHECK --interval=2s --timeout=5s --start-period=30s --retries=3 \
    CMD ["node", "-e", "require('net').connect(10000, '127.0.0.1', () => process.exit()).on('error', () => process.exit(1))"]
ENTRYPOINT ["azurite-blob", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableProductStyleUrl", "--disableTelemetry"]
CMD ["--silent", "--blobHost", "0.0.0.0", "--blobPort", "10000"]

FROM ${PYTHON} AS spark
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1
# Hadoop needs a user with a name. Java is not pinned: Debian removes a version when a fixed one is released.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install --yes --no-install-recommends openjdk-17-jre-headless && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --no-create-home dbio
WORKDIR /opt/job
COPY .ci/constraints.txt pyproject.toml LICENSE README.md ./
COPY dbio_commit dbio_commit
COPY vacuum vacuum
RUN python -m pip install -c constraints.txt ".[s3,azure,local]"
COPY docker/example_job.py ./
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["python", "/opt/job/example_job.py"]
