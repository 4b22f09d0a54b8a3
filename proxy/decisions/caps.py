"""Caps: what one tenant may ask of this instance, and what it has out (`policy.md`, `tenants`; rule 5).

Nobody waits for a cap: a request goes now, or is told when it may. All caps are taken together or not at all, and a
`Grant` of them is given back once.
"""

from __future__ import annotations

from math import inf

from proxy.decisions.quota import MINUTE, Bucket
from proxy.outcome import Outcome, Reason, refused

BURST_SECONDS = 1.0
SMOOTHING = 0.1
"""Part of the latest request in the mean hold: enough of the last twenty to tell seconds from minutes."""
Lack = tuple[float, str]
"""Seconds until a cap lets a request go (infinity: never), and which cap it is."""


class Caps:
    """One tenant's caps; None: no such cap. A changed cap acts on the next request, and refills nothing.

    `in_flight` counts requests until their last byte.
    """

    __slots__ = ("_requests", "_tokens", "concurrency", "hold_seconds", "in_flight", "rps", "tpm")

    def __init__(self) -> None:
        self.rps: float | None = None
        self.concurrency: int | None = None
        self.tpm: float | None = None
        self.in_flight = 0
        self.hold_seconds = 0.0
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None

    def __repr__(self) -> str:
        return f"<Caps {self.in_flight}/{self.concurrency} in flight, {self._requests}, {self._tokens}>"

    def reconfigure(self, *, rps: float | None, concurrency: int | None, tpm: float | None, now: float) -> None:
        """Takes new caps: requests a second, requests in flight, tokens a minute."""
        self.rps, self.concurrency, self.tpm = rps, concurrency, tpm
        # A bucket outlives its cap: to take a cap away and to set it again is no way to empty a debt.
        if rps is not None:
            self._requests = self._requests or Bucket("requests", now)
            self._requests.reconfigure(rps * MINUTE, now, burst=BURST_SECONDS, most=inf)
        if tpm is not None:
            self._tokens = self._tokens or Bucket("tokens", now)
            self._tokens.reconfigure(tpm, now, burst=BURST_SECONDS, most=tpm)

    def refusal(self, tokens: float, now: float) -> Outcome | None:
        """Returns why a request of so many tokens may not go now, None when it may.

        Of several caps that it lacks, the one that is longest in coming is named.
        """
        lacks = [
            lack for lack in (self._place(), self._request(now), self._tokens_for(tokens, now)) if lack is not None
        ]
        if not lacks:
            return None
        wait, detail = max(lacks)
        return refused(
            Reason.TENANT_LIMIT,
            retry_after=wait if wait < inf else None,
            detail=f"this tenant's cap {detail}; the policy sets it under tenants",
        )

    def _place(self) -> Lack | None:
        most = self.concurrency
        if most is None or self.in_flight < most:
            return None
        return self.hold_seconds / most if most else inf, f"concurrency: {most}: {self.in_flight} are in flight"

    def _request(self, now: float) -> Lack | None:
        if self.rps is None or self._requests is None:
            return None
        wait = self._requests.wait(1.0, now)
        return (wait, f"rps: {self.rps:g}: no request is left of this second's") if wait else None

    def _tokens_for(self, amount: float, now: float) -> Lack | None:
        if self.tpm is None or self._tokens is None:
            return None
        cap = f"tpm: {self.tpm:.10g}"
        if self._tokens.never(amount):
            return inf, f"{cap}: this request alone may use {amount:.0f} tokens, more than a whole minute's"
        wait = self._tokens.wait(amount, now)
        return (wait, f"{cap}: too few tokens are left for the {amount:.0f} that it may use") if wait else None

    def take(self, tokens: float, now: float) -> Grant:
        """Takes all caps for a request that may go."""
        grant = Grant(self, now)
        if self.rps is not None and self._requests is not None:
            self._requests.take(1.0, now)
        if self.tpm is not None and self._tokens is not None:
            self._tokens.take(tokens, now)
            grant.tokens, grant.bucket = tokens, self._tokens
        return grant

    def pass_by(self, now: float) -> Grant:
        """Counts in flight what is let go beyond the caps (`mode: observe`); rates count only what they let go."""
        return Grant(self, now)

    def whole(self, now: float) -> bool:
        """Whether nothing is out, and nothing is owed: whoever begins anew has no more than this."""
        if self.in_flight:
            return False
        return all(not b.capacity or b.part(now) >= 1.0 for b in (self._requests, self._tokens) if b is not None)

    def levels(self, now: float) -> tuple[float | None, float | None]:
        """Returns what is left now, of requests and of tokens; below zero when it is owed, None without a cap."""
        return (
            self._requests.level(now) if self.rps is not None and self._requests is not None else None,
            self._tokens.level(now) if self.tpm is not None and self._tokens is not None else None,
        )


class Grant:
    """What one request has of its tenant's caps. `give_back` ends it, once, however often it is called."""

    __slots__ = ("_caps", "_given_back", "_since", "bucket", "tokens")

    def __init__(self, caps: Caps, now: float) -> None:
        self._caps = caps
        self._since = now
        self._given_back = False
        self.tokens = 0.0
        self.bucket: Bucket | None = None
        caps.in_flight += 1

    def __repr__(self) -> str:
        return f"<Grant of {self._caps}{' given back' * self._given_back}>"

    def give_back(self, used: float, now: float) -> None:
        """Frees the place, and settles the tokens: what was not `used` comes back, what was used beyond is owed."""
        if self._given_back:
            return
        self._given_back = True
        caps = self._caps
        caps.in_flight -= 1
        caps.hold_seconds += (SMOOTHING if caps.hold_seconds else 1.0) * (now - self._since - caps.hold_seconds)
        if self.bucket is not None:
            self.bucket.give(self.tokens - used, now)
