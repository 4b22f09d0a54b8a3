from __future__ import annotations

import pytest
from pydantic import ValidationError

from proxy.policy.schema.policy import Policy

PROVIDERS = {"a": {"base_url": "http://a.example"}}


def test_the_smallest_policy() -> None:
    policy = Policy.model_validate({"version": 1, "providers": PROVIDERS})
    assert policy.routes is None
    assert policy.limits.concurrency is None


@pytest.mark.parametrize("value", [{}, {"version": 1}, {"version": 1, "providers": {}}, {"providers": PROVIDERS}])
def test_what_every_policy_has(value: object) -> None:
    with pytest.raises(ValidationError):
        Policy.model_validate(value)
