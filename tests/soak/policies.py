"""What is wanted of a policy, its text, and the limits that it sets.

Every provider bears the policy's number in a header, so that the servers see which one a call began with. The text
is in block style at its top level: a text that is cut between two lines may be a valid policy that says less.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NUMBER_HEADER = "x-policy"
PROVIDERS = ("steady", "moving", "broken", "keyed", "narrow", "metered")
GUESTS = ("rough", "agents")
"""Providers of the traffic that no limit is judged by."""
MAY_GO = ("moving", "broken", "keyed", "metered")
"""What is taken out of the policy and comes back; its callers get the steady one meanwhile."""
RENAMED = ("narrow", "keyed", "metered", "good", "parked")
"""Providers in whose queues callers wait, one with keys, a key with a limit, and one that is parked."""
RATE, BURST = 5.0, 10.0
"""Requests a second of the metered provider, for this instance, and what its bucket holds at most."""
PATIENT = "120s"
ROUGH_SHARE = 12
QUEUE = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What stands outside of the policy: ports by provider, and the files of secrets."""

    ports: Mapping[str, tuple[int, ...]]
    secrets: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One policy. `steady`, `model`, `moving`, `key` and `total` are this instance's shares.

    `knob` turns everything that must not matter to anybody's state. `renamed` bear their other name. `crowd` is room
    for agents above the total.
    """

    number: int
    steady: int
    model: int
    moving: int
    key: int
    total: int
    fleet: int = 1
    port: int = 0
    absent: frozenset[str] = frozenset()
    renamed: frozenset[str] = frozenset()
    knob: int = 0
    crowd: int = 0

    def limits(self) -> dict[str, int]:
        """The shares by scope. What is taken out keeps its places, and so its limit."""
        return {
            "all": self.everything,
            "steady": self.steady,
            "steady m1": self.model,
            "moving": self.moving,
            "narrow": 1,
            "keyed key good": self.key,
        }

    @property
    def everything(self) -> int:
        """This instance's share of all providers together."""
        return self.total + ROUGH_SHARE + self.crowd

    def name(self, thing: str) -> str:
        """The name that the policy has for it."""
        return f"{thing}-b" if thing in self.renamed else thing

    def was(self, thing: str) -> str:
        """The name that it has when it does not bear this one."""
        return thing if thing in self.renamed else f"{thing}-b"

    def granted(self, share: int) -> int:
        """What the whole fleet is granted when each instance's share is this."""
        return share * self.fleet + self.number % self.fleet


_AGENT = {"rps": 20, "concurrency": 4, "tpm": 1_000_000, "context_tokens": 64_000}


def text(wanted: Wanted, around: Around) -> str:
    """The policy in YAML."""
    parts = {
        "version": 1,
        "fleet": {"size": {"static": wanted.fleet}},
        "limits": {"concurrency": wanted.granted(wanted.everything)},
        "tenants": {"from": [{"header": "x-agent-id"}], "default": {}, "overrides": {"agent-*": dict(_AGENT)}},
        "providers": _providers(wanted, around),
        "routes": _routes(wanted),
        "telemetry": {"log_successes": 0.0},
    }
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in parts.items())


def _providers(wanted: Wanted, around: Around) -> dict[str, Any]:
    own: dict[str, dict[str, Any]] = {
        "steady": _steady(wanted),
        "moving": {"limits": {"concurrency": wanted.granted(wanted.moving)}},
        "broken": {"breaker": {**_breaker(wanted), "open": {"first": f"{1 + wanted.knob % 2}h", "cap": "2h"}}},
        "keyed": {"keys": _keys(wanted, around.secrets), "was": wanted.was("keyed")},
        "narrow": {"limits": {"concurrency": wanted.granted(1)}, "was": wanted.was("narrow")},
        "metered": {"limits": _rates(wanted), "was": wanted.was("metered")},
    }
    providers = {"rough": _rough(wanted, around), "agents": _agents(wanted, around)}
    for provider in PROVIDERS:
        if provider not in wanted.absent:
            ports = around.ports[provider]
            url = f"http://127.0.0.1:{ports[wanted.port % len(ports)]}/v1"
            common = {**_common(wanted), "base_url": url}
            providers[wanted.name(provider)] = {**common, **own[provider]}
    return providers


def _rough(wanted: Wanted, around: Around) -> dict[str, Any]:
    """Gives up soon, and tries again soon."""
    waits = dict.fromkeys(("first_byte", "answer", "idle"), "1s")
    return {
        **_common(wanted),
        "base_url": f"http://127.0.0.1:{around.ports['rough'][0]}/v1",
        "limits": {"concurrency": wanted.granted(ROUGH_SHARE)},
        "timeouts": {"queue": "5s", "quota_wait": "5s", **waits},
        "breaker": {**_breaker(wanted), "open": {"first": "1s", "cap": "2s"}},
        "key_rest": "1s",
    }


