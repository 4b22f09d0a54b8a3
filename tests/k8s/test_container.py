"""The container's own command line in a pod of this machine: it starts, serves, reloads and ends without a right."""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.k8s.image import entrypoint, of_last, variables
from tests.k8s.kubelet import Volume, environment
from tests.k8s.pod import ADDRESS, PATIENCE, Container, Image, Pod, checkout, need_root, until
from tests.k8s.tools import K8S, ROOT, Document, built, of_kind, pod_templates

KEY = "sk-of-the-secret"
PROVIDER = "127.0.0.1:9001"
CHAT = {"model": "sim-chat", "messages": [{"role": "user", "content": "Hello"}]}
IMAGES = ["the checkout", "the steps of the Dockerfile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The example's sidecar, ready, beside a provider in the same pod."""

    pod: Pod
    container: Container
    policy: Volume
    keys: Volume
    text: str
    manifest: Document


@pytest.fixture(scope="module", params=IMAGES)
def image(request: pytest.FixtureRequest) -> Image:
    """What the container starts from."""
    return checkout() if request.param == IMAGES[0] else request.getfixturevalue("made")


@pytest.fixture
def running(image: Image, tmp_path: Path) -> Iterator[Running]:
    """The sidecar of the example Deployment; its policy's provider is a simulated one."""
    need_root()
    found = built(K8S / "examples/deployment")
    config = {each["metadata"]["name"]: each["data"] for each in of_kind(found, "ConfigMap")}
    text = config["sponson-policy"]["policy.yaml"].replace("https://api.openai.com", f"http://{PROVIDER}")
    # Tests ask more often than the example's account allows.
    text = text.replace("rpm: 500, tpm: 200000", "rpm: 500000, tpm: 200000000")
    manifest = pod_templates(found)[0]["spec"]["initContainers"][0]
    volumes = {
        "sponson-policy": Volume(tmp_path / "policy", {"policy.yaml": text}),
        "sponson-keys": Volume(tmp_path / "keys", {"openai": f"{KEY}\n"}),
    }
    # PATH is that of the place in which the image is here.
    set_there = {name: value for name, value in variables(of_last("ENV")).items() if name != "PATH"}
    env = {**set_there, "HOSTNAME": "app-5d4f9c-x7k2p", **environment(manifest, config)}
    with Pod(tmp_path) as pod:
        pod.start(*provider(), log=tmp_path / "provider.log", env={**os.environ, "PYTHONPATH": str(ROOT)})
        container = Container(pod, image, entrypoint(), manifest)
        container.start(env, volumes)
        container.ready()
        until(lambda: answers(pod))
        policy, keys = volumes.values()
        yield Running(pod=pod, container=container, policy=policy, keys=keys, text=text, manifest=manifest)


def provider() -> list[str]:
    """A provider that takes the Secret's key only, and whose streams last a while."""
    pace = ["--tokens-per-second", "20", "--output-tokens", "20"]
    return [sys.executable, "-m", "proxy", "sim", "--listen", f"sim={PROVIDER}", "--api-key", KEY, *pace]


def answers(pod: Pod) -> bool:
    """Whether the provider is up: calls before that would take of the share's quota."""
    try:
        return pod.ask("/sim/stats", port=int(PROVIDER.rpartition(":")[2]))[0] == 200
    except OSError:
        return False


def calls_and_is_parked(running: Running) -> bool:
    """Makes a call; returns whether its key is one that the provider does not take."""
    running.pod.ask("/v1/chat/completions", port=4000, body=CHAT)
    (key,) = json.loads(running.pod.ask("/status")[1])["keys"]
    return bool(key["state"] == "parked")


def status_of(process: int) -> dict[str, str]:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return {name: " ".join(value.split()) for name, _, value in (line.partition(":") for line in lines)}


def test_it_serves_without_a_right_and_without_a_place_to_write(running: Running) -> None:
    assert running.pod.ask("/v1/chat/completions", port=4000, body=CHAT)[0] == 200
    pid = running.container.pid
    status = status_of(pid)
    assert status["NSpid"].split()[-1] == "1"
    assert status["Uid"] == status["Gid"] == "65532 65532 65532 65532"
    assert status["Groups"] == ""
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    writable = set()
    for line in Path(f"/proc/{pid}/mounts").read_text().splitlines():
        _, place, _, options, *_ = line.split()
        if "ro" not in options.split(","):
            writable.add(place)
    assert writable == {"/proc", "/dev/null", "/dev/zero", "/dev/urandom"}
    assert "Traceback" not in running.container.log()


def test_the_application_and_the_cluster_reach_what_is_theirs(running: Running) -> None:
    assert running.pod.ask("/metrics", host=ADDRESS)[0] == 200
    with pytest.raises(ConnectionRefusedError):
        running.pod.ask("/v1/chat/completions", host=ADDRESS, port=4000, body=CHAT)


def test_a_swap_of_the_mounted_policy_is_a_reload(running: Running) -> None:
    def policy() -> Document:
        found = json.loads(running.pod.ask("/policy")[1])
        assert isinstance(found, dict)
        return found

    first = policy()
    running.policy.swap({"policy.yaml": running.text.replace("concurrency: 100", "concurrency: 40")})
    until(lambda: policy()["revision"] == first["revision"] + 1, running.container.log)
    running.policy.swap({"policy.yaml": running.text.replace("concurrency", "konkurrency")})
    until(lambda: bool(policy()["problems"]), running.container.log)
    assert policy()["revision"] == first["revision"] + 1


def test_a_swap_of_the_mounted_keys_is_one_too(running: Running) -> None:
    running.keys.swap({"openai": "sk-of-somebody-else\n"})
    until(lambda: calls_and_is_parked(running), running.container.log)
    running.keys.swap({"openai": KEY})
    until(lambda: not calls_and_is_parked(running), running.container.log)
    assert running.pod.ask("/v1/chat/completions", port=4000, body=CHAT)[0] == 200


def test_it_ends_when_the_stream_that_runs_has_ended(running: Running) -> None:

    connection = http.client.HTTPConnection("127.0.0.1", 4000, timeout=PATIENCE)

    def begin() -> http.client.HTTPResponse:
        connection.request("POST", "/v1/chat/completions", json.dumps({**CHAT, "stream": True}))
        return connection.getresponse()

    with closing(connection), running.pod.inside(begin) as stream:
        assert stream.status == 200
        assert stream.readline().startswith(b"data: ")
        assert running.container.end() == 0
        assert stream.read().rstrip().endswith(b"data: [DONE]")
    assert "Traceback" not in running.container.log()
