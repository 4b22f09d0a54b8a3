"""What an experimenter asks a provider: what it received, what it counts, and which faults it has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import orjson
from aiohttp import web

from proxy.simulation.provider.grammar import FaultError, parse_json
from proxy.simulation.provider.service import Service
from proxy.simulation.provider.spelling import format_fault


class Control:
    """The /sim pages of one provider; `changed` is called when its faults were replaced."""

    def __init__(self, name: str, service: Service, changed: Callable[[], None]) -> None:
        self._name = name
        self._service = service
        self._changed = changed

    def add_routes(self, router: web.UrlDispatcher, prefix: str = "") -> None:
        """Adds the pages under `prefix`."""
        router.add_get(f"{prefix}/health", self._health)
        router.add_get(f"{prefix}/sim/requests", self._requests)
        router.add_get(f"{prefix}/sim/stats", self._stats)
        router.add_delete(f"{prefix}/sim/stats", self._reset)
        router.add_get(f"{prefix}/sim/faults", self._faults)
        router.add_post(f"{prefix}/sim/faults", self._set_faults)
        router.add_delete(f"{prefix}/sim/faults", self._clear_faults)

    async def _health(self, request: web.Request) -> web.Response:
        return _json({"status": "ok", "provider": self._name})

    async def _requests(self, request: web.Request) -> web.Response:
        return _json({"requests": [seen.as_json() for seen in self._service.ledger.requests]})

    async def _stats(self, request: web.Request) -> web.Response:
        return _json(asdict(self._service.ledger.stats()))

    async def _reset(self, request: web.Request) -> web.Response:
        self._service.ledger.reset()
        return await self._stats(request)

    async def _faults(self, request: web.Request) -> web.Response:
        return _json({"faults": [format_fault(fault) for fault in self._service.schedule.faults]})

    async def _set_faults(self, request: web.Request) -> web.Response:
        try:
            faults = parse_json(orjson.loads(await request.read()))
        except orjson.JSONDecodeError as error:
            return _json({"error": f"the body is not JSON: {error}"}, status=400)
        except FaultError as error:
            return _json({"error": str(error)}, status=400)
        self._service.set_faults(faults)
        self._changed()
        return await self._faults(request)

    async def _clear_faults(self, request: web.Request) -> web.Response:
        self._service.set_faults(())
        self._changed()
        return await self._faults(request)


def _json(value: dict[str, Any], *, status: int = 200) -> web.Response:
    body = orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n"
    return web.Response(body=body, status=status, content_type="application/json")
