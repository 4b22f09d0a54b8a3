"""Takes OpenTelemetry exports and forgets them, so that a measured proxy has somewhere to send its own.

`GET /` answers with how many exports came and how many bytes they had: proof that telemetry was really on.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import uvloop
from aiohttp import web


def build_app() -> web.Application:
    """The collector as an application; each has its own counts."""
    counts: Counter[str] = Counter()

    async def take(request: web.Request) -> web.Response:
        body = await request.read()
        counts[f"{request.path} exports"] += 1
        counts[f"{request.path} bytes"] += len(body)
        return web.Response(content_type="application/x-protobuf")

    async def tell(request: web.Request) -> web.Response:
        return web.json_response(counts)

    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.add_routes([web.get("/", tell), web.post("/{path:.*}", take)])
    return app


async def serve() -> None:
    """Serve until cancelled; the port goes to standard output."""
    runner = web.AppRunner(build_app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve())
