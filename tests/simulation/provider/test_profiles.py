from __future__ import annotations

import pytest
from click.testing import CliRunner

from proxy.cli.sim import command
from proxy.simulation.provider.launch import build_group
from proxy.simulation.provider.profiles import PROFILES, RESEARCH_AGENTS, parse_profile
from proxy.simulation.provider.settings import SimulatorSettings


def provider(*arguments: str) -> SimulatorSettings:
    with command.make_context("sim", list(arguments)) as context:
        return next(iter(build_group(**context.params).providers.values())).settings


def test_research_agents_are_two_thousand_with_48_million_tokens_a_minute() -> None:
    assert str(RESEARCH_AGENTS) == "2000 agents, 100 calls/s, 48 M tokens/min"
    parts = [kind.part for kind in RESEARCH_AGENTS.kinds]
    assert (parts, sum(parts)) == ([0.60, 0.35, 0.05], 1.0)
    large = sum(kind.part * kind.large_part for kind in RESEARCH_AGENTS.kinds)
    assert large == pytest.approx(0.1)
    assert {kind.large_tokens for kind in RESEARCH_AGENTS.kinds if kind.large_part} == {32_000}


def test_streams_last_nearly_until_the_next_and_one_agent_never_has_two() -> None:
    (kind,) = [kind for kind in RESEARCH_AGENTS.kinds if kind.stream]
    profile, tokens = RESEARCH_AGENTS, kind.output_tokens / RESEARCH_AGENTS.tokens_per_second
    longest = 3 * profile.latency.low + profile.thinking.high + tokens
    assert (profile.thinking.low + tokens) / profile.period_seconds(kind) > 0.5
    assert longest < profile.period_seconds(kind)


@pytest.mark.parametrize("name", PROFILES)
def test_every_agent_of_a_profile_asks_equally_often_and_its_runs_fit(name: str) -> None:
    profile = PROFILES[name]
    for kind in profile.kinds:
        assert kind.run / profile.period_seconds(kind) == pytest.approx(profile.calls_per_minute / 60)
        assert kind.run * kind.run_seconds < profile.period_seconds(kind)


def test_a_scale_divides_tokens_and_their_pace_and_leaves_times() -> None:
    whole, small = RESEARCH_AGENTS, RESEARCH_AGENTS.scaled(16)
    assert small.tokens_per_minute == whole.tokens_per_minute / 16
    assert (small.calls_per_second, small.latency, small.thinking) == (100, whole.latency, whole.thinking)
    for before, after in zip(whole.kinds, small.kinds, strict=True):
        seconds = before.output_tokens / whole.tokens_per_second
        assert after.output_tokens / small.tokens_per_second == pytest.approx(seconds)
        assert small.period_seconds(after) == whole.period_seconds(before)


def test_who_is_in_a_hurry_has_the_same_calls_in_less_time() -> None:
    whole, quick = RESEARCH_AGENTS, RESEARCH_AGENTS.hurried(4)
    assert quick.calls_per_second == 400
    assert (quick.latency.low, quick.thinking.high, quick.heartbeat_seconds) == (0.075, 1.5, 0.25)
    assert [kind.run_seconds * 4 for kind in quick.kinds] == [kind.run_seconds for kind in whole.kinds]
    assert quick.tokens_per_second == 160


def test_streams_are_steady_after_a_period_and_the_longest_of_them_however_scaled() -> None:
    assert RESEARCH_AGENTS.steady_seconds == pytest.approx(20 + 6 + 512 / 40)
    assert RESEARCH_AGENTS.scaled(16).hurried(4).steady_seconds == pytest.approx(RESEARCH_AGENTS.steady_seconds / 4)


def test_a_profile_is_its_provider_and_other_flags_stand_above_it() -> None:
    scaled = provider("--profile", "research-agents:16")
    assert (scaled.latency, scaled.thinking) == (RESEARCH_AGENTS.latency, RESEARCH_AGENTS.thinking)
    assert (scaled.heartbeat_seconds, scaled.tokens_per_second, scaled.output_tokens) == (1.0, 2.5, 32)
    for arguments in (["--output-tokens", "9"], ["--heartbeat", "3s"]):
        both = [
            provider(*arguments, "--profile", "research-agents"),
            provider("--profile", "research-agents", *arguments),
        ]
        assert both[0] == both[1] != provider("--profile", "research-agents")


@pytest.mark.parametrize("text", ["", "agents", "research-agents:", "research-agents:0", "research-agents:nan"])
def test_what_is_no_profile_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(ValueError, match="research-agents"):
        parse_profile(text)
    result = CliRunner().invoke(command, ["--profile", text])
    assert (result.exit_code, "--profile" in result.output) == (2, True)
