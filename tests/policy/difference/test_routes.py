from __future__ import annotations

from proxy.policy.difference.change import Sign
from proxy.policy.difference.routes import requests, routes
from tests.policy.difference.policies import difference, reload_of, says, section, told
from tests.policy.samples import GOOD, ROUTE

TWO = GOOD + ROUTE + "  - {name: rest, match: {path: /v1/embeddings}, tiers: [{provider: a}]}\n"
ONE = GOOD + ROUTE


def test_equal_ones_have_none() -> None:
    step = reload_of(TWO, TWO)
    assert list(routes(step)) == [None, None]
    assert requests(step) is None


def test_settings_that_change() -> None:
    new = TWO.replace(
        "{path: /v1/embeddings}", "{model: [x, 'y*'], header: {x-a: [b, c]}}, repeatable: true, total: 9s"
    )
    assert says(section(difference(TWO, new), "route rest")) == {
        "match.path": ("/v1/embeddings", "any"),
        "match.model": ("any", "x, y*"),
        "match.header": ("any", "x-a: b, c"),
        "total": ("10m", "9s"),
        "repeatable": ("by the path", "true"),
    }


def test_a_budget_keeps_its_count() -> None:
    new = ONE + "    retry: {budget: 0.5}\n"
    one = section(difference(ONE, new), "route chat")
    assert says(one) == {"retry.budget": ("0.2", "0.5")}
    assert told(one) == "what the retry budget has counted stays counted"


def test_a_class_is_that_of_new_requests() -> None:
    one = section(difference(ONE, ONE + "    class: P2\n    class_from_header: true\n"), "route chat")
    assert says(one) == {"class": ("P1", "P2"), "class_from_header": ("false", "true")}
    assert "who waits keeps its place and the class that it came with" in told(one)
    assert one.warnings == ("callers may raise their calls to P0 now, by x-sponson-class",)


def test_other_headers_make_other_keys() -> None:
    one = section(difference(ONE, ONE + "    idempotency: {from: [x-a, x-b], keep: 1h}\n"), "route chat")
    assert says(one) == {"idempotency": ("idempotency-key", "all of x-a, x-b"), "idempotency.keep": ("10m", "1h")}
    assert one.warnings == ("requests without all of x-a, x-b are refused: 400 bad_request",)
    assert "answers that are kept already stay as long as they were to" in told(one)


def test_lanes() -> None:
    one = section(difference(ONE, ONE + "    lanes: [{max_output: 100, share: 0.3}]\n"), "route chat")
    assert says(one) == {"lanes": ("none", "0.3 up to 100 tokens")}
    assert told(one) == "who waits keeps its place; permits in use stay counted where they were taken"


def test_modes() -> None:
    new = ONE + "    mode: observe\n"
    assert "hold none of its requests back any more" in told(section(difference(ONE, new), "route chat"))
    assert "a breaker that is open now refuses them" in told(section(difference(new, ONE), "route chat"))


def test_new_gone_and_renamed_ones() -> None:
    new = TWO.replace("name: rest", "name: others")
    added, gone = (section(difference(TWO, new), f"route {name}") for name in ("others", "rest"))
    assert (added.sign, gone.sign) == (Sign.ADDED, Sign.REMOVED)
    assert "`was: rest` would keep its retry budgets" in told(added)
    renamed = section(difference(TWO, TWO.replace("name: rest", "name: others, was: rest")), "route others")
    assert (renamed.sign, says(renamed)) == (Sign.CHANGED, {"name": ("rest", "others")})
    assert told(renamed) == "keeps its retry budgets: what was counted stays counted"


def test_was_without_effect() -> None:
    never = TWO.replace("name: rest", "name: others, was: nobody")
    assert "`was: nobody` has no effect" in told(section(difference(ONE, never), "route others"))
    gone = TWO.replace("  - name: chat\n    match: {path: /v1/chat/completions}\n    tiers: [{provider: a}]\n", "")
    gone = gone.replace("name: rest", "name: rest, was: chat")
    assert "`was: chat` of rest has no effect" in told(section(difference(TWO, gone), "route chat"))


def test_where_requests_go() -> None:
    one = section(difference(TWO, ONE), "where requests go")
    assert says(one) == {"/v1/embeddings": ("route rest", "404 no_route")}
    assert told(one) == "requests that were taken before are refused: 404 no_route"
    assert says(section(difference(ONE, GOOD), "where requests go"))["routes"] == ("some", "none")


def test_another_order_that_moves_no_request() -> None:
    new = GOOD + "routes:\n" + TWO.rpartition("routes:\n")[2].replace(ROUTE[8:], "") + ROUTE[8:]
    one = section(difference(TWO, new), "where requests go")
    assert says(one) == {"order of routes": ("chat, rest", "rest, chat")}
    assert told(one) == "no request was found that another route takes"
