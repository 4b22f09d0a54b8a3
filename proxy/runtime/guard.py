"""A breaker in its place: whom it tells of its changes, which queues it empties, and which calls its ceiling binds.

Owns the wiring between one breaker and admission. A breaker that outlives its policy without being part of the next
one (the provider's address has changed) has no say any more over queues that the next one uses.

Of several addresses each has its breaker, and one line waits for all. So a breaker that opens empties no queue while
another address is there, and a ceiling is a part of what all of them have room for (`decisions/addresses`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from proxy.decisions.addresses import Addresses
from proxy.decisions.breaker import Breaker, BreakerChange, BreakerState
from proxy.decisions.places import Places
from proxy.decisions.queues import Line, Refusal
from proxy.decisions.room import Room
from proxy.observer import BreakerChanged
from proxy.outcome import Reason
from proxy.runtime.workshop import Workshop

ANY_MODEL: Final = "*"


class Guard:
    """Stands between a breaker and the lines behind it: those of one model, or of all (`ANY_MODEL`).

    `label` is the model's name for observers, `addresses` are all of the provider, where there are several.
    """

    __slots__ = ("_label", "_model", "_provider", "_room", "_shop", "addresses", "breaker")

    def __init__(self, breaker: Breaker, shop: Workshop, *, provider: str, model: str, label: str, room: Room) -> None:
        self.breaker = breaker
        self.addresses: Addresses | None = None
        self._shop = shop
        self._provider = provider
        self._room = room
        self._model = model
        self._label = label

    def __repr__(self) -> str:
        return f"<Guard of {self._provider}/{self._model}: {self.breaker!r}>"

    def take_over(self) -> None:
        """From here on this guard is told what its breaker does."""
        self.breaker.rewire(self._changed, self._ceiling_moved)

    def lets_go(self, now: float) -> bool:
        """Whether a call could go, of several addresses to any."""
        return (self.addresses or self.breaker).lets_go(now)

    def bound(self, limits: Iterable[Places]) -> tuple[Places, ...]:
        """Returns these limits and, while it stands, the breaker's ceiling."""
        ramp = self.breaker.ramp
        own = tuple(places for places in limits if places is not ramp.places)
        return own if ramp.size is None else (*own, ramp.places)

    def _changed(self, change: BreakerChange) -> None:
        shop = self._shop
        shop.observer.happened(
            BreakerChanged(
                provider=self._provider,
                model=self._label,
                old=change.old.value,
                new=change.new.value,
                why=change.why,
                open_seconds=change.open_seconds,
            )
        )
        if change.new is BreakerState.OPEN:
            self._flush(change.open_seconds)
        elif self.addresses is not None:
            self._ceiling_moved()

    def _flush(self, open_seconds: float) -> None:
        """Refuses whoever waits behind the breaker, unless another address may still take them."""
        shop, addresses = self._shop, self.addresses
        now = shop.clock.now()
        if addresses is not None:
            if not addresses.shut:
                return
            open_seconds = addresses.retry_after(now)
        refusal = Refusal(reason=Reason.BREAKER_OPEN, retry_after=open_seconds)
        for line in self._lines():
            shop.admission.flush(line, refusal, now)

    def _ceiling_moved(self) -> None:
        """Binds the lines or lets them go, and lets those go on who fit under the ceiling now."""
        if self.addresses is not None:
            self._shop.admission.pump(self._shop.clock.now(), (self.addresses.openings.places,))
            return
        moved: tuple[Places, ...] | None = (self.breaker.ramp.places,)
        for line in self._lines():
            limits = self.bound(line.limits)
            if limits != line.limits:
                line.bind(limits)
                moved = None
        self._shop.admission.pump(self._shop.clock.now(), moved)

    def _lines(self) -> list[Line]:
        """Returns the queues behind the breaker, those of an earlier policy too."""
        shop = self._shop
        return [
            line
            for (_, _, model, *_), line, in_use in shop.kept.all(Line)
            if line.room is self._room and self._model in (ANY_MODEL, model) and (shop.live or not in_use)
        ]
