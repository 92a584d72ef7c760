# Every node, worker and service of a cluster has this image: one Headrace, one set of versions.
#
#     docker build -t headrace .                                # PyTorch for CPUs
#     docker build -t headrace:cuda --build-arg DEVICE=cuda .   # for NVIDIA GPUs; the driver is the host's
FROM python:3.11-slim

# wget: KubeRay asks by it whether a node is well. g++: what DeepSpeed and Triton compile.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ ninja-build wget \
    && rm -rf /var/lib/apt/lists/* \
    && pip install --no-cache-dir uv \
    && useradd --create-home --uid 1000 headrace

WORKDIR /opt/headrace
ENV UV_SYSTEM_PYTHON=1 UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1
ARG DEVICE=cpu

# The libraries are a layer of their own, which a change of code leaves alone. Their versions are
# those of constraints.txt; PyTorch's own index has that version for CPUs, under another hash.
COPY pyproject.toml constraints.txt ./
RUN case "$DEVICE" in \
        cpu) backend="--torch-backend=cpu" ;; \
        cuda) backend="" ;; \
        *) echo "DEVICE is '$DEVICE': cpu or cuda" >&2; exit 1 ;; \
    esac \
    && sed 's/ \\$//; /--hash/d' constraints.txt > versions.txt \
    && uv pip install $backend --constraints versions.txt --requirements pyproject.toml \
        --extra cluster

COPY README.md headrace.py ./
COPY model model
COPY cluster cluster
COPY tasks tasks
COPY flows flows
RUN uv pip install --no-deps .

# A folder that a volume may take the place of, with the rights of its user.
RUN install --directory --owner=headrace --mode=0700 /home/headrace/.headrace
USER 1000
WORKDIR /home/headrace
ENV HEADRACE_HOME=/home/headrace/.headrace
CMD ["headrace", "--help"]
