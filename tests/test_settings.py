"""Process settings: the place in the fleet, and no environment in a representation."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.settings import ProcessSettings, instance_index


@pytest.mark.parametrize(("text", "index"), [("0", 0), (" 12 ", 12), ("", None), ("  ", None)])
def test_the_place_in_the_fleet(text: str, index: int | None) -> None:
    assert instance_index({"SPONSON_INSTANCE_INDEX": text}) == index


def test_an_unset_place_is_unknown() -> None:
    assert instance_index({}) is None


@pytest.mark.parametrize("text", ["-1", "one", "1.5", "٣", "1e3", "pod-3"])
def test_what_is_no_number_is_named_with_its_cure(text: str) -> None:
    with pytest.raises(ValueError, match="SPONSON_INSTANCE_INDEX") as caught:
        instance_index({"SPONSON_INSTANCE_INDEX": text})
    assert "0 for the first" in str(caught.value)


def test_the_environment_with_its_secrets_is_never_shown() -> None:
    settings = ProcessSettings(policy=Path("p.yaml"), environ={"ALPHA_KEY": "hush-hush"})
    assert "hush" not in repr(settings)
