# The node agent. Built from the repository's root, from wheels that were made outside:
#     tests/images/wheelhouse.sh python3 3.11 build/wheels
#     podman build -f docker/agent.Dockerfile -t aegis-agent build/wheels
# The GPU library is the node's own: mount /opt/rocm read-only, or build on a base that has it. Without
# it the agent runs, and says that it knows nothing of the GPUs.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
ARG VERSION=0.1.0
COPY *.whl /wheels/
RUN python3 -m venv /opt/aegis \
 && /opt/aegis/bin/pip install --no-cache-dir --no-index --find-links /wheels \
      "aegis-supervisor[agent]==${VERSION}" \
 && /opt/aegis/bin/pip uninstall --yes pip

FROM ${BASE}
LABEL org.opencontainers.image.title="Aegis node agent" \
      org.opencontainers.image.licenses="Apache-2.0"
# A number, so that Kubernetes can see that it is not root. Give it the node's render and video groups.
RUN mkdir -p /var/lib/aegis-agent /run/aegis \
 && chown 10002:10002 /var/lib/aegis-agent /run/aegis \
 && chmod 0700 /var/lib/aegis-agent
COPY --from=build /opt/aegis /opt/aegis
ENV PATH=/opt/aegis/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10002:10002
VOLUME /var/lib/aegis-agent
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["/opt/aegis/bin/python", "-c", "import socket; socket.socket(socket.AF_UNIX).connect('/run/aegis/agent.sock')"]
ENTRYPOINT ["/opt/aegis/bin/aegis", "agent", "--state-dir", "/var/lib/aegis-agent", "--socket", "/run/aegis/agent.sock"]
