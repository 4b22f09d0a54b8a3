"""The reverse proxy that most people would write: `web.Application` in front, `ClientSession` behind.

Answers are read and then sent; event streams are passed on as they come. It has no limits, no retries and no
telemetry: what Sponson does beyond this has to be paid for out of what it saves.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator

import uvloop
from aiohttp import ClientResponse, ClientSession, web
from multidict import CIMultiDict, CIMultiDictProxy

HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length"}
)
SESSION = web.AppKey("session", ClientSession)
UPSTREAM = web.AppKey("upstream", str)


def end_to_end(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """The headers that concern more than one connection."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP)


async def relay(request: web.Request) -> web.StreamResponse:
    """Send the request on and its answer back."""
    body = await request.read()
    url = request.app[UPSTREAM] + request.path_qs
    headers = end_to_end(request.headers)
    async with request.app[SESSION].request(request.method, url, headers=headers, data=body) as answer:
        if answer.content_type == "text/event-stream":
            return await relay_stream(request, answer)
        content = await answer.read()
        return web.Response(status=answer.status, headers=end_to_end(answer.headers), body=content)


async def relay_stream(request: web.Request, answer: ClientResponse) -> web.StreamResponse:
    """Pass each piece on when it comes."""
    response = web.StreamResponse(status=answer.status, headers=end_to_end(answer.headers))
    await response.prepare(request)
    async for piece in answer.content.iter_any():
        await response.write(piece)
    await response.write_eof()
    return response


async def hold_session(app: web.Application) -> AsyncIterator[None]:
    """One client session for as long as the application runs."""
    async with ClientSession() as session:
        app[SESSION] = session
        yield


def build_app(upstream: str) -> web.Application:
    """The proxy as an application in front of `upstream`, a URL without a path."""
    app = web.Application()
    app[UPSTREAM] = upstream
    app.cleanup_ctx.append(hold_session)
    app.router.add_route("*", "/{path:.*}", relay)
    return app


def main() -> None:
    """Serve on the given port until terminated."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True)
    options = parser.parse_args()
    loop = uvloop.new_event_loop()
    app = build_app(options.upstream)
    web.run_app(app, host="127.0.0.1", port=options.port, access_log=None, print=None, loop=loop)


if __name__ == "__main__":
    main()
