"""Machines that vanish: from some moment on no packet reaches a socket, and so none comes from it."""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import Any, Final

_SO_ATTACH_FILTER: Final = 26
_DROP_ALL: Final = struct.pack("HBBI", 0x06, 0, 0, 0)
"""One instruction of the kernel's packet filter: return 0, nothing of the packet is kept."""


def vanish(bound: Any) -> None:
    """Drops all that comes to this socket of ours; to a listener, also new connections. Needs no privilege (Linux)."""
    code = ctypes.create_string_buffer(_DROP_ALL)
    program = struct.pack("HL", 1, ctypes.addressof(code))
    bound.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
