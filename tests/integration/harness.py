"""The proxy as a process, and a lab around it: the providers that its policy names, and callers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.integration.caller import HOST, PATIENCE, Answer, Body, Headers, Wire, call
from tests.integration.messages import CHAT, CHAT_STREAM
from tests.integration.scripted import ScriptedProvider
from tests.ports import free_port

START_SECONDS = 20.0
_QUIET = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none", "SPONSON_LOG_FORMAT": "json"}


def route(name: str, *tiers: str | Mapping[str, Any], **rest: Any) -> dict[str, Any]:
    """Returns a route for the calls that ask for the model of its name, unless `match` says otherwise."""
    steps = [{"provider": tier} if isinstance(tier, str) else dict(tier) for tier in tiers]
    return {"name": name, "match": {"model": name}, "tiers": steps, **rest}


class ProxyProcess:
    """One `sponson run`; its policy, log and secrets live in a folder that goes with it.

    `prefix` is a command that runs another one in its own place.
    """

    def __init__(
        self,
        policy: Mapping[str, Any] | str,
        *,
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sponson-test-")
        self.folder = Path(self._folder.name)
        self.policy_path = self.folder / "policy.yaml"
        self.log_path = self.folder / "log"
        self.rewrite(policy)
        self.port = free_port()
        self.admin = free_port(besides=self.port)
        self._flags = list(flags)
        self._env = {**_QUIET, **(env or {})}
        self._prefix = list(prefix)
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        try:
            self.spawn()
            await self.ready()
        except BaseException:
            self.kill()
            self._folder.cleanup()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.process.poll() is None:
                self.signal(signal.SIGTERM)
                await self.exited(within=20)
        finally:
            self.kill()
            self._folder.cleanup()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The child."""
        assert self._process is not None
        return self._process

    def spawn(self) -> None:
        """Starts the process without waiting for anything."""
        addresses = ["--listen", f"{HOST}:{self.port}", "--admin", f"{HOST}:{self.admin}"]
        command = [sys.executable, "-m", "proxy", "run", "--policy", str(self.policy_path), *addresses]
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._prefix, *command, *self._flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._env},
            )

    @contextmanager
    def spawned(self) -> Iterator[Self]:
        """Starts the process, waits for nothing, and leaves nothing of it."""
        try:
            self.spawn()
            yield self
        finally:
            self.kill()
            self._folder.cleanup()

    async def ready(self) -> None:
        """Waits until it accepts requests."""
        async with asyncio.timeout(START_SECONDS):
            while self.process.poll() is None:
                try:
                    if (await self.get("/readyz")).status == 200:
                        return
                except OSError:
                    pass
                await asyncio.sleep(0.02)
        raise AssertionError(f"the proxy ended with {self.process.returncode}:\n{self.log()}")

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self.process.send_signal(number)

    async def exited(self, *, within: float) -> int:
        """Waits for its end; returns the exit code."""
        async with asyncio.timeout(within):
            while (code := self.process.poll()) is None:
                await asyncio.sleep(0.01)
        return code

    def kill(self) -> None:
        """Ends the process, whatever it does."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def rewrite(self, policy: Mapping[str, Any] | str) -> None:
        """Puts another policy in place of the present one; the proxy sees it by itself."""
        fresh = self.policy_path.with_suffix(".new")
        fresh.write_text(policy if isinstance(policy, str) else json.dumps(policy, indent=1))
        fresh.replace(self.policy_path)

    async def get(self, path: str, *, within: float = 5.0) -> Answer:
        """Asks the admin port."""
        return await call(self.admin, path, method="GET", within=within)

    async def status(self) -> Any:
        """Returns what `/status` shows."""
        return (await self.get("/status")).json()

    async def until(self, holds: Callable[[Any], bool], *, within: float = 5.0) -> Any:
        """Waits until `/status` shows something; returns it."""
        status: Any = None
        try:
            async with asyncio.timeout(within):
                while not holds(status := await self.status()):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"/status still shows {json.dumps(status)[:3000]}") from None
        return status

    def log(self) -> str:
        """Returns all that it has written."""
        return self.log_path.read_text("utf-8", "replace")

    async def line_of(self, answer: Answer) -> dict[str, Any]:
        """Returns the log line of an answered request; it is written after the last byte."""
        wanted = answer.header("x-sponson-request-id")
        async with asyncio.timeout(5):
            while not (found := [line for line in self.request_lines() if line["request_id"] == wanted]):
                await asyncio.sleep(0.01)
        assert len(found) == 1, found
        return found[0]

    def request_lines(self) -> list[dict[str, Any]]:
        """Returns the log lines of requests, oldest first; a line that is only partly in the file yet is not one."""
        written = self.log()
        whole = written[: written.rfind("\n") + 1].splitlines()
        lines = [json.loads(line) for line in whole if line.startswith("{")]
        return [line for line in lines if "request_id" in line]


class Lab:
    """A proxy and a ScriptedProvider for every provider of its policy.

    A provider's `base_url` may hold `{port}`; without one it is `http://127.0.0.1:{port}/v1`. On leaving, the proxy
    must end with 0, with no permit out and no bug in its log.
    """

    def __init__(
        self,
        policy: Mapping[str, Any],
        *,
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.policy: dict[str, Any] = json.loads(json.dumps(policy))  # providers may share their parts
        self._flags = ["--linger", "0s", *flags]
        self._env = env
        self._prefix = prefix
        self._stack = AsyncExitStack()
        self.providers: dict[str, ScriptedProvider] = {}
        self._proxy: ProxyProcess | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for name, provider in self.policy["providers"].items():
                here = self.providers[name] = await stack.enter_async_context(ScriptedProvider())
                url: str | list[str] = provider.get("base_url", f"http://{HOST}:{{port}}/v1")
                filled = json.dumps(url).replace("{port}", str(here.port))
                provider["base_url"] = json.loads(filled)
            self._proxy = ProxyProcess(self.policy, flags=self._flags, env=self._env, prefix=self._prefix)
            await stack.enter_async_context(self._proxy)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self.proxy.process.poll() is None:
                await self._ends_well()
        finally:
            await self._stack.aclose()

    async def _ends_well(self) -> None:
        await self.idle()
        self.proxy.signal(signal.SIGTERM)
        code, log = await self.proxy.exited(within=20), self.proxy.log()
        assert code == 0, log
        assert "Traceback" not in log, log

    async def idle(self) -> None:
        """Waits until nothing is in flight and every permit is back."""
        await self.proxy.until(
            lambda status: (
                status["in_flight"] == 0
                and all(row["in_use"] == 0 for row in status["permits"])
                and all(row["waiting"] == 0 for row in status["queues"])
            )
        )

    @property
    def proxy(self) -> ProxyProcess:
        """The proxy."""
        assert self._proxy is not None
        return self._proxy

    def __getitem__(self, name: str) -> ScriptedProvider:
        return self.providers[name]

    async def call(
        self,
        path: str | bytes = "/v1/chat/completions",
        body: Body = None,
        *,
        method: str = "POST",
        headers: Headers = (),
        within: float = PATIENCE,
    ) -> Answer:
        """Makes one call through the proxy."""
        return await call(self.proxy.port, path, body, method=method, headers=headers, within=within)

    async def chat(
        self, model: str, *, stream: bool = False, headers: Headers = (), within: float = PATIENCE
    ) -> Answer:
        """Sends a chat for this model, which chooses the route of that name."""
        body = {**(CHAT_STREAM if stream else CHAT), "model": model}
        return await self.call(body=body, headers=headers, within=within)

    def wire(self) -> Wire:
        """Returns a connection to the proxy, to be entered."""
        return Wire(self.proxy.port)

    async def row(self, table: str, **match: Any) -> Any:
        """Returns the row of `/status` whose fields have these values."""
        rows = (await self.proxy.status())[table]
        found = [row for row in rows if all(row[name] == value for name, value in match.items())]
        assert len(found) == 1, rows
        return found[0]
