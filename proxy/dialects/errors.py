"""Owns what a provider's error object stands for.

Shapes (the providers' documentation): a top-level `error` object or text, also beside `"type": "error"`; flat
`{"object": "error"}` and `{"type": "error"}`; any of these as the one element of a list.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

LONGEST_DELAY_SECONDS: Final = 86400.0

_STATUS: Final[dict[str, int]] = {
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "invalid_prompt": 400,
    "invalid_argument": 400,
    "failed_precondition": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "unauthenticated": 401,
    "billing_error": 402,
    "permission_error": 403,
    "permission_denied": 403,
    "insufficient_permissions": 403,
    "not_found_error": 404,
    "notfounderror": 404,
    "model_not_found": 404,
    "not_found": 404,
    "request_too_large": 413,
    "validation": 422,
    "generation": 424,
    "insufficient_quota": 429,
    "credit_balance_exhausted": 429,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "ratelimiterror": 429,
    "resource_exhausted": 429,
    "throttlingexception": 429,
    "overloaded": 429,
    "server_overloaded": 503,
    "service_unavailable": 503,
    "service_unavailable_error": 503,
    "serviceunavailableerror": 503,
    "unavailable": 503,
    "timeout_error": 504,
    "deadline_exceeded": 504,
    "overloaded_error": 529,
}
_SPENT: Final = (
    "insufficient_quota",
    "credit_balance",
    "credits_exhausted",
    "spend_limit",
    "spending_limit",
    "billing_error",
    "billing_hard_limit",
    "billing_not_active",
)
_KEY_AT_FAULT: Final = frozenset(
    {
        "authentication_error",
        "permission_error",
        "permission_denied",
        "insufficient_permissions",
        "missing_scope",
        "invalid_api_key",
        "account_deactivated",
    }
)
_NAME: Final = re.compile(r"[A-Za-z_.-]+\Z")
"""What is logged of an error: a provider may repeat a credential, which has a digit or a space."""
_SECONDS: Final = re.compile(r"(\d{1,18}(?:\.\d{0,18})?)s", re.ASCII)


@dataclass(frozen=True, slots=True)
class AnswerError:
    """An error that an answer carries: the status that it stands for, and the provider's word for it.

    `delay` is for how many seconds the provider asks to wait, if it does; `spent`: with this key no retry can succeed.
    """

    status: int
    code: str
    delay: float | None = None
    spent: bool = False


def error_in(document: Any) -> AnswerError | None:
    """Returns the error that a document is, or None. `error: null`, `false`, `""`, `{}` say nothing."""
    error = _error_object(document)
    if error is None:
        return None
    words = tuple(_words(error))
    code = words[0][:64] if words and _NAME.match(words[0]) else "error"
    return AnswerError(_status(error, words), code, delay=delay_in(document), spent=quota_is_spent(document))


def quota_is_spent(document: Any) -> bool:
    """Returns True when money or a daily allowance ran out: with this key no retry can succeed."""
    error = _error_object(document)
    if error is None:
        return False
    if any(part in word.lower() for word in _words(error) for part in _SPENT):
        return True
    return any("perday" in quota.lower() for quota in _violated_quotas(error))


def blames_key(status: int, document: Any) -> bool:
    """Returns True when the key was turned away, not the request: 401 and 402; 403 if the body says so."""
    if status in (401, 402):
        return True
    error = _error_object(document)
    if status != 403 or error is None:
        return False
    words = [word.lower() for word in _words(error)]
    return any(word in _KEY_AT_FAULT or word.startswith("api_key_") for word in words) or quota_is_spent(document)


def delay_in(document: Any) -> float | None:
    """Returns the seconds that a body asks to wait (`google.rpc.RetryInfo.retryDelay`), or None."""
    error = _error_object(document)
    for detail in _details(error) if error is not None else ():
        delay = detail.get("retryDelay")
        found = _SECONDS.fullmatch(delay) if isinstance(delay, str) else None
        if found:
            return min(float(found[1]), LONGEST_DELAY_SECONDS)
    return None


def _error_object(document: Any) -> Mapping[str, Any] | None:
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    if error:
        return error if isinstance(error, dict) else {"type": document.get("error_type")}
    if document.get("object") == "error" or document.get("type") == "error":
        return document
    return None


def _words(error: Mapping[str, Any]) -> Iterator[str]:
    """Yields the names in an error object, the most exact one first; numbers are no names."""
    for name in ("code", "type", "status"):
        word = error.get(name)
        if isinstance(word, str) and word and not word.isdecimal():
            yield word
    for detail in _details(error):
        for name in ("error_code", "reason"):
            word = detail.get(name)
            if isinstance(word, str) and word:
                yield word


def _details(error: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the objects under `details`: Anthropic has one, Google a list."""
    details = error.get("details")
    for detail in details if isinstance(details, list) else [details]:
        if isinstance(detail, dict):
            yield detail


def _violated_quotas(error: Mapping[str, Any]) -> Iterator[str]:
    for detail in _details(error):
        violations = detail.get("violations")
        for violation in violations if isinstance(violations, list) else ():
            quota = violation.get("quotaId") if isinstance(violation, dict) else None
            if isinstance(quota, str):
                yield quota


def _status(error: Mapping[str, Any], words: tuple[str, ...]) -> int:
    for name in ("code", "status", "status_code"):
        number = _number(error.get(name))
        if 400 <= number < 600:
            return int(number)
    for word in words:
        status = _STATUS.get(word.lower())
        if status is not None:
            return status
    return 500


def _number(value: Any) -> float:
    """Returns a status number given as number or text; NaN for anything else."""
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else math.nan
