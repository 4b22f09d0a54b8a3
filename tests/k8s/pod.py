"""A pod of this machine, as near to a cluster's as it gets without one: root and a few tools are all it takes.

The pod is a network namespace of its own with an address of its own; the container has a mount and a process namespace
besides, a root of read-only mounts, volumes as kubelet mounts them, the image's environment and nothing else, and the
user, group, capabilities and privileges of its manifest. Not as in a cluster: seccomp and cgroups.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pytest

from tests.k8s.kubelet import Volume
from tests.k8s.tools import ROOT, Document

ADDRESS = "10.244.0.7"
"""What kubelet and Prometheus know the pod by."""

PATIENCE = 30.0
TOOLS = ("chroot", "ip", "mount", "nsenter", "setpriv", "unshare")
CLONE_NEWNET = 0x40000000

# Runs as process 1 of the container's namespaces, and becomes the container's command.
# $1: the root, $2: mounts, a line each: source, target. The rest: what to run.
ENTER = r"""
set -eu
root=$1 mounts=$2
shift 2
mount --make-rprivate /
mount -t tmpfs -o mode=0755 image "$root"
for name in bin lib lib64 sbin; do
    if [ -L "/$name" ]; then ln -s "$(readlink "/$name")" "$root/$name"; fi
done
echo "$mounts" | while read -r source target; do
    if [ -d "$source" ]; then mkdir -p "$root$target"; else mkdir -p "$root${target%/*}"; : >"$root$target"; fi
    mount --bind "$source" "$root$target"
    case $source in /dev/*) ;; *) mount -o remount,bind,ro "$root$target" ;; esac
done
mkdir "$root/proc"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -o remount,ro "$root"
exec chroot "$root" "$@"
"""

T = TypeVar("T")


def need_root() -> None:
    """Skips the test where no pod can be made."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip(f"needs Linux, root and {', '.join(missing or TOOLS)}")
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "mount", "--make-rprivate", "/"],
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )
    if tried.returncode:
        pytest.skip(f"root may make no namespaces here: {tried.stderr.decode()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What a container starts from: the environment's folder, (here, there) of all that is mounted, and PATH."""

    home: Path
    mounts: tuple[tuple[Path, Path], ...]
    path: str


def checkout() -> Image:
    """Returns an image of this checkout and its environment, in their own places."""
    prefix = Path(sys.base_prefix)
    parts = [ROOT / name for name in ("otel", "policies", "proxy")]
    # Under an editable install the package is where the checkout is.
    places = [Path(sys.prefix), *parts, *([] if prefix.is_relative_to("/usr") else [prefix])]
    mounts = tuple((place, place) for place in places)
    return Image(home=Path(sys.prefix), mounts=mounts, path=f"{sys.prefix}/bin:/usr/bin")


class Pod:
    """A network namespace that others enter; all that was started in it ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        self._inside: ThreadPoolExecutor | None = None
        self._net = ""

    def __enter__(self) -> Self:
        pause = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self._started.append(pause)
        self._net = f"/proc/{pause.pid}/ns/net"
        try:
            until(lambda: os.readlink(self._net) != os.readlink("/proc/self/ns/net"))
            for command in (["link", "set", "lo", "up"], ["address", "add", f"{ADDRESS}/32", "dev", "lo"]):
                subprocess.run([*self._enter, "ip", *command], check=True, timeout=PATIENCE)
            self._inside = ThreadPoolExecutor(1, initializer=_enter_network, initargs=(self._net,))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def _enter(self) -> list[str]:
        return ["nsenter", f"--net={self._net}"]

    def _end(self) -> None:
        if self._inside is not None:
            self._inside.shutdown()
        for process in reversed(self._started):
            process.kill()
            process.wait()

    def start(self, *command: str, log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Starts a process in the pod's network; its output goes to a file."""
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*self._enter, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd="/"
            )
        self._started.append(process)
        return process

    def inside(self, work: Callable[[], T]) -> T:
        """Runs something blocking in the pod's network: its sockets are the pod's."""
        assert self._inside is not None
        return self._inside.submit(work).result(timeout=PATIENCE)

    def ask(self, path: str, *, host: str = "127.0.0.1", port: int = 4001, body: object = None) -> tuple[int, str]:
        """Asks the proxy; returns status and text."""

        def call() -> tuple[int, str]:
            connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
            try:
                connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            finally:
                connection.close()

        return self.inside(call)


class Container:
    """One container of a pod, made from its manifest."""

    def __init__(self, pod: Pod, image: Image, entrypoint: Sequence[str], manifest: Document) -> None:
        self._pod = pod
        self._image = image
        self._command = [*entrypoint, *manifest["args"]]
        self._manifest = manifest
        self._process: subprocess.Popen[bytes] | None = None
        self.log_path = pod.folder / "container.log"

    def start(self, env: Mapping[str, str], volumes: Mapping[str, Volume]) -> None:
        """Starts it; `volumes` are by name, `env` is the image's and the manifest's."""
        root = self._pod.folder / "root"
        root.mkdir()
        mounts = "\n".join(f"{source} {target}" for source, target in self._mounts(volumes))
        variables = [f"{name}={value}" for name, value in {"PATH": self._image.path, **env}.items()]
        self._process = self._pod.start(
            *("unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"),
            *("sh", "-c", ENTER, "enter", str(root), mounts),
            *("setpriv", *self._privileges(), "env", "-i", *variables, *self._command),
            log=self.log_path,
        )

    def _privileges(self) -> list[str]:
        context = self._manifest["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["allowPrivilegeEscalation"] is False
        drop = [f"--{kind}=-all" for kind in ("inh-caps", "ambient-caps", "bounding-set")]
        user = [f"--reuid={context['runAsUser']}", f"--regid={context['runAsGroup']}", "--clear-groups"]
        return [*user, *drop, "--no-new-privs"]

    def _mounts(self, volumes: Mapping[str, Volume]) -> list[tuple[Path, Path]]:
        same = [Path("/usr"), Path("/etc/ssl"), *(Path("/dev") / name for name in ("null", "zero", "urandom"))]
        same += [Path("/") / name for name in ("lib", "lib64") if not os.path.islink(f"/{name}")]
        etc = self._pod.folder / "resolv.conf"
        etc.write_text("nameserver 10.96.0.10\nsearch shop.svc.cluster.local svc.cluster.local\noptions ndots:5\n")
        asked = [(volumes[mount["name"]].place, Path(mount["mountPath"])) for mount in self._manifest["volumeMounts"]]
        there = [(place, place) for place in same if place.exists()]
        return [*there, (etc, Path("/etc/resolv.conf")), *self._image.mounts, *asked]

    @property
    def pid(self) -> int:
        """The number here of what is process 1 there."""
        assert self._process is not None
        text = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        (child,) = text.split()
        return int(child)

    def log(self) -> str:
        """Returns all that it has written."""
        return self.log_path.read_text("utf-8", "replace")

    def ready(self) -> None:
        """Waits until its startup and readiness probes succeed, asked as kubelet does: at the pod's address."""
        probes = [self._manifest[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")]

        def well() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self.log()
            try:
                return all(self._pod.ask(path, host=ADDRESS)[0] == 200 for path in probes)
            except OSError:
                return False

        until(well, self.log)

    def end(self) -> int:
        """Sends SIGTERM to process 1; returns the exit code."""
        assert self._process is not None
        os.kill(self.pid, signal.SIGTERM)
        return self._process.wait(timeout=PATIENCE)


def until(holds: Callable[[], bool], tell: Callable[[], Any] = str) -> None:
    """Waits until something holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, tell()
        time.sleep(0.02)


def _enter_network(place: str) -> None:
    """Moves this thread into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(place) as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