def _agents(wanted: Wanted, around: Around) -> dict[str, Any]:
    """Has room for all."""
    return {
        **_common(wanted),
        "base_url": f"http://127.0.0.1:{around.ports['agents'][0]}/v1",
        "limits": {"concurrency": 100_000, "tpm": 1_000_000_000},
        "connections": {"max": 10_000, "idle": "2s"},
    }


def _common(wanted: Wanted) -> dict[str, Any]:
    return {
        "headers": {NUMBER_HEADER: str(wanted.number)},
        "queue": {"max": QUEUE + wanted.knob},
        "connections": {"idle": f"{2 - wanted.knob % 2}s"},
        "timeouts": {"queue": PATIENT, "quota_wait": PATIENT, "first_byte": f"{40 + wanted.knob % 20}s"},
        "breaker": _breaker(wanted),
    }


def _breaker(wanted: Wanted) -> dict[str, Any]:
    knob = wanted.knob
    return {
        "consecutive": 3 + knob % 7,
        "failure_ratio": 0.3 + (knob % 5) / 10,
        "min_calls": 10 + knob % 20,
        "window": {"calls": 50 + knob % 100, "time": f"{30 + knob % 60}s"},
        "probes": 1 + knob % 4,
    }


def _steady(wanted: Wanted) -> dict[str, Any]:
    models: dict[str, Any] = {"m1": {"limits": {"concurrency": wanted.granted(wanted.model)}}}
    if wanted.knob % 3 == 0:
        models["m0"] = {"limits": {"concurrency": 10_000}}
    return {"limits": {"concurrency": wanted.granted(wanted.steady)}, "models": models}


def _rates(wanted: Wanted) -> dict[str, Any]:
    """Rates that come to the same for this instance, whatever the fleet, the headroom and the bucket are."""
    headroom = (1.0, 0.8, 0.5)[wanted.knob % 3]
    seconds = (BURST / RATE) * (1.0, 0.5)[wanted.knob % 2]
    rpm = RATE * 60 * wanted.fleet / headroom
    return {"rpm": rpm, "tpm": rpm * 10_000, "headroom": headroom, "burst": f"{seconds:g}s"}


def _keys(wanted: Wanted, secrets: Path) -> list[dict[str, Any]]:
    knob = wanted.knob
    keys: list[dict[str, Any]] = [
        {**_renamed_key(wanted, "good", secrets), "concurrency": wanted.granted(wanted.key), "weight": 1 + knob % 3},
        {"id": "resting", "file": str(secrets / "resting"), "weight": 1 + knob % 4},
    ]
    if knob % 5:
        keys.append(_renamed_key(wanted, "parked", secrets))
    if knob % 4:
        keys.append({"id": "other", "file": str(secrets / "other")})
    return keys if knob % 3 else keys[::-1]


def _renamed_key(wanted: Wanted, key: str, secrets: Path) -> dict[str, Any]:
    return {"id": wanted.name(key), "was": wanted.was(key), "file": str(secrets / key)}


def _routes(wanted: Wanted) -> list[dict[str, Any]]:
    routes: list[dict[str, Any]] = [
        {
            "name": "files",
            "match": {"path": ["/v1/files", "/v1/early", "/v1/realtime"]},
            "tiers": [{"provider": "rough"}],
        },
        {"name": "rough", "match": {"model": "rough-*"}, "tiers": [{"provider": "rough"}], "retry": {"base": "10ms"}},
        {
            "name": "agents",
            "match": {"model": "agents-*"},
            "tiers": [{"provider": "agents"}],
            "idempotency": {"header": "idempotency-key", "keep": "2s"},
        },
    ]
    for model, provider in (("m*", "steady"), *((name, name) for name in PROVIDERS[1:])):
        tier: dict[str, Any] = {"provider": wanted.name(provider)}
        if provider == "narrow":
            tier["model"] = "narrow"
        tiers = [] if provider in wanted.absent else [tier]
        if provider in MAY_GO:
            tiers.append({"provider": "steady"})
        names = (provider, f"{provider}-route")
        turned = wanted.knob % 2
        routes.append(
            {
                "name": names[turned],
                "was": names[1 - turned],
                "match": {"model": model if model != "m*" else ["m0", "m1", "m2"]},
                "tiers": tiers,
                "total": "5m",
                "retry": {"attempts": 2 + wanted.knob % 2, "base": "10ms"},
            }
        )
    return routes if wanted.knob % 3 else routes[::-1]
