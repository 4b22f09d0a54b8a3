"""Hops: the proxies that a request has passed (`Via`), and how many it may still pass (`Max-Forwards`).

RFC 9110 §7.6.2, §7.6.3. Our name in `Via` is this process's own, so that two proxies in a row are no loop.
"""

from __future__ import annotations

from typing import Final

from proxy.downstream.arrival import Arrival
from proxy.fields import Fields
from proxy.outcome import Outcome, Reason, refused

_OPTIONS: Final = "OPTIONS"
_MOST_DIGITS: Final = 9
_MOST_HOPS: Final = 10**_MOST_DIGITS - 1


def hop_problem(arrival: Arrival, pseudonym: str) -> Outcome | None:
    """Returns the refusal of a request that has been here before, or may go no further; else counts this hop.

    `Max-Forwards` counts for OPTIONS only: TRACE goes no further anyway, and other methods do not heed it.
    """
    fields = arrival.fields
    if "via" in fields and _has_passed(fields, pseudonym):
        return refused(Reason.LOOP_DETECTED)
    at = fields.shape.first.get("max-forwards")
    if at is None or arrival.method != _OPTIONS:
        return None
    left = fields["max-forwards"]
    if not (left.isascii() and left.isdigit()) or "max-forwards" in fields.repeated:
        return refused(Reason.BAD_REQUEST, detail="Max-Forwards must be plain digits, and stand there once")
    if not left.strip("0"):
        return refused(Reason.BAD_REQUEST, detail="Max-Forwards lets this request go no further; send a larger one")
    fields.lines[at] = b"%d" % (int(left) - 1 if len(left) <= _MOST_DIGITS else _MOST_HOPS)
    return None


def _has_passed(fields: Fields, pseudonym: str) -> bool:
    """Whether `Via` names this process: each of its members is a protocol, a name, and perhaps a comment."""
    members = (member.split() for line in fields.getall("via") for member in line.split(","))
    return any(len(member) > 1 and member[1] == pseudonym for member in members)
