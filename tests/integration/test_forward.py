"""The forward proxy over sockets: whole addresses through the pipeline, and no open relay."""

from __future__ import annotations

from itertools import product
from typing import Any

from tests.integration.caller import HOST
from tests.integration.forwards import forward
from tests.integration.harness import route
from tests.integration.messages import CHAT, says
from tests.integration.scripted import Exchange, ScriptedProvider

TWO: dict[str, Any] = {
    "version": 1,
    "providers": {"a": {"breaker": {"consecutive": 2}}, "b": {}},
    "routes": [route("m", "a", "b", retry={"attempts": 1}), route("n", "b")],
}


async def test_a_whole_address_is_a_request_like_any_other() -> None:
    async with forward(TWO) as here:
        here.lab["a"].script = says("a")
        answer = await here.ask(here.url("a", "/v1/chat/completions?x=%2F"), headers=[("x-mine", "1")])
        assert (answer.status, answer.provider) == (200, "a")
        request = here.lab["a"].only
        assert request.target == b"/v1/chat/completions?x=%2F"
        assert request.all("host") == [f"{HOST}:{here.lab['a'].port}".encode()]
        assert request.header("x-mine") == "1"
        assert "proxy-connection" not in request.names


async def test_the_routes_of_the_provider_apply_with_all_their_tiers() -> None:
    async with forward(TWO) as here:

        async def fails(exchange: Exchange) -> None:
            await exchange.reply(500, {"error": {}})

        here.lab["a"].script, here.lab["b"].script = fails, says("b")
        answer = await here.ask(here.url("a"), {**CHAT, "model": "m"})
        assert (answer.status, answer.provider, answer.tier) == (200, "b", 2)


async def test_no_route_of_another_provider_takes_it() -> None:
    async with forward(TWO) as here:
        here.lab["a"].script = here.lab["b"].script = says("x")
        answer = await here.ask(here.url("a"), {**CHAT, "model": "n"})
        assert (answer.status, answer.provider) == (200, "a")


async def test_a_path_beside_that_of_base_url_is_kept() -> None:
    paths = ["/other/place", "/a/v1/models", "/v2/models", "/", "/v1", "/v1/%2e%2E//x?y"]
    async with forward({"version": 1, "providers": {"a": {}}}) as here:
        for path in paths:
            assert (await here.ask(here.url("a", path), None, method="GET")).status == 200
        assert [request.target.decode() for request in here.lab["a"].seen] == paths


async def test_a_listed_name_is_asked_at_its_own_address() -> None:
    async with ScriptedProvider() as other:
        policy = {"version": 1, "providers": {"a": {"hosts": [f"localhost:{other.port}"], "headers": {"x-team": "t"}}}}
        async with forward(policy) as here:
            target = f"http://LOCALHOST:{other.port}/v1/models"
            assert (await here.ask(target, None, method="GET")).status == 200
            assert other.only.header("host") == f"localhost:{other.port}"
            assert other.only.header("x-team") == "t"
            # What is written replaces the host of base_url.
            refused = await here.ask(here.url("a"))
            assert (refused.status, refused.reason) == (403, "forbidden_target")
            assert here.lab["a"].seen == []


async def test_nothing_else_is_reached() -> None:
    async with ScriptedProvider() as other, forward(TWO) as here:
        own = here.lab.proxy
        places = [
            f"{HOST}:{other.port}", f"localhost:{here.lab['a'].port}", "169.254.169.254:80", f"127.1:{other.port}",
            f"2130706433:{here.lab['a'].port}", f"[::ffff:127.0.0.1]:{here.lab['a'].port}", "nobody.invalid:443",
            *(f"{HOST}:{port}" for port in (own.port, own.admin, here.port)),
        ]  # fmt: skip
        for method, place in product(("GET", "CONNECT"), places):
            target = place if method == "CONNECT" else f"http://{place}/v1/models"
            answer = await here.ask(target, None, method=method, headers=[("x", here.url("a"))])
            assert (answer.status, answer.reason) in [(403, "forbidden_target"), (400, "bad_request")], place
            assert "error" in answer.json()
        assert other.accepted == here.lab["a"].accepted == here.lab["b"].accepted == 0


async def test_other_targets_are_refused() -> None:
    async with forward({"version": 1, "providers": {"a": {}}}) as here:
        for target in ("/v1/models", "*", "ftp://a.example/", "http://u@127.0.0.1/", "a.example:80"):
            assert (await here.ask(target, None, method="OPTIONS")).status == 400
        assert "--listen" in (await here.ask("/v1/models", None, method="GET")).body.decode()
        assert here.lab["a"].accepted == 0


async def test_the_other_listener_stays_what_it_is() -> None:
    async with forward(TWO) as here:
        for method, target in (("GET", here.url("a")), ("CONNECT", f"{HOST}:{here.lab['a'].port}")):
            assert (await here.lab.call(target, None, method=method)).status == 400
        assert here.lab["a"].accepted == 0
