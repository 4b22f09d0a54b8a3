"""Names of our own for a proxy process: a name server on loopback, and a view of the file system that points to it."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import socket
import struct
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

_PORT: Final = 53
_A: Final = 1
NXDOMAIN: Final = 3
SERVFAIL: Final = 2
_BIND: Final = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'


def available() -> bool:
    """Whether this process may have a port of the system's, and a view of the file system of its own (Linux, root)."""
    if os.geteuid() or shutil.which("unshare") is None:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.53.0.1", _PORT))
        except OSError:
            return False
    return subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0


class NameServer:
    """Answers for every name of `hosts`: with addresses, with a code, or with silence (None). All others: NXDOMAIN."""

    def __init__(self) -> None:
        self.hosts: dict[str, list[str] | int | None] = {}
        self.asked: list[str] = []
        self.address = f"127.53.{random.randrange(1, 255)}.{random.randrange(1, 255)}"
        self._folder = tempfile.TemporaryDirectory(prefix="sponson-names-")
        self._transport: asyncio.DatagramTransport | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: _Ears(self), (self.address, _PORT))
        self._conf.write_text(f"nameserver {self.address}\noptions timeout:20 attempts:1\n")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._transport is not None
        self._transport.close()
        self._folder.cleanup()

    @property
    def _conf(self) -> Path:
        return Path(self._folder.name, "resolv.conf")

    @property
    def prefix(self) -> list[str]:
        """What a command begins with that is to ask this server."""
        return ["unshare", "-m", "sh", "-c", _BIND, str(self._conf)]

    def answer(self, question: bytes) -> bytes | None:
        """Returns the answer to one question; None: silence."""
        labels, at = [], 12
        while size := question[at]:
            labels.append(question[at + 1 : at + 1 + size].decode())
            at += 1 + size
        (kind,) = struct.unpack_from(">H", question, at + 1)
        name = ".".join(labels)
        self.asked.append(name)
        said = self.hosts.get(name, NXDOMAIN)
        if said is None:
            return None
        code, hosts = (said, []) if isinstance(said, int) else (0, said if kind == _A else [])
        head = question[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(hosts), 0, 0)
        records = (struct.pack(">HHHIH", 0xC00C, _A, 1, 0, 4) + socket.inet_aton(host) for host in hosts)
        return head + question[12 : at + 5] + b"".join(records)


class _Ears(asyncio.DatagramProtocol):
    def __init__(self, server: NameServer) -> None:
        self._server = server
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        answer = self._server.answer(data)
        if answer is not None and self._transport is not None:
            self._transport.sendto(answer, addr)
