"""Providers behind TLS: trusted by configuration, told apart when they are not, and bounded when they hang."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from tests.integration.caller import HOST
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, CHAT_STREAM, DONE, event, says, streams
from tests.integration.scripted import ScriptedProvider

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


def policy(port: int) -> dict[str, Any]:
    """A policy of one provider behind TLS, and another one that is well."""
    secure = {"base_url": f"https://localhost:{port}/v1", "breaker": {"consecutive": 2}}
    return {
        "version": 1,
        "providers": {"secure": {**secure, "timeouts": {"connect": "500ms"}}, "well": {}},
        "routes": [
            route("secure", "secure", retry={"attempts": 3, "base": "10ms"}),
            route("either", "secure", "well", retry={"attempts": 3, "base": "10ms"}),
        ],
    }


@asynccontextmanager
async def behind(certificate: trustme.LeafCert, authority: trustme.CA) -> AsyncIterator[tuple[Lab, ScriptedProvider]]:
    """A proxy that trusts this authority, and a provider with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    provider = ScriptedProvider()
    server = await asyncio.get_running_loop().create_server(provider._protocol, HOST, 0, ssl=context)
    with authority.cert_pem.tempfile() as trusted:
        async with Lab(policy(server.sockets[0].getsockname()[1]), env={"SSL_CERT_FILE": trusted}) as lab:
            lab["well"].script = says("well")
            yield lab, provider
    server.close()


async def test_an_authority_of_the_operator_s_is_trusted_and_connections_are_reused() -> None:
    authority = trustme.CA()
    async with behind(authority.issue_cert("localhost"), authority) as (lab, provider):
        provider.script = says("safe")
        for _ in range(3):
            assert (await lab.chat("secure")).status == 200
        provider.script = streams(event("a"), DONE)
        assert (await lab.chat("secure", stream=True)).complete
        assert {request.connection for request in provider.seen} == {provider.seen[0].connection}
        assert provider.seen[0].header("host") == f"localhost:{lab.policy['providers']['secure']['base_url'][18:-3]}"


async def test_a_tls_connection_that_the_provider_ended_while_it_rested_fails_no_request() -> None:
    authority = trustme.CA()
    async with behind(authority.issue_cert("localhost"), authority) as (lab, provider):

        async def answers_and_ends(exchange: Any) -> None:
            await exchange.reply(200, b"ok")
            exchange.close()

        provider.script = answers_and_ends
        for number in range(1, 4):
            answer = await lab.call("/secure/v1/unknown", CHAT)
            assert (answer.status, answer.attempts, len(provider.seen)) == (200, 1, number)
            await lab.proxy.until(lambda status: all(row["idle"] == 0 for row in status["connections"]))


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "expired": ({"not_before": NOW - 9 * DAY, "not_after": NOW - DAY}, "localhost", "expired"),
    "another name": ({}, "elsewhere.test", "mismatch"),
}


@pytest.mark.parametrize("fault", [*FAULTS, "unknown authority"])
async def test_a_certificate_that_cannot_be_trusted_costs_one_attempt_and_is_told(fault: str) -> None:
    authority = trustme.CA()
    if fault in FAULTS:
        validity, name, told = FAULTS[fault]
        certificate = authority.issue_cert(name, **validity)
    else:
        certificate, told = trustme.CA().issue_cert("localhost"), "SSL_CERT_FILE"
    async with behind(certificate, authority) as (lab, provider):
        answer = await lab.chat("secure")
        assert (answer.status, answer.reason, answer.attempts) == (502, "upstream_unreachable", 1)
        assert told in (await lab.proxy.line_of(answer))["detail"]
        assert (await lab.row("breakers", provider="secure", model="secure"))["failures"] == 1
        answer = await lab.chat("either")
        assert (answer.status, answer.provider, answer.attempts) == (200, "well", 2)
        assert not provider.seen
        assert provider.accepted == 0


async def test_a_handshake_that_never_ends_costs_its_own_callers_the_connect_limit_only() -> None:
    with socket.create_server((HOST, 0)) as silent:
        async with Lab(policy(silent.getsockname()[1])) as lab:
            lab["well"].script = says("well")
            calls = [asyncio.ensure_future(lab.chat("secure")) for _ in range(20)]
            assert (await lab.call("/well/v1/chat/completions", CHAT_STREAM)).status == 200
            answers = await asyncio.gather(*calls)
            told = {(answer.status, answer.reason) for answer in answers}
            assert told <= {(504, "connect_timeout"), (503, "breaker_open")}
            assert (504, "connect_timeout") in told
            assert (await lab.proxy.get("/livez")).status == 200
