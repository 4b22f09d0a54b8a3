"""The policy itself: the top level of the YAML."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from proxy.policy.schema.base import Section, absent, option, required, section
from proxy.policy.schema.fleet import MODE, Classes, Fleet, Intercept, Mode, ProcessLimits, Telemetry, Tenants
from proxy.policy.schema.providers import Provider
from proxy.policy.schema.routes import Route
from proxy.policy.schema.types import Maybe, ProviderName, Version


class Policy(Section):
    """Everything that operators decide about calls to model providers."""

    version: Version = required("1, the only version there is")
    mode: Mode = option("enforce", MODE)
    fleet: Fleet = section(Fleet, "how this instance learns its share of every fleet-wide limit")
    limits: ProcessLimits = section(ProcessLimits, "all providers together, fleet-wide")
    classes: Classes = section(Classes, "the three priorities")
    tenants: Maybe[Tenants] = absent("who asks, and how much each may ask")
    providers: Annotated[dict[ProviderName, Provider], Field(min_length=1)] = required("the model services")
    routes: Maybe[list[Route]] = absent("first match wins; absent: anything goes to the first provider")
    telemetry: Telemetry = section(Telemetry, "what is recorded about calls")
    intercept: Maybe[Intercept] = absent("what happens to intercepted connections")
    batches: Maybe[Literal["local"]] = absent("local: answer /v1/files and /v1/batches here")
