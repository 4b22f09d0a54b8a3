"""Fallback: which tier next, given how the last one ended (`semantics.md` §1, §5)."""

from __future__ import annotations

from proxy.outcome import Outcome, OutcomeKind

FINAL = frozenset(
    {
        OutcomeKind.OK,
        OutcomeKind.ANSWERED,
        OutcomeKind.CALLER_ERROR,
        OutcomeKind.CLIENT_LEFT,
        OutcomeKind.TOTAL_TIMEOUT,
        OutcomeKind.STREAM_TIMEOUT,
        OutcomeKind.DRAINED,
        OutcomeKind.BUG,
    }
)
"""Ends that another tier cannot mend, or that are no failures."""


def moves_on(outcome: Outcome, *, own_key: bool, repeatable: bool, resendable: bool) -> bool:
    """Whether the next tier is asked.

    `own_key`: the tier used one of our keys; a credential that the caller brought and the provider rejects is the
    caller's matter. `repeatable` and `resendable` as in `retry.Situation`.
    """
    if outcome.committed or outcome.kind in FINAL:
        return False
    if outcome.local:
        return True
    if outcome.kind is OutcomeKind.CREDENTIAL_REJECTED and not (own_key and outcome.key_fault):
        return False
    return resendable and (repeatable or not outcome.maybe_executed)


def better(best: Outcome | None, last: Outcome) -> Outcome:
    """Of two failed tiers, returns the outcome to answer with.

    The last answer that a provider gave; where none gave any, the first tier's own reason (`policy.md` rule 9). What a
    provider says of one of our keys is not for the caller: it counts as no answer.
    """
    tells = last.answer is not None and last.kind is not OutcomeKind.CREDENTIAL_REJECTED
    return last if best is None or tells else best
