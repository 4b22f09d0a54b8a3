"""Sections of providers; that they are true of a reload is `test_truth.py`'s."""

from __future__ import annotations

import pytest

from proxy.policy.difference.change import Section, Sign
from proxy.policy.difference.providers import providers
from tests.policy.difference.policies import difference, reload_of, says, section, told
from tests.policy.samples import GOOD, ROUTE

OTHER = GOOD.replace("  a:\n", "  b:\n")
BOTH = GOOD + "  b: {base_url: http://127.0.0.1:2}\n"


def changed(new: str, *, old: str = "") -> Section:
    """The section of provider a, when these lines in it change."""
    return section(difference(_with(old), _with(new)), "provider a")


def _with(lines: str) -> str:
    return GOOD + "".join(f"    {line}\n" for line in lines.splitlines())


def test_equal_ones_have_none() -> None:
    assert set(providers(reload_of(GOOD, GOOD))) == {None}


def test_a_new_one_begins_anew() -> None:
    one = section(difference(GOOD, BOTH + "    "), "provider b")
    assert (one.sign, told(one)) == (Sign.ADDED, "begins with closed breakers, no connections")


def test_a_new_one_of_a_provider_that_was_never_there_says_that_was_is_vain() -> None:
    one = section(difference(GOOD, BOTH.replace("{base", "{was: c, breaker: off, base")), "provider b")
    assert told(one).splitlines() == [
        "begins with no connections",
        "`was: c` has no effect: there is no such provider in the old policy",
    ]


def test_one_that_goes_while_another_with_its_address_comes_looks_renamed() -> None:
    assert "`was: a` would keep its state" in told(section(difference(GOOD, OTHER), "provider b"))
    assert section(difference(GOOD, OTHER), "provider a").sign is Sign.REMOVED


def test_was_of_a_provider_that_was_there_all_along_is_vain() -> None:
    new = "version: 1\nproviders: {b: {was: a, base_url: http://127.0.0.1:2}}\n"
    assert "`was: a` of b has no effect: b keeps its own state" in told(section(difference(BOTH, new), "provider a"))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("breaker: off", "", "begin anew: breakers"),
        ("", "breaker: off", "no breaker any more: a provider that fails is asked by every call"),
        ("breaker: {scope: provider}", "", "one for each model, closed"),
        ("", "timeouts: {first_byte: 9s}", "slow after 2/3 of first_byte: that moves too"),
        ("limits: {concurrency: 5}", "", "no concurrency limit any more: only connections.max (100) bounds it"),
        ("", "connections: {max: 7}", "nobody new goes until fewer than 7 run at an instance"),
        ("connections: {max: 7}", "", "who waits for a connection goes at once, as far as 100 allow"),
        ("", "queue: {bytes: 1KiB}", "newcomers get queue_full until there is room for theirs"),
        ("", "keys: [{id: k, env: K}]", "callers' own credentials are not passed on any more"),
        ("keys: [{id: k, env: K}]", "", "no keys any more: callers' own credentials are passed on"),
        ("", "timeouts: {answer: {p95: 2}}", "the fixed ones until 50 answers of a target are known"),
        ("timeouts: {answer: {p95: 2}}", "", "in case they come back: answer times (p95)"),
        ("mode: observe", "", "shares and breakers hold back again"),
    ],
)
def test_surprises_are_told(old: str, new: str, words: str) -> None:
    assert words in told(changed(new, old=old))


def test_breaker_settings_stand_with_their_names() -> None:
    one = changed("breaker: {window: {time: 30s}, slow: {after: 5s}, consecutive: 0}")
    assert says(one) == {
        "breaker.window.time": ("1m", "30s"),
        "breaker.slow.after": ("2/3 of first_byte", "5s"),
        "breaker.consecutive": ("10", "off"),
    }
    assert says(changed("breaker: off")) == {"breaker": ("on", "off")}


def test_a_queue_that_follows_the_share_is_told_with_it() -> None:
    one = changed("limits: {concurrency: 20}", old="limits: {concurrency: 50}")
    assert says(one)["most that may wait"] == ("100", "40")
    own = changed("limits: {concurrency: 20}\nqueue: {max: 9}", old="limits: {concurrency: 50}\nqueue: {max: 9}")
    assert "most that may wait" not in says(own)


def test_a_mode_that_the_whole_policy_decides_is_told_of_each_provider() -> None:
    observing = GOOD + "mode: observe\n"
    assert says(section(difference(GOOD, observing), "provider a")) == {"mode in force": ("enforce", "observe")}
    own = difference(observing, _with("mode: observe") + "mode: observe\n")
    assert "the mode in force stays observe" in told(section(own, "provider a"))


def test_another_order_of_parameters_or_keys_is_told() -> None:
    assert says(changed("query: {b: x, a: x}", old="query: {a: x, b: x}")) == {"query": ("one order", "another order")}
    keys = "keys: [{id: k, env: K}, {id: l, env: L}]"
    one = changed("keys: [{id: l, env: L}, {id: k, env: K}]", old=keys)
    assert says(one) == {"keys": ("k, l", "l, k")}


def test_every_provider_of_the_old_policy_is_spoken_of() -> None:
    found = difference(BOTH + ROUTE, GOOD + ROUTE)
    assert [(one.sign, one.subject) for one in found.sections][:1] == [(Sign.REMOVED, "provider b")]


def test_an_adaptive_limit_that_comes_changes_and_goes() -> None:
    one = changed("limits: {adaptive: {}}")
    assert says(one) == {"limits.adaptive": ("none", "decrease 0.8, min 1")}
    assert "the adaptive limit begins at the share" in told(one)
    one = changed("limits: {adaptive: {min: 3}}", old="limits: {adaptive: {}}")
    assert "the adaptive limit goes on from where it stands" in told(one)
    assert "as far as the share allows" in told(changed("", old="limits: {adaptive: {}}"))


def test_another_way_of_counting() -> None:
    one = changed("limits: {count: {cached_input: 0.1, unused_output: 1}}")
    assert says(one) == {"limits.count.cached_input": ("1", "0.1"), "limits.count.unused_output": ("0", "1")}
    assert "what runs is settled as it was reserved; what buckets hold stays" in told(one)


def test_a_provider_that_knows_keys_again() -> None:
    one = changed("idempotency_header: X-Key")
    assert says(one) == {"idempotency_header": ("none", "X-Key")}
    assert "are sent to it again, with the same key" in told(one)
    assert "they end as maybe_executed" in told(changed("", old="idempotency_header: X-Key"))
