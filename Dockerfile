# One image for the API, the workers and the migration: `rem serve`, `rem worker`, `rem db migrate`.
FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea AS build
WORKDIR /build
COPY requirements-image.lock ./
# A file that is not the one whose hash is locked is refused. The build backend is one of them.
RUN python -m venv /opt/rem \
 && /opt/rem/bin/pip install --no-cache-dir --require-hashes --requirement requirements-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/rem/bin/pip install --no-cache-dir --no-index --no-deps --no-build-isolation . \
 && /opt/rem/bin/pip uninstall --yes hatchling tomlkit trove-classifiers

FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea
RUN useradd --uid 10001 --no-create-home --home-dir /tmp rem
COPY --from=build /opt/rem /opt/rem
# The root file system is read-only at run time: only REM_HOME and /tmp are written.
ENV PATH=/opt/rem/bin:$PATH REM_HOME=/tmp/rem PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 API__HOST=0.0.0.0
USER 10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health/live', timeout=2)"]
ENTRYPOINT ["rem"]
CMD ["serve"]
