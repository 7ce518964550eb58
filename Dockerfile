# The image of a hub and of a silo: silohash with the extra "service", without torch. compose.yaml builds and runs it.
#   docker build --tag silohash .
# Further extras: --build-arg EXTRAS=service,pgvector, or service,backbones for models of published networks.

ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
ARG EXTRAS=service
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
COPY recipes recipes
RUN python -m venv /opt/silohash && \
    /opt/silohash/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt ".[${EXTRAS}]"

FROM python:${PYTHON}-slim
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin silohash
COPY --from=build /opt/silohash /opt/silohash
# The root file system can be read-only: compiled code and other caches go to /tmp.
ENV PATH=/opt/silohash/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    HOME=/tmp SILOHASH_CACHE=/tmp/silohash MPLCONFIGDIR=/tmp/matplotlib NUMBA_CACHE_DIR=/tmp/numba \
    ORT_DISABLE_TELEMETRY=1 HF_HUB_DISABLE_TELEMETRY=1
USER 10001:10001
WORKDIR /federation
ENTRYPOINT ["silohash"]
CMD ["--help"]
