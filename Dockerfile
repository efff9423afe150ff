# One image for the API, the workers and the migration: `rem serve`, `rem worker`, `rem db migrate`.
FROM python:3.12-slim AS build
WORKDIR /build
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY src src
RUN python -m venv /opt/rem \
 && /opt/rem/bin/pip install --no-cache-dir --constraint requirements.lock '.[ingest,metrics,otel,s3]'

FROM python:3.12-slim
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
