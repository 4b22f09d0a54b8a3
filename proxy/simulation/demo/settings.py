"""What one demo is like: its addresses, its length, and whether it stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HOST = "127.0.0.1"
BASE_PORT = 4000
HIGHEST_BASE_PORT = 65535 - 13
PROVIDERS = {"alpha": 11, "beta": 12, "gamma": 13}
"""Name → distance of its port from the base; with the usual base they are the addresses in `policies/local.yaml`."""

CHAT_MODEL = "sim-chat"
EMBEDDING_MODEL = "sim-embed"
MESSAGES_MODEL = "sim-messages"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """One demo. `seconds` is the length of its traffic without the wait for breakers to close."""

    base_port: int = BASE_PORT
    seconds: float = 12.0
    stay: bool = False
    environ: Mapping[str, str]
    """Passed on to the processes, without what would configure the proxy or its telemetry."""

    @property
    def listen(self) -> str:
        """The proxy's address."""
        return f"{HOST}:{self.base_port}"

    @property
    def admin(self) -> str:
        """The address of its admin port."""
        return f"{HOST}:{self.base_port + 1}"

    @property
    def providers(self) -> dict[str, str]:
        """Name → address of each simulated provider."""
        return {name: f"{HOST}:{self.base_port + offset}" for name, offset in PROVIDERS.items()}

    @property
    def ports(self) -> dict[int, str]:
        """Port → who needs it."""
        providers = {self.base_port + offset: f"provider {name}" for name, offset in PROVIDERS.items()}
        return {self.base_port: "the proxy", self.base_port + 1: "the admin port", **providers}
