# The controller. Built from the repository's root, from wheels that were made outside:
#     tests/images/wheelhouse.sh python3 3.11 build/wheels
#     podman build -f docker/controller.Dockerfile -t aegis-controller build/wheels
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
ARG VERSION=0.1.0
COPY *.whl /wheels/
RUN python3 -m venv /opt/aegis \
 && /opt/aegis/bin/pip install --no-cache-dir --no-index --find-links /wheels \
      "aegis-supervisor[controller]==${VERSION}" \
 && /opt/aegis/bin/pip uninstall --yes pip

FROM ${BASE}
LABEL org.opencontainers.image.title="Aegis controller" \
      org.opencontainers.image.licenses="Apache-2.0"
# A number, so that Kubernetes can see that it is not root.
RUN mkdir -p /var/lib/aegis && chown 10001:10001 /var/lib/aegis && chmod 0700 /var/lib/aegis
COPY --from=build /opt/aegis /opt/aegis
ENV PATH=/opt/aegis/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
VOLUME /var/lib/aegis
EXPOSE 8500
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["/opt/aegis/bin/python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8500/livez', timeout=4)"]
ENTRYPOINT ["/opt/aegis/bin/aegis", "controller", "--data", "/var/lib/aegis"]
# All addresses of the container's own network; what is published is for `-p` to say.
CMD ["--listen", "0.0.0.0:8500"]
