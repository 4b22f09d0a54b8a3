"""What the soak writes: good policies whose limits it goes by, spoiled ones, and every way to put one in place."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.decisions.shares import share_of
from proxy.policy.load import load_policy
from proxy.policy.problem import PolicyError
from proxy.policy.snapshot import PolicySnapshot
from proxy.policy.source import PolicyBytes, read_policy
from tests.soak.changes import Size, after, first, last
from tests.soak.hands import FILE, Hands
from tests.soak.policies import GUESTS, PROVIDERS, RATE, Around, Wanted, text
from tests.soak.spoiled import spoiled

AROUND = Around(ports=dict.fromkeys((*PROVIDERS, *GUESTS), (9000, 9001)), secrets=Path("/secrets"))
SIZE = Size.of(200.0)


def read(content: bytes) -> PolicySnapshot:
    return load_policy(PolicyBytes(files=((FILE, content),)))


def walk(seed: int, steps: int) -> Wanted:
    draw, wanted = random.Random(seed), first(SIZE)
    for _ in range(steps):
        wanted = after(wanted, SIZE, draw)
    return wanted


def places(snapshot: PolicySnapshot, wanted: Wanted) -> dict[str, int]:
    """The shares that a snapshot sets, by the soak's scopes."""
    fleet = snapshot.fleet
    rated = [provider for provider in snapshot.providers if provider.rpm is not None]
    assert [(one.rpm or 0) * one.quota.headroom / fleet.size for one in rated] == pytest.approx(
        [RATE * 60] * len(rated)
    )
    found = {"all": share_of(snapshot.concurrency or 0, fleet, key="")}
    assert {*GUESTS} <= {provider.name for provider in snapshot.providers}
    for provider in snapshot.providers:
        if provider.name in GUESTS:
            continue
        name = next(one for one in PROVIDERS if wanted.name(one) == provider.name)
        if provider.concurrency is not None:
            found[name] = share_of(provider.concurrency, fleet, key=provider.name)
        for model in provider.models:
            found[f"{name} {model.name}"] = share_of(model.concurrency or 0, fleet, key=model.name)
        for key in provider.keys:
            if key.concurrency is not None:
                found[f"{name} key {key.id.removesuffix('-b')}"] = share_of(key.concurrency, fleet, key=key.id)
    return found


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), steps=st.integers(0, 5), over=st.booleans())
def test_every_policy_is_good_and_sets_the_limits_that_the_soak_goes_by(seed: int, steps: int, over: bool) -> None:
    wanted = walk(seed, steps)
    wanted = last(wanted, SIZE) if over else wanted
    found = places(read(text(wanted, AROUND).encode()), wanted)
    assert wanted.limits().items() <= {**wanted.limits(), **found}.items()
    assert wanted.absent or wanted.limits().keys() <= found.keys()


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10_000))
def test_no_spoiled_policy_is_good(seed: int) -> None:
    content = spoiled(walk(seed, 2), AROUND, random.Random(seed))
    if b"/secrets/none" not in content:
        with pytest.raises(PolicyError):
            read(content)


def test_half_a_policy_can_be_a_valid_one() -> None:
    content = text(first(SIZE), AROUND).encode()
    assert read(content[: content.index(b"routes:")]).routes is None


def look(place: Path, seen: list[PolicyBytes]) -> None:
    seen.append(read_policy(place))


async def test_every_way_puts_the_whole_policy_in_place(tmp_path: Path) -> None:
    hands = Hands(tmp_path)
    for number in range(3):
        for put in (hands.rename, hands.write, hands.swap, hands.swap, hands.write, hands.swap, hands.rename):
            content = f"{number} {put.__name__}".encode()
            put(content)
            assert read_policy(tmp_path).files == ((FILE, content),)
        halves: list[PolicyBytes] = []
        await hands.tear(b"head-tail", 5, 0.0, partial(look, tmp_path, halves))
        assert [half.files for half in halves] == [((FILE, b"head-"),)]
        assert read_policy(tmp_path).files == ((FILE, b"head-tail"),)
        hands.vanish()
        assert [entry.name for entry in tmp_path.iterdir()] == []
