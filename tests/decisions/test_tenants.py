"""Tenants: which rule is whose, how many are known, and that nobody gains by being forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.caps import Grant
from proxy.decisions.tenants import OVERFLOW, Tenants, TenantSettings, TenantSource, TenantsSettings
from proxy.fields import fields_of

NOW = 1000.0
DEFAULT = TenantSettings(rps=2, concurrency=4, tpm=6000)
BATCH = TenantSettings(rps=2, concurrency=1, klass="P2")
SETTINGS = TenantsSettings(
    sources=(TenantSource(header="x-agent-id"),),
    default=DEFAULT,
    overrides=(("batch-[0-9]", BATCH), ("batch-*", TenantSettings(rps=7))),
)


def tenants(settings: TenantsSettings = SETTINGS, *, most: int = 4) -> Tenants:
    made = Tenants(b"salt", most=most)
    made.reconfigure(settings, NOW)
    return made


def ask(all_of_them: Tenants, name: str, now: float = NOW) -> Grant | None:
    """Sends a request as this tenant."""
    tenant = all_of_them.of(name, now)
    return tenant.caps.take(0.0, now) if tenant.caps.refusal(0.0, now) is None else None


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("a7", DEFAULT),
        ("batch-1", BATCH),
        ("batch-long", TenantSettings(rps=7)),
        ("Batch-1", DEFAULT),
        ("a batch-1", DEFAULT),
        ("default", DEFAULT),
    ],
)
def test_the_first_pattern_that_matches_the_whole_name_has_its_caps(name: str, rule: TenantSettings) -> None:
    made = tenants()
    assert made.of(name, NOW).settings == rule
    assert made.class_of(name) == rule.klass


def test_the_class_is_told_before_anything_is_kept_of_a_tenant() -> None:
    made = tenants()
    assert made.class_of("batch-1") == "P2"
    assert made.class_of("a7") is None
    assert len(made) == 0


def test_who_asks_is_read_from_the_policys_sources() -> None:
    made = tenants()
    assert made.name_of(fields_of([(b"x-agent-id", b"a7")])) == "a7"
    made.reconfigure(TenantsSettings(sources=(TenantSource(header="x-job"),)), NOW)
    assert made.name_of(fields_of([(b"x-agent-id", b"a7")])) == "default"


def test_changed_caps_bind_the_next_request_and_leave_what_is_out() -> None:
    made = tenants()
    grant = ask(made, "a7")
    assert grant is not None
    made.reconfigure(TenantsSettings(default=TenantSettings(rps=2, concurrency=1, klass="P0")), NOW)
    assert made.class_of("a7") == "P0"
    assert ask(made, "a7", NOW + 10) is None
    grant.give_back(0.0, NOW + 10)
    assert ask(made, "a7", NOW + 10) is not None


def test_a_policy_without_change_refills_nothing() -> None:
    made = tenants()
    assert ask(made, "a7") is not None
    for _ in range(1000):
        made.reconfigure(SETTINGS, NOW)
        assert ask(made, "a7") is None


def test_a_raised_rate_counts_from_the_change_not_from_the_next_request() -> None:
    made = tenants(TenantsSettings(default=TenantSettings(rps=0)))
    assert ask(made, "a7", NOW) is None
    made.reconfigure(TenantsSettings(default=TenantSettings(rps=3)), NOW + 5)
    assert [ask(made, "a7", NOW + 60) is not None for _ in range(4)] == [True, True, True, False]


def test_the_one_that_has_been_quiet_for_longest_is_forgotten() -> None:
    made = tenants()
    for name in "abcd":
        grant = ask(made, name)
        assert grant is not None
        grant.give_back(0.0, NOW)
    made.of("a", NOW)
    made.of("e", NOW + 60)
    assert {tenant.name for tenant in made.latest()} == {"a", "c", "d", "e"}


def test_one_with_something_in_flight_is_never_forgotten() -> None:
    made = tenants()
    grant = ask(made, "a")
    assert grant is not None
    for number in range(100):
        made.of(f"n{number}", NOW + 60 + number)
    assert made.of("a", NOW + 200).caps.in_flight == 1


def test_a_flood_of_names_gives_nobody_a_fresh_start() -> None:
    made = tenants()
    grant = ask(made, "a")
    assert grant is not None
    grant.give_back(0.0, NOW)
    for number in range(100):
        ask(made, f"n{number}")
    assert ask(made, "a") is None
    assert len(made) == 4


def test_names_that_come_while_nobody_can_be_forgotten_share_the_caps_of_their_rule() -> None:
    made = tenants(most=1)
    assert ask(made, "a") is not None
    went = [name for name in ("b", "c", "d", "batch-1", "batch-2") if ask(made, name) is not None]
    assert went == ["b", "batch-1"]
    assert made.of("b", NOW) is made.of("zz", NOW)
    assert made.of("b", NOW).name == OVERFLOW
    assert made.of("batch-3", NOW).caps.concurrency == 1


def test_those_who_share_still_share_after_a_reload() -> None:
    made = tenants(most=1)
    ask(made, "a")
    assert ask(made, "b") is not None
    made.reconfigure(SETTINGS, NOW)
    assert ask(made, "c") is None
    assert [tenant.name for tenant in made.latest()] == [OVERFLOW, "a"]
    assert ask(made, "d", NOW + 60) is not None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 0.4)), max_size=60))
def test_whatever_names_come_none_gets_more_than_its_rate(asked: list[tuple[str, float]]) -> None:
    made, now = tenants(TenantsSettings(default=TenantSettings(rps=2)), most=2), NOW
    went: dict[str, int] = {}
    for name, pause in asked:
        now += pause
        grant = ask(made, name, now)
        if grant is not None:
            went[name] = went.get(name, 0) + 1
            grant.give_back(0.0, now)
        assert len(made) <= 2
    # It may come twice: by its own name, and among those who share.
    assert all(count <= 2 * (2 + 2 * (now - NOW)) for count in went.values())
