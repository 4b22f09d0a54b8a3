"""Request bodies that are passed on while they arrive; they cannot be sent a second time."""

from __future__ import annotations

import asyncio

from proxy.request import BodyProblem, Upload
from proxy.tasks import start_task
from proxy.upstream.wire import UpstreamConnection


class UploadPump:
    """Passes an upload on in a task of its own, so that an early answer is seen while it runs.

    What the provider has said is read before anything more is written (`ear`).

    `done`: the whole body has been passed on. `waits`: the next piece is the caller's to send. `problem`: what was
    wrong with the body.
    """

    __slots__ = ("_connection", "_task", "_upload", "done", "problem", "sent", "waits")

    def __init__(self, upload: Upload, connection: UpstreamConnection) -> None:
        self._upload = upload
        self._connection = connection
        self.problem: BodyProblem | None = None
        self.sent = 0
        self.done = False
        self.waits = True
        self._task: asyncio.Task[None] | None = start_task(self._run(), name="upload")

    def stop(self) -> None:
        """Passes nothing on any more."""
        # A cancelled task keeps where it was cancelled, and so this pump: they must not keep each other.
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def _run(self) -> None:
        chunked = self._upload.length is None
        connection = self._connection
        ear = connection.ear
        try:
            while piece := await self._upload.read():
                self.waits = False
                self.sent += len(piece)
                if ear is not None and ear.hears:
                    await asyncio.sleep(0)
                connection.write(b"%x\r\n" % len(piece) + piece + b"\r\n" if chunked else piece, b"")
                if connection.paused:
                    await connection.drain()
                self.waits = True
            if chunked:
                connection.write(b"0\r\n\r\n", b"")
            self.done = True
            self.waits = False
        except BodyProblem as problem:
            # Its traceback would keep this pump alive, and its connection.
            self.problem = problem.with_traceback(None)
            connection.abort()
        except OSError:
            return
