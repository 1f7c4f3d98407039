# Kernel Playground in a container; docs/anywhere.md says how it is used and what of it was tried.
# Without a GPU, and with CUDA's compiler and a GPU:
#   docker build --tag kernel-playground .
#   docker build --tag kernel-playground --build-arg BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04 .
ARG BASE=python:3.12-slim

# ---- what the playground needs of a machine; the dev containers are built as far as here
# hadolint ignore=DL3006
FROM ${BASE} AS machine
# hadolint ignore=DL3008,SC2046
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        ca-certificates g++ git make $(command -v python3 >/dev/null || echo python3-dev python3-venv) \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --shell /bin/bash reader
# hadolint ignore=DL3066
USER reader
WORKDIR /home/reader
# JupyterLab is to listen to what the container publishes, and not only to the container itself.
RUN mkdir .cache .jupyter kernel-playground \
    && echo '{"ServerApp": {"ip": "0.0.0.0"}}' >.jupyter/jupyter_server_config.json
WORKDIR /home/reader/kernel-playground

# ---- the playground itself
FROM machine AS playground
# An index that pip asks besides PyPI, such as PyTorch's own of builds without CUDA.
ARG PIP_EXTRA_INDEX_URL=""
ENV PIP_NO_CACHE_DIR=1
COPY --chown=reader . .
RUN make .venv/.ready && .venv/bin/python -m compileall -q .venv/lib
EXPOSE 8888
CMD ["make", "lab"]
