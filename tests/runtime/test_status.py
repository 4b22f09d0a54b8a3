"""/status, /policy and the gauges: what is, by its present name, and no secret."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator

import pytest

from proxy.decisions.bodies import BodyMemory
from proxy.decisions.queues import Ask, Line
from proxy.runtime.reload import PolicyState
from proxy.runtime.status import StatusReader, policy_document
from proxy.upstream.pool import Pool
from tests.runtime.shop import POLICY, WAITS, Shop, breaker_of, changed, park, rest, targets

SECRETS = {"KEY_1": "hush-hush-1", "KEY_2": "hush-hush-2"}


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = Shop(dict(SECRETS))
    shop.live(POLICY)
    yield shop
    await shop.close()


def status(shop: Shop) -> dict[str, list[dict[str, object]]]:
    shown: dict[str, list[dict[str, object]]] = StatusReader(shop.kept, shop.clock, admission=shop.admission).status()
    return shown


def row(rows: list[dict[str, object]], **wanted: object) -> dict[str, object]:
    (found,) = [each for each in rows if wanted.items() <= each.items()]
    return found


def gauges(shop: Shop, name: str) -> dict[tuple[str, ...], float]:
    readings = StatusReader(shop.kept, shop.clock, admission=shop.admission).gauges()
    return {tuple(value for _, value in each.labels): each.value for each in readings if each.name == name}


async def test_permits_show_every_limit_with_its_use(shop: Shop) -> None:
    permit = shop.permit("alpha", "large")
    assert permit.key is not None
    shown = {str(each["limit"]): (each["in_use"], each["size"]) for each in status(shop)["permits"]}
    assert shown["all providers"] == (1, 50)
    assert shown["provider alpha"] == (1, 10)
    assert shown["model alpha/large"] == (1, 3)
    assert shown["connections beta"] == (0, 100)
    assert shown["key alpha/a2"] == (int(permit.key.id == "a2"), 5)


async def test_breakers_show_their_state_and_when_they_may_be_asked_again(shop: Shop) -> None:
    shop.trip(breaker_of(shop, "large"))
    shop.clock.advance(10.0)
    opened = row(status(shop)["breakers"], provider="alpha", model="large")
    assert (opened["state"], opened["address"]) == ("open", "http://127.0.0.1:9")
    assert isinstance(opened["retry_after"], float)
    assert 0.0 < opened["retry_after"] < 60.0
    closed = row(status(shop)["breakers"], provider="alpha", model="other")
    assert (closed["state"], closed["retry_after"]) == ("closed", 0.0)


async def test_time_alone_moves_what_is_shown(shop: Shop) -> None:
    shop.trip(breaker_of(shop, "large"))
    shop.clock.advance(61.0)
    assert row(status(shop)["breakers"], provider="alpha", model="large")["state"] == "half_open"
    assert gauges(shop, "sponson.breaker.state")["alpha", "large"] == 1


async def test_queues_show_who_waits_where(shop: Shop) -> None:
    for _ in range(5):
        shop.enter("alpha", "large")
    alpha = row(status(shop)["queues"], provider="alpha")
    assert (alpha["waiting"], alpha["by_target"]) == (2, {"alpha/large": 2})
    waiting = gauges(shop, "sponson.queue.waiting")
    assert (waiting["alpha", "large", "P1"], waiting["alpha", "large", "P0"], waiting["beta", "other", "P1"]) == (
        2,
        0,
        0,
    )
    assert row(status(shop)["queues"], provider="beta")["waiting"] == 0


async def test_waiters_are_counted_by_model_and_class_also_those_of_queues_that_no_policy_uses(shop: Shop) -> None:
    for klass in (0, 0, 2, 2, 2, 2):
        shop.admission.enter(shop.core(Line, "line", "alpha", "large"), Ask(klass=klass, limits=WAITS), 0.0)
    shop.live(changed("    keys: [{id: a1, env: KEY_1}, {id: a2, env: KEY_2, concurrency: 5}]\n", ""))
    shop.admission.enter(shop.core(Line, "line", "alpha", "large"), Ask(klass=2, limits=WAITS), 0.0)
    waiting = gauges(shop, "sponson.queue.waiting")
    assert [waiting["alpha", "large", klass] for klass in ("P0", "P1", "P2")] == [0, 0, 4]


async def test_models_that_callers_invented_wait_under_one_label(shop: Shop) -> None:
    tier = targets(shop.live(POLICY))
    for model in ("m-1", "m-2"):
        tier.of(model)
        for _ in range(6):
            shop.enter("alpha", model)

    def label(provider: str, model: str) -> str:
        return model if model == "large" else "other"

    reader = StatusReader(shop.kept, shop.clock, label, admission=shop.admission)
    found = [(dict(each.labels), each.value) for each in reader.gauges() if each.name == "sponson.queue.waiting"]
    assert [value for labels, value in found if labels == {"provider": "alpha", "model": "other", "class": "P1"}] == [2]


async def test_attempts_are_counted_by_their_connections_whatever_permits_say(shop: Shop) -> None:
    for _ in range(3):
        shop.permit("alpha", "large")
    assert gauges(shop, "sponson.attempts.active")["alpha",] == 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        shop.live(changed("http://127.0.0.1:9/v1\n    keys", f"{url}\n    keys"))
        pool = shop.core(Pool, "pool", "alpha")
        used, rested = await pool.dialer.dial(5.0), await pool.dialer.dial(5.0)
        pool.put(rested, shop.clock.now())
    assert gauges(shop, "sponson.attempts.active")["alpha",] == 1
    shop.live(POLICY)
    assert gauges(shop, "sponson.attempts.active")["alpha",] == 1, "an address that no policy uses still has it"
    used.kill()
    assert gauges(shop, "sponson.attempts.active")["alpha",] == 0


async def test_bodies_in_memory_are_counted(shop: Shop) -> None:
    assert gauges(shop, "sponson.bodies") == {(): 0}
    assert shop.core(BodyMemory, "bodies").take(5)
    assert gauges(shop, "sponson.bodies") == {(): 5}


async def test_breakers_of_invented_models_are_shown_before_their_next_call_after_a_reload(shop: Shop) -> None:
    targets(shop.live(POLICY)).of("m-new")
    shop.trip(breaker_of(shop, "m-new"))
    shop.live(changed("concurrency: 10", "concurrency: 9"))
    assert row(status(shop)["breakers"], model="m-new")["state"] == "open"
    assert gauges(shop, "sponson.breaker.state")["alpha", "m-new"] == 2
    for without in ("breaker: off", "breaker: {consecutive: 4, scope: provider}"):
        shop.live(changed("breaker: {consecutive: 4}", without))
        assert "m-new" not in json.dumps(status(shop)["breakers"])


async def test_keys_show_their_state(shop: Shop) -> None:
    rest(shop, "a1", 20.0)
    park(shop, "a2")
    keys = status(shop)["keys"]
    assert row(keys, id="a1") == {
        "provider": "alpha",
        "id": "a1",
        "state": "resting",
        "rests_for": 20.0,
        "in_use": 0,
        "limit": None,
        "weight": 1.0,
        "left": 1.0,
    }
    assert (row(keys, id="a2")["state"], row(keys, id="a2")["limit"]) == ("parked", 5)
    shop.clock.advance(21.0)
    assert row(status(shop)["keys"], id="a1")["state"] == "usable"


async def test_keys_show_how_many_calls_use_them_whether_they_have_a_limit_or_not(shop: Shop) -> None:
    permits = [shop.permit("alpha", "large") for _ in range(2)]
    assert {permit.key.id for permit in permits if permit.key is not None} == {"a1", "a2"}
    assert {each["id"]: each["in_use"] for each in status(shop)["keys"]} == {"a1": 1, "a2": 1}


async def test_gauges_of_limits_have_labels_from_closed_sets(shop: Shop) -> None:
    shop.permit("alpha", "large")
    used, share = gauges(shop, "sponson.permits.used"), gauges(shop, "sponson.permits.share")
    assert used.keys() == share.keys()
    assert (used["process", ""], share["process", ""]) == (1, 50)
    assert (used["model", "alpha", "large"], share["model", "alpha", "large"]) == (1, 3)
    assert share["key", "alpha", "a2"] == 5


async def test_after_a_renaming_everything_has_its_new_name(shop: Shop) -> None:
    for _ in range(4):
        shop.enter("alpha", "large")
    renamed = changed("  alpha:\n", "  gamma:\n    was: alpha\n").replace("provider: alpha", "provider: gamma")
    shop.live(renamed)
    shown = status(shop)
    assert "alpha" not in json.dumps(shown)
    assert row(shown["queues"], provider="gamma")["by_target"] == {"gamma/large": 1}
    assert row(shown["permits"], limit="model gamma/large")["in_use"] == 3


async def test_what_no_policy_uses_is_not_shown(shop: Shop) -> None:
    shop.live("version: 1\nproviders: {beta: {base_url: 'http://127.0.0.1:9/v1'}}\n")
    assert "alpha" not in json.dumps(status(shop))
    assert {labels for labels in gauges(shop, "sponson.permits.share") if "alpha" in labels} == set()


async def test_no_secret_is_shown_and_everything_is_json(shop: Shop) -> None:
    shop.permit("alpha", "large")
    reader = StatusReader(shop.kept, shop.clock, admission=shop.admission)
    shown = json.dumps(status(shop)) + repr(list(reader.gauges()))
    assert "hush" not in shown


def test_the_policys_page_shows_revision_hashes_age_and_problems() -> None:
    state = PolicyState(path="p.yaml", revision=3, digest="d1", seen_digest="d2", loaded_at=100.0)
    state.problems, state.warnings, state.rejected, state.watching = ("p.yaml:1:1: x",), ("w",), 2, "polling"
    assert policy_document(state, 112.3456) == {
        "path": "p.yaml",
        "revision": 3,
        "hash": "d1",
        "hash_seen": "d2",
        "age_seconds": 12.346,
        "problems": ["p.yaml:1:1: x"],
        "warnings": ["w"],
        "rejected": 2,
        "watching": "polling",
    }


async def test_a_breakers_ceiling_is_shown_while_it_stands(shop: Shop) -> None:
    breaker = breaker_of(shop, "other")
    assert row(status(shop)["breakers"], provider="alpha", model="other")["ceiling"] is None
    shop.trip(breaker)
    shop.clock.advance(61.0)
    assert row(status(shop)["breakers"], provider="alpha", model="other")["ceiling"] == 3
    permit = shop.permit("alpha", "other")
    share, used = gauges(shop, "sponson.permits.share"), gauges(shop, "sponson.permits.used")
    assert (used["breaker", "alpha", "other"], share["breaker", "alpha", "other"]) == (1, 3)
    permit.release(shop.clock.now())
