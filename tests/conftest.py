"""Settings that hold for every test."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No time limit for an example: machines that run tests are shared, and a slow one proves nothing.
settings.register_profile("sponson", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sponson")

# What the machine is set up with must not reach the processes and settings under test.
for _name in list(os.environ):
    if _name.startswith(("SPONSON_", "OTEL_")) or _name.lower() in {"http_proxy", "https_proxy", "all_proxy"}:
        del os.environ[_name]
