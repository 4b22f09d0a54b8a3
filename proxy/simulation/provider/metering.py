"""One call against the rate limits and against what was executed before: synchronous, told the time."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from proxy.simulation.provider.asks import Ask, Endpoint
from proxy.simulation.provider.compose import most_output_tokens, output_tokens
from proxy.simulation.provider.executions import Claim, Executions
from proxy.simulation.provider.ledger import Received
from proxy.simulation.provider.limits import Limits, Refusal, Standing, TokenRule
from proxy.simulation.provider.settings import SimulatorSettings
from proxy.simulation.provider.tally import Tally


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """One model call: who pays, what makes it the same call again, and which tokens count when."""

    seen: Received
    key: str
    fingerprint: str
    arriving: int
    producing: int
    claim: Claim | None = None


class Meter:
    """Lets calls in, counts what they use, and knows which of them were executed already."""

    def __init__(self, settings: SimulatorSettings, now: float) -> None:
        self._settings = settings
        self._limits = Limits(settings.limits, now)
        self._executions = Executions()
        self.tally = Tally(self._executions, tpm=settings.granted_tpm, now=now)

    def __repr__(self) -> str:
        return f"Meter({self._limits!r}, {self.tally!r})"

    def work(self, seen: Received, ask: Ask | None, *, key: str | None) -> Work | None:
        """Returns what a call is to the meter, None for one that no model works on."""
        if ask is None or ask.endpoint is Endpoint.COUNT_TOKENS:
            return None
        at_arrival = self._settings.count_tokens is TokenRule.ARRIVAL
        fingerprint = hashlib.sha256(f"{ask.endpoint}\0{seen.body_sha256}".encode()).hexdigest()
        return Work(
            seen=seen,
            key=key or "",
            fingerprint=fingerprint,
            arriving=ask.input_tokens + (most_output_tokens(ask, self._settings) if at_arrival else 0),
            producing=0 if at_arrival else output_tokens(ask, self._settings),
            claim=self._executions.find(seen.idempotency_key),
        )

    def conflicts(self, work: Work) -> bool:
        """Whether its idempotency key belongs to another body; counts it."""
        claim = work.claim
        if not self._settings.deduplicate or claim is None or claim.fingerprint == work.fingerprint:
            return False
        self.tally.conflicts += 1
        return True

    def answered(self, work: Work) -> bool:
        """Whether its answer is known already, because its idempotency key was executed."""
        return self._settings.deduplicate and work.claim is not None and work.claim.executed > 0

    def arrive(self, work: Work, now: float) -> Refusal | None:
        """Lets a call in and counts it, or returns why not."""
        refusal = self._limits.arrive(work.key, work.arriving, now)
        if refusal is not None:
            self.tally.refused(work.key)
            return refusal
        work.seen.tokens += work.arriving
        self.tally.let_in(work.key, work.arriving)
        return None

    def begin(self, work: Work, *, seed: int) -> None:
        """Claims the idempotency key of a call that was let in; `end` follows."""
        key = work.seen.idempotency_key
        if key is not None:
            work.claim = self._executions.begin(key, work.fingerprint, seed=seed, number=work.seen.number)

    def end(self, work: Work) -> None:
        """The call is over, however it ended."""
        if work.claim is not None:
            self._executions.end(work.claim)

    def execute(self, work: Work, now: float) -> None:
        """The model has done the work; or nothing is done, since it was done before under this key."""
        if self.answered(work):
            work.seen.replayed = True
            self.tally.replays += 1
            return
        work.seen.execution = self._executions.execute(work.claim, work.fingerprint)
        work.seen.tokens += work.producing
        self._limits.use(work.key, work.producing, now)
        self.tally.produced(work.key, work.producing)

    def source(self, work: Work | None, rng: random.Random, number: int) -> tuple[random.Random, int]:
        """Returns the random numbers and the number from which an answer is made: equal ones for equal keys."""
        if work is None or work.claim is None or not self._settings.deduplicate:
            return rng, number
        return random.Random(work.claim.seed), work.claim.number

    def standing(self, work: Work, now: float) -> list[Standing]:
        """Returns how far the limits of this caller are used."""
        return self._limits.standing(work.key, now)
