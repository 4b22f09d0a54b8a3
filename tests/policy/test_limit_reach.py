from __future__ import annotations

import pytest

from tests.policy.samples import GOOD, ROUTE, load, provider


def of_provider(below: str, more: str = "") -> list[str]:
    """The warnings of a provider with these lines, without their places."""
    text = GOOD + "".join(f"    {line}\n" for line in below.splitlines()) + more
    return [line.partition(" ")[2].removeprefix("providers.a.") for line in load(text).warnings]


def of_policy(text: str) -> list[str]:
    """The warnings of a policy with these lines, without their places."""
    return [line.partition(" ")[2] for line in load(GOOD + text).warnings]


@pytest.mark.parametrize(
    ("below", "path"),
    [
        ("limits: {rpm: 0}", "limits.rpm"),
        ("limits: {tpm: 0}", "limits.tpm"),
        ("models: {m: {limits: {tpm: 0}}}", "models.m.limits.tpm"),
        ("keys: [{id: k, env: K, rpm: 0}]", "keys.0.rpm"),
    ],
)
def test_a_rate_of_zero_lets_nobody_go(below: str, path: str) -> None:
    assert of_provider(below) == [f"{path}: none is allowed: every call that it binds is refused"]


def test_headroom_and_burst_without_a_rate() -> None:
    why = "has no effect: no rpm or tpm of this provider, its keys or models"
    assert of_provider("limits: {headroom: 0.9, burst: 6s}") == [f"limits.headroom: {why}", f"limits.burst: {why}"]
    assert of_provider("keys: [{id: k, env: K, rpm: 9}]\nlimits: {headroom: 0.9, burst: 6s}") == []


def test_headroom_and_burst_that_allow_nothing_or_too_much() -> None:
    assert of_provider("limits: {rpm: 5, headroom: 0, burst: 61s}") == [
        "limits.headroom: nothing of rpm and tpm is used: every call is refused",
        "limits.burst: a bucket of more than a minute lets more calls go in a minute than rpm and tpm say",
    ]


def test_a_key_or_model_above_its_provider() -> None:
    below = "limits: {rpm: 5, tpm: 50, concurrency: 6}\nkeys: [{id: k, env: K, rpm: 6, tpm: 50, concurrency: 7}]\n"
    assert of_provider(below + "models: {m: {limits: {tpm: 51}}}") == [
        "keys.0.rpm: 6 is above the provider's rpm (5): that one binds before",
        "keys.0.concurrency: 7 is above the provider's concurrency (6): that one binds before",
        "models.m.limits.tpm: 51 is above the provider's tpm (50): that one binds before",
    ]


def test_an_adaptive_limit_without_room_to_move() -> None:
    assert of_provider("limits: {concurrency: 8, adaptive: {min: 2}}", "fleet: {size: {static: 4}}\n") == [
        "limits.adaptive.min: has no effect: min (2) is not below the share of an instance (2)"
    ]
    assert of_provider("limits: {concurrency: 8, adaptive: {}}") == []
    assert of_provider("limits: {adaptive: {}}") == []


def test_a_reserve_that_nobody_may_use() -> None:
    text = "classes: {P0: {reserved: 0.2}}\n"
    assert of_policy(text + ROUTE) == [
        "classes.P0.reserved: is only taken from others: no route or tenant has class P0, "
        "and no header may raise a call to it"
    ]
    assert of_policy(text + ROUTE + "    class: P0\n") == []
    assert of_policy(text + ROUTE + "    class_from_header: true\n") == []
    assert of_policy(text + ROUTE + "tenants: {from: [{header: x}], overrides: {b: {class: P0}}}\n") == []


def test_a_reserve_of_everything_or_of_less_than_a_permit() -> None:
    urgent = ROUTE + "    class: P0\n"
    assert of_policy("classes: {P0: {reserved: 1}}\n" + urgent) == [
        "classes.P0.reserved: everything is reserved for P0: P1 and P2 get nothing where a limit binds them"
    ]
    small = "    limits: {concurrency: 4}\nclasses: {P0: {reserved: 0.2}}\n" + urgent
    assert of_policy(small) == [
        "classes.P0.reserved: reserves nothing of a: 0.2 of a share of 4 is less than one permit"
    ]


def test_a_lane_of_less_than_a_permit() -> None:
    lanes = (
        "    limits: {concurrency: 5}\n"
        + ROUTE
        + "    lanes: [{max_output: 9, share: 0.1}, {max_output: 10, share: 0.2}]\n"
    )
    assert of_policy(lanes) == [
        "routes.0.lanes.0.share: keeps nothing of a free: 0.1 of a share of 5 is less than one permit"
    ]


@pytest.mark.parametrize(("reserved", "shares"), [(0.0, (0.5, 0.5)), (0.5, (0.5,)), (0.5, (0.25, 0.25))])
def test_lanes_that_leave_nothing_for_longer_answers(reserved: float, shares: tuple[float, ...]) -> None:
    own = "    class: P0\n    lanes: [{max_output: 9, share: %s}]\n"
    routes = ROUTE + own % shares[0]
    for number, share in enumerate(shares[1:]):
        routes += f"  - {{name: r{number}, match: {{path: /x}}, tiers: [{{provider: a}}], class: P0, "
        routes += f"lanes: [{{max_output: 9, share: {share}}}]}}\n"
    text = "    limits: {concurrency: 4}\nclasses: {P0: {reserved: %s}}\n" + routes
    assert of_policy(text % reserved) == [
        f"routes.{len(shares) - 1}.lanes: with what is kept for P0 and for other routes, nothing of a is left for "
        "longer answers: 4 of a share of 4 are kept"
    ]
    assert of_policy((text % reserved).replace("concurrency: 4", "concurrency: 40", 1).replace("0.5", "0.4")) == []


def test_weights_where_nothing_is_spread_by_weight() -> None:
    text = ROUTE.replace("{provider: a}", "{spread: [{provider: a}, {provider: a, model: m, weight: 1}], by: %s}")
    assert of_policy(text % "weight") == []
    assert of_policy(text % "remaining") == [
        "routes.0.tiers.0.spread.1.weight: has no effect: the tier does not spread `by: weight`"
    ]


def test_defaults_have_no_warning() -> None:
    assert provider() is not None
    assert of_policy(ROUTE) == []
