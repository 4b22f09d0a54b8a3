from __future__ import annotations

from tests.policy.difference.policies import difference, says, section, told

ONE = "version: 1\nproviders: {a: {base_url: 'http://x'}}\n"
TWO = ONE + "tenants: {from: [{header: x-a}], default: {rps: 3, class: P1}, overrides: {'b-*': {concurrency: 2}}}\n"
WHO = "header x-a"


def changed(old: str, new: str) -> str:
    """The policy with this difference."""
    assert old in TWO
    return TWO.replace(old, new)


def test_tenants_that_are_new_begin_with_full_caps() -> None:
    found = section(difference(ONE, TWO), "tenants")
    assert says(found) == {
        "tenants": ("none", WHO),
        "default.rps": ("none", "3"),
        "default.class": ("none", "P1"),
        '"b-*"': ("none", "rps 3, concurrency 2, class P1"),
    }
    assert "every tenant begins with one request's worth; requests in flight at the reload are not counted" in told(
        found
    )


def test_tenants_that_go_are_put_aside() -> None:
    found = section(difference(TWO, ONE), "tenants")
    assert says(found) == {"tenants": (WHO, "none")}
    assert found.warnings == ("no tenant is held back any more, and none has a class of its own",)
    assert "put aside for 10 minutes" in told(found)


def test_other_caps_keep_what_was_used() -> None:
    found = section(difference(TWO, changed("rps: 3", "rps: 4, too_long: {tier: 1}")), "tenants")
    assert says(found) == {
        "default.rps": ("3", "4"),
        "default.too_long": ("none", "tier 1"),
        '"b-*".rps': ("3", "4"),
        '"b-*".too_long': ("none", "tier 1"),
    }
    assert "what tenants have used and have in flight stays counted: nothing is refilled" in told(found)


def test_who_asks_by_another_name_begins_anew() -> None:
    found = section(difference(TWO, changed("{header: x-a}", "{header: x-b}, {credential: true}")), "tenants")
    assert says(found) == {"from": (WHO, "header x-b, credential")}
    assert "who asks under another name than before begins anew" in told(found)
    found = section(difference(TWO, changed("from: [{header: x-a}], ", "")), "tenants")
    assert says(found)["from"] == (WHO, 'everybody is "default"')


def test_modes_of_tenants() -> None:
    observing = changed("tenants: {", "tenants: {mode: observe, ")
    assert "tenants are held back no more" in told(section(difference(TWO, observing), "tenants"))
    assert "tenants are held back again" in told(section(difference(observing, TWO), "tenants"))


def test_another_order_of_patterns() -> None:
    two = changed("{'b-*': {concurrency: 2}}", "{'b-*': {rps: 1}, 'b-1*': {rps: 2}}")
    other = changed("{'b-*': {concurrency: 2}}", "{'b-1*': {rps: 2}, 'b-*': {rps: 1}}")
    assert says(section(difference(two, other), "tenants")) == {
        "order of overrides": ('default, "b-*", "b-1*"', 'default, "b-1*", "b-*"')
    }


def test_equal_tenants_are_no_difference() -> None:
    assert difference(TWO, TWO).sections == ()
