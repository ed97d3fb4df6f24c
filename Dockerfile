# One image for the agent and for the reference worker, chosen by argument:
#
#     docker build --tag unstuck .
#     docker run --env UNSTUCK_REDIS=redis://redis:6379/0 --publish 127.0.0.1:9797:9797 --read-only unstuck
#     docker run --env UNSTUCK_REDIS=redis://redis:6379/0 --volume ./tasks.py:/app/tasks.py:ro unstuck worker mail tasks:send
#
# The base is an argument, its digest another; pin both where builds shall be repeatable:
#
#     docker build --build-arg BASE_DIGEST=sha256:… .
#
# Where packages come from somewhere special, hand pip's configuration over as a secret; it is in no layer:
#
#     docker build --secret id=pip,src=/etc/pip.conf .
#
# `make test-image` builds it without a container engine, on a base of its own, and looks into the result.
ARG BASE_IMAGE=python:3.13-slim-bookworm
ARG BASE_DIGEST=

# ── the wheel, and an environment that holds exactly the pinned packages ──
FROM ${BASE_IMAGE}${BASE_DIGEST:+@${BASE_DIGEST}} AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore

WORKDIR /src
COPY requirements/build.txt requirements/run.txt requirements/
# The tools stay behind in /tools; /opt/unstuck has no pip. Packages first: they change less often than our code.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv /tools \
    && /tools/bin/pip install --quiet --require-hashes -r requirements/build.txt \
    && python3 -m venv --without-pip /opt/unstuck \
    && /tools/bin/pip --python /opt/unstuck/bin/python3 install --quiet --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY watchdog watchdog
COPY exporters exporters
COPY alerts alerts
COPY grafana grafana
RUN /tools/bin/pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir /wheels . \
    && /tools/bin/pip --python /opt/unstuck/bin/python3 install --quiet --no-deps --no-index /wheels/*.whl \
    && /tools/bin/pip --python /opt/unstuck/bin/python3 check

# ── what runs ──
FROM ${BASE_IMAGE}${BASE_DIGEST:+@${BASE_DIGEST}}

ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="unstuck" \
      org.opencontainers.image.description="A sidecar for Redis job queues: finds stuck jobs, proves it, and gets them moving again." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"

COPY --from=build /opt/unstuck /opt/unstuck

# Nothing is ever written: the byte code was compiled above, logs go to standard error, state lives in Redis.
ENV PATH=/opt/unstuck/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    UNSTUCK_HTTP_LISTEN=0.0.0.0:9797

# A number, so that Kubernetes can see that it is not root. It owns nothing and needs no home.
USER 65532:65532
# Modules with handlers for `worker` are looked up here.
WORKDIR /app
EXPOSE 9797
STOPSIGNAL SIGTERM
# For the agent. A worker serves no health: switch this off for it, as deploy/compose.yaml does.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["python3", "-m", "unstuck.healthcheck"]
ENTRYPOINT ["unstuck"]
CMD ["run"]
