"""The simulated providers from outside: their flags, and the control pages by which they fail, recover and count."""

from __future__ import annotations

import aiohttp

from proxy.simulation.demo.settings import CHAT_MODEL, EMBEDDING_MODEL, MESSAGES_MODEL, DemoSettings

LATENCY = "lognormal:120ms,0.4"
TOKENS_PER_SECOND = "60"


def flags(settings: DemoSettings) -> list[str]:
    """Returns the arguments of `sponson sim`."""
    listen = [part for name, address in settings.providers.items() for part in ("--listen", f"{name}={address}")]
    models = [part for model in (CHAT_MODEL, EMBEDDING_MODEL, MESSAGES_MODEL) for part in ("--model", model)]
    return ["sim", *listen, *models, "--latency", LATENCY, "--tokens-per-second", TOKENS_PER_SECOND]


class Providers:
    """All of them; raises aiohttp.ClientError when one cannot be reached."""

    def __init__(self, session: aiohttp.ClientSession, settings: DemoSettings) -> None:
        self._session = session
        self._urls = {name: f"http://{address}" for name, address in settings.providers.items()}

    async def ready(self) -> bool:
        """Whether all of them listen."""
        try:
            for url in self._urls.values():
                async with self._session.get(f"{url}/health") as response:
                    response.raise_for_status()
        except aiohttp.ClientError:
            return False
        return True

    async def fail(self, name: str, fault: str) -> None:
        """One begins to fail as `fault` says (the grammar of `sponson sim --fault`)."""
        async with self._session.post(f"{self._urls[name]}/sim/faults", json=[fault]) as response:
            response.raise_for_status()

    async def recover(self, name: str) -> None:
        """It works again."""
        async with self._session.delete(f"{self._urls[name]}/sim/faults") as response:
            response.raise_for_status()

    async def peaks(self) -> dict[str, int]:
        """Name → most requests that it ever served at once."""
        found = {}
        for name, url in self._urls.items():
            async with self._session.get(f"{url}/sim/stats") as response:
                found[name] = int((await response.json())["peak_in_flight"])
        return found
