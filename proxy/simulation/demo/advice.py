"""What to try next, while the demo stays up: lines to copy."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from proxy.simulation.demo.settings import CHAT_MODEL, DemoSettings

_QUESTION = f'{{"model": "{CHAT_MODEL}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
_SCRIPT = (
    'from openai import OpenAI; client = OpenAI(base_url="http://{listen}/v1", api_key="unused"); '
    'print(client.chat.completions.create(model="{model}", messages=[{{"role": "user", "content": "Hello"}}])'
    ".choices[0].message.content)"
)


def advice(settings: DemoSettings, policy: Path) -> list[tuple[str, list[str]]]:
    """Returns headings with their lines."""
    script = _SCRIPT.format(listen=settings.listen, model=CHAT_MODEL)
    admin = f"http://{settings.admin}"
    fault = '["status=503,to=30s"]'
    sdk = "With the OpenAI SDK: only base_url is another one"
    return [
        (
            "Ask something; -i shows which tier answered, after how many attempts",
            [f"curl -i http://{settings.listen}/v1/chat/completions -d '{_QUESTION}'"],
        ),
        (
            sdk if find_spec("openai") else f"{sdk} (pip install openai)",
            [f"{near(Path(sys.executable))} -c '{script}'"],
        ),
        (
            "Let alpha fail for 30 seconds, then ask again",
            [f"curl http://{settings.providers['alpha']}/sim/faults -d '{fault}'"],
        ),
        (
            "Edit the policy while all this runs: a change is live within two seconds, a mistake is shown below",
            [str(near(policy))],
        ),
        (
            "Look inside: breakers, permits and queues; counters; the policy in force",
            [f"curl {admin}/status", f"curl {admin}/metrics", f"curl {admin}/policy"],
        ),
    ]


def near(path: Path) -> Path:
    """Returns the path as it is shortest from here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
