"""No default of a library decides: proxies and credentials of the environment, cookies, redirects, authorities."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.integration.caller import HOST, call, latin, request_bytes
from tests.integration.harness import Lab, ProxyProcess, route
from tests.integration.messages import CHAT, answers, says
from tests.integration.scripted import Exchange, ScriptedProvider
from tests.integration.test_telemetry import exporting
from tests.otel.sink import collector

pytestmark = pytest.mark.asyncio(loop_scope="module")

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": {"breaker": "off", "propagate_trace": False, "base_url": "http://localhost:{port}/v1"},
        "elsewhere": {"breaker": "off", "propagate_trace": False},
    },
    "routes": [
        route("alpha", "alpha", retry={"base": "10ms"}),
        {"name": "get", "match": {"path": "/v1/get*"}, "tiers": [{"provider": "alpha"}]},
    ],
}
ALL_WAYS = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
SECRET = "netrc-4b1d"


@asynccontextmanager
async def tempting(home: Path) -> AsyncIterator[tuple[ScriptedProvider, dict[str, str]]]:
    """A proxy that takes everything, and an environment that names it and has a credential for every host."""
    netrc = home / ".netrc"
    netrc.write_text(f"machine localhost login me password {SECRET}\ndefault login me password {SECRET}\n")
    netrc.chmod(0o600)
    async with ScriptedProvider() as trap:
        ways = dict.fromkeys(ALL_WAYS, f"http://{HOST}:{trap.port}")
        yield trap, {**ways, "no_proxy": "", "NO_PROXY": "", "HOME": str(home), "NETRC": str(netrc)}


async def test_neither_a_proxy_nor_a_credential_of_the_environment_is_used(tmp_path: Path) -> None:
    async with tempting(tmp_path) as (trap, env), Lab(POLICY, env=env) as lab:
        lab["alpha"].script = says("hi")
        for method, path in (("POST", "/v1/chat/completions"), ("GET", "/v1/get/models")):
            lab["alpha"].forget()
            answer = await lab.call(path, {**CHAT, "model": "alpha"} if method == "POST" else None, method=method)
            assert answer.status == 200
            seen = lab["alpha"].only
            assert seen.target == path.encode()
            assert not {"authorization", "proxy-authorization", "cookie"} & set(seen.names)
            assert base64.b64encode(f"me:{SECRET}".encode()) not in seen.head
        assert trap.accepted == 0


async def test_telemetry_goes_straight_to_its_collector_with_the_credential_that_is_meant_for_it(
    tmp_path: Path,
) -> None:
    meant = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20meant"}
    with collector() as sink:
        async with tempting(tmp_path) as (trap, env), Lab(POLICY, env={**env, **exporting(sink.url), **meant}) as lab:
            lab["alpha"].script = says("hi")
            assert (await lab.chat("alpha")).status == 200
            async with asyncio.timeout(10):
                while not all(sink.bodies.values()):
                    await asyncio.sleep(0.02)
            assert trap.accepted == 0
        assert set(sink.credentials) == {"Bearer meant"}


async def test_what_a_caller_did_not_send_no_provider_gets_on_any_attempt(tmp_path: Path) -> None:
    async with tempting(tmp_path) as (_, env), Lab(POLICY, env=env) as lab:
        lab["alpha"].script = answers(503, headers=[("set-cookie", "session=1; Path=/")])
        bare = b'{"model":"alpha"}'
        async with lab.wire() as wire:
            for _ in range(2):
                await wire.send(request_bytes("POST", "/v1/chat/completions", body=bare))
                answer = await wire.answer()
                assert (answer.status, answer.attempts) == (503, 3)
                assert answer.all("set-cookie") == ["session=1; Path=/"]
        assert len(lab["alpha"].seen) == 6
        for seen in lab["alpha"].seen:
            assert sorted(set(seen.names) - {"via"}) == ["content-length", "host"]
            assert seen.body == bare


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("code", [300, 301, 302, 303, 307, 308])
async def test_a_redirect_is_the_caller_s_to_follow(lab: Lab, code: int) -> None:
    where = f"http://{HOST}:{lab['elsewhere'].port}/v1/taken?x=%2F"
    lab["alpha"].script = answers(code, b"", headers=[("Location", where), ("Refresh", "0")])
    for method, path in (("POST", "/v1/chat/completions"), ("GET", "/v1/get/it"), ("HEAD", "/v1/get/it")):
        lab["alpha"].forget()
        answer = await lab.call(path, {**CHAT, "model": "alpha"} if method == "POST" else None, method=method)
        assert (answer.status, answer.all("location"), answer.attempts) == (code, [where], 1)
        assert len(lab["alpha"].seen) == 1
    assert lab["elsewhere"].accepted == 0


BARE_ANSWERS = {
    "length": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
    "chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "empty": b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "failing": b"HTTP/1.1 400 No\r\ncontent-length: 2\r\n\r\nhi",
    "kept": b"HTTP/1.1 502 No\r\nx-should-retry: false\r\ncontent-length: 2\r\n\r\nhi",
}


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("name", BARE_ANSWERS)
async def test_nothing_is_invented_for_an_answer_that_says_little(lab: Lab, name: str) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(BARE_ANSWERS[name])

    lab["alpha"].script = script
    answer = await lab.chat("alpha")
    names = {latin(name).lower() for name, _ in answer.headers if not name.startswith(b"x-sponson-")}
    assert names <= {b"content-length", b"transfer-encoding", b"x-should-retry"}
    assert answer.complete


@pytest.mark.usefixtures("clean")
async def test_fields_of_a_client_library_pass_as_they_are(lab: Lab) -> None:
    fields = [
        (b"User-Agent", b"Odd/1.0 (x; y) \xe9"),
        (b"Accept", b"*/*;q=0.1, text/event-stream"),
        (b"Accept-Encoding", b"zstd;q=1.0, *;q=0"),
        (b"Accept-Language", b"de"),
        (b"Content-Type", b"application/json; charset=x-odd"),
        (b"Content-MD5", b"c3VtIG9mIGl0"),
        (b"Cookie", b"a=1; b=2"),
        (b"Cookie", b"c=3"),
        (b"Range", b"bytes=5-"),
        (b"If-None-Match", b'W/"x"'),
        (b"Cache-Control", b"no-store"),
        (b"Pragma", b"no-cache"),
        (b"Origin", b"null"),
        (b"Sec-Fetch-Mode", b"cors"),
        (b"X-Forwarded-For", b"10.0.0.1"),
        (b"Forwarded", b"for=10.0.0.1"),
    ]
    assert (await lab.chat("alpha", headers=fields)).status == 200
    names = {name.lower() for name, _ in fields}
    assert [field for field in lab["alpha"].only.headers if field[0].lower() in names] == fields


@asynccontextmanager
async def behind_tls(authority: trustme.CA) -> AsyncIterator[int]:
    """A provider whose certificate this authority has signed; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi")
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    server = await asyncio.start_server(serve, HOST, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", None])
async def test_only_the_system_s_own_variable_adds_an_authority(tmp_path: Path, variable: str | None) -> None:
    authority = trustme.CA()
    bundle = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(bundle))
    async with behind_tls(authority) as port:
        policy = {"version": 1, "providers": {"sealed": {"base_url": f"https://localhost:{port}"}}}
        env = {variable: str(bundle)} if variable is not None else {}
        async with ProxyProcess(policy, flags=["--linger", "0s"], env=env) as proxy:
            answer = await call(proxy.port, "/v1/models", method="GET")
            if variable == "SSL_CERT_FILE":
                assert (answer.status, answer.body) == (200, b"hi")
            else:
                assert (answer.status, answer.reason) == (502, "upstream_unreachable")
