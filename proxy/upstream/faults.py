"""What went wrong with a connection, in plain words, and what an operator can do about it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import ClientConnectorCertificateError, ClientConnectorDNSError, ClientConnectorSSLError

_TRUST: Final = "let this process trust its authority (SSL_CERT_FILE: the system's authorities and this one)"
_CLOCK: Final = "renew the provider's certificate, or set this machine's clock"

CERTIFICATES: Final[Mapping[int, str]] = {
    9: _CLOCK,
    10: _CLOCK,
    18: _TRUST,
    19: _TRUST,
    20: _TRUST,
    21: _TRUST,
    62: "write a name that its certificate holds into base_url",
    64: "write an address that its certificate holds into base_url, or a name",
}
"""Cures by OpenSSL's verification codes (X509_V_ERR_*)."""

_OLD: Final = "the provider speaks no TLS 1.2 or later; update it"
HANDSHAKES: Final[Mapping[str, str]] = {
    "WRONG_VERSION_NUMBER": "no TLS is spoken there; perhaps base_url should begin with http://",
    "RECORD_LAYER_FAILURE": "no TLS is spoken there; perhaps base_url should begin with http://",
    "UNSUPPORTED_PROTOCOL": _OLD,
    "TLSV1_ALERT_PROTOCOL_VERSION": _OLD,
    "NO_PROTOCOLS_AVAILABLE": _OLD,
}
"""Cures by OpenSSL's reason for a failed handshake."""

_ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""Handshakes that broke off: their peer may be starting, and complete the next one."""
_UNKNOWN: Final = frozenset(
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if hasattr(socket, name)
)


def hopeless(error: BaseException) -> bool:
    """Whether a dial would fail in the same way a moment later: its name, its certificate or its TLS is wrong."""
    if isinstance(error, ClientConnectorCertificateError):
        return True
    cause = getattr(error, "os_error", error)
    if isinstance(error, ClientConnectorDNSError):
        return getattr(cause, "errno", None) in _UNKNOWN
    return isinstance(error, ClientConnectorSSLError) and not isinstance(cause, _ENDED)


def why(error: BaseException) -> str:
    """Says in plain words why a connection failed: the system's own reason where there is one, and its cure."""
    cause: Any = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    if isinstance(cause, TimeoutError) and not cause.errno:
        return "time ran out"
    # A certificate's own message says more than its library's error code.
    reason = getattr(cause, "verify_message", None) or getattr(cause, "strerror", None) or str(cause)
    text = str(reason).lower() if reason else type(error).__name__
    cure = CERTIFICATES.get(getattr(cause, "verify_code", 0)) or HANDSHAKES.get(getattr(cause, "reason", None) or "")
    return f"{text} ({cure})" if cure else text
