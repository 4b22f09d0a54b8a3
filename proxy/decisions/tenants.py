"""Tenants: who asks, and how much each may ask of one instance (`policy.md`, `tenants`).

State is kept for a bounded number of tenants. One that has something out or owes something is never forgotten, and one
that is forgotten has no more when it comes again than it had: so no flood of names gives anybody a fresh start. Names
that come while nobody can be forgotten share one set of caps for each rule of the policy.
"""

from __future__ import annotations

import fnmatch
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from proxy.decisions.callers import SECRET_HEADERS, name_of
from proxy.decisions.caps import Caps
from proxy.fields import Fields
from proxy.observer import Would

MOST_TENANTS: Final = 10_000
"""How many tenants are known at a time."""
LOOKED_AT: Final = 8
"""How many are looked at to forget one: a newcomer must not pay for all."""
OVERFLOW: Final = "overflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSettings:
    """Caps of one tenant, per instance; None: no such cap.

    `rps`: requests a second; `concurrency`: requests in flight; `tpm`: tokens a minute; `context_tokens`: longest
    input; `klass`: its class, P0 to P2; `too_long_tier`: the tier, from 1, that a longer input begins with (None: it
    is refused).
    """

    rps: float | None = None
    concurrency: int | None = None
    tpm: float | None = None
    context_tokens: int | None = None
    klass: str | None = None
    too_long_tier: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSource:
    """Where a caller's tenant stands: a header (lower case), or None for the fingerprint of its credential.

    `secret`: what stands there is a credential, which is known by its fingerprint alone.
    """

    header: str | None
    secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantsSettings:
    """The first source that is present names the tenant; the first pattern that matches it has its caps.

    Each of `overrides` is whole: what a pattern does not say of itself is the default's already. `observe`: nobody is
    refused, what would be is reported.
    """

    sources: tuple[TenantSource, ...] = ()
    default: TenantSettings = TenantSettings()
    overrides: tuple[tuple[str, TenantSettings], ...] = ()
    observe: bool = False


class Tenant:
    """One tenant: what the policy grants it, what it has out, and how often it was, or would have been, refused."""

    __slots__ = ("caps", "name", "refused", "revision", "settings", "would")

    def __init__(self, name: str) -> None:
        self.name = name
        self.caps = Caps()
        self.settings = TenantSettings()
        self.revision = -1
        self.refused = 0
        self.would = {Would.TENANT_LIMIT: 0, Would.CONTEXT_TOO_LONG: 0}

    def __repr__(self) -> str:
        return f"<Tenant {self.name} {self.caps}>"

    def take_rule(self, settings: TenantSettings, revision: int, now: float) -> None:
        """Takes what a policy grants it."""
        self.settings, self.revision = settings, revision
        self.caps.reconfigure(rps=settings.rps, concurrency=settings.concurrency, tpm=settings.tpm, now=now)


class Tenants:
    """Every tenant that is known, the one that asked last at the end. `salt` (16 bytes) hides credentials."""

    __slots__ = (
        "_changed_at",
        "_classed",
        "_default",
        "_headers",
        "_known",
        "_most",
        "_overflow",
        "_revision",
        "_rules",
        "_salt",
        "_secret",
    )

    def __init__(self, salt: bytes, *, most: int = MOST_TENANTS) -> None:
        self._salt = salt
        self._most = most
        self._known: OrderedDict[str, Tenant] = OrderedDict()
        self._overflow: dict[TenantSettings, Tenant] = {}
        self._revision = 0
        self._changed_at = 0.0
        self._headers: tuple[str | None, ...] = ()
        self._secret: frozenset[str] = SECRET_HEADERS
        self._rules: tuple[tuple[re.Pattern[str], TenantSettings], ...] = ()
        self._default = TenantSettings()
        self._classed = False

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"<Tenants {len(self)} known>"

    @property
    def busy(self) -> bool:
        """Whether anybody has something out."""
        return any(tenant.caps.in_flight for tenant in self.latest())

    def reconfigure(self, settings: TenantsSettings, now: float) -> None:
        """Takes another policy: its caps bind every tenant from now on; what is out stays out."""
        self._revision += 1
        self._changed_at = now
        self._headers = tuple(source.header for source in settings.sources)
        self._secret = SECRET_HEADERS.union(one.header for one in settings.sources if one.header and one.secret)
        self._rules = tuple((re.compile(fnmatch.translate(pattern)), rule) for pattern, rule in settings.overrides)
        self._default = settings.default
        rules = {settings.default, *(rule for _, rule in settings.overrides)}
        self._overflow = {rule: one for rule, one in self._overflow.items() if rule in rules or one.caps.in_flight}
        self._classed = any(rule.klass is not None for rule in rules)

    def name_of(self, fields: Fields) -> str:
        """Returns who asks."""
        return name_of(fields, self._headers, self._salt, secret=self._secret)

    def class_of(self, name: str) -> str | None:
        """Returns the class that the policy gives a tenant, None where it gives none."""
        if not self._classed:
            return None
        known = self._known.get(name)
        rule = known.settings if known is not None and known.revision == self._revision else self._rule(name)
        return rule.klass

    def of(self, name: str, now: float) -> Tenant:
        """Returns the tenant of this name; the one that it shares with others while there are too many."""
        tenant = self._known.get(name)
        if tenant is None:
            return self._newcomer(name, now)
        self._known.move_to_end(name)
        if tenant.revision != self._revision:
            tenant.take_rule(self._rule(name), self._revision, self._changed_at)
        return tenant

    def latest(self) -> Iterator[Tenant]:
        """Yields those that share, then all others, who asked last first."""
        yield from self._overflow.values()
        yield from reversed(self._known.values())

    def _rule(self, name: str) -> TenantSettings:
        return next((rule for pattern, rule in self._rules if pattern.match(name)), self._default)

    def _newcomer(self, name: str, now: float) -> Tenant:
        rule = self._rule(name)
        if len(self._known) < self._most or self._forget_one(now):
            tenant = self._known[name] = Tenant(name)
        else:
            tenant = self._overflow.get(rule) or Tenant(OVERFLOW)
            self._overflow[rule] = tenant
        if tenant.revision != self._revision:
            tenant.take_rule(rule, self._revision, now if tenant.revision < 0 else self._changed_at)
        return tenant

    def _forget_one(self, now: float) -> bool:
        """Forgets the tenant that has been quiet for longest; False when all that were looked at are still bound."""
        for _ in range(LOOKED_AT):
            name, tenant = next(iter(self._known.items()))
            if tenant.caps.whole(now):
                del self._known[name]
                return True
            self._known.move_to_end(name)
        return False
