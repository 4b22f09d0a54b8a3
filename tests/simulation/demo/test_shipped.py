"""The policy that the demo uses, and the ports in it."""

from __future__ import annotations

from pathlib import Path

from proxy.policy.load import load_policy
from proxy.policy.source import read_policy
from proxy.simulation.demo.settings import BASE_PORT, CHAT_MODEL, EMBEDDING_MODEL, MESSAGES_MODEL, DemoSettings
from proxy.simulation.demo.shipped import moved, policy_file

ROOT = Path(__file__).parents[3]


def addresses(policy: Path) -> dict[str, str]:
    """Provider → host and port, as a loaded policy has them."""
    providers = load_policy(read_policy(policy)).providers
    return {each.name: f"{each.host}:{each.port}" for each in providers}


def test_in_a_checkout_the_policy_is_the_one_to_edit(tmp_path: Path) -> None:
    assert policy_file(BASE_PORT, tmp_path) == ROOT / "policies/local.yaml"
    assert list(tmp_path.iterdir()) == []


def test_the_providers_are_where_the_policy_looks_for_them(tmp_path: Path) -> None:
    usual, other = DemoSettings(environ={}), DemoSettings(base_port=7000, environ={})
    assert addresses(policy_file(usual.base_port, tmp_path)) == usual.providers
    assert addresses(policy_file(other.base_port, tmp_path)) == other.providers


def test_the_policy_names_the_models_that_are_asked_for() -> None:
    providers = load_policy(read_policy(ROOT / "policies/local.yaml")).providers
    named = {each.name: {model.name for model in each.models} for each in providers}
    openai = {CHAT_MODEL, EMBEDDING_MODEL}
    assert named == {"alpha": openai, "beta": openai, "gamma": {MESSAGES_MODEL}}


def test_only_the_providers_ports_move() -> None:
    assert moved("a: http://127.0.0.1:4011/v1 # 4011", 5000) == "a: http://127.0.0.1:5011/v1 # 4011"
