# The image of the sidecar: the command `sponson` in an environment of its own, and nothing to build with.

FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/sponson
WORKDIR /src
# The lock file constrains: the image gets the tested versions, without the tools of development.
COPY requirements.lock ./
COPY LICENSE README.md pyproject.toml ./
COPY otel otel
COPY policies policies
COPY proxy proxy
RUN /opt/sponson/bin/pip install --constraint requirements.lock '.[redis]' \
    && /opt/sponson/bin/pip uninstall --yes pip

FROM python:3.13-slim
COPY --from=build /opt/sponson /opt/sponson
ENV PATH=/opt/sponson/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
WORKDIR /
ENTRYPOINT ["sponson"]
CMD ["run"]
