"""Secrets stay where they belong: in no log line, metric, page, span, error or header, whatever happens.

Every place where a secret can stand holds a marked one while calls end in every way there is; then the mark is looked
for in all that the proxy has put out. A way to end that is not provoked fails the test, so that a new one joins.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from proxy.outcome import OutcomeKind, Reason
from tests.integration.leaks.marks import CALLERS, OURS, credentials, found
from tests.integration.leaks.scene import Scene, played
from tests.integration.reasons import NOT_BUILT_YET

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOT_PROVOKED = {OutcomeKind.BUG: "no input is known to cause one; its traceback is covered by nobody's input"}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["json", "text"])
async def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder, text = tmp_path_factory.mktemp("secrets"), request.param == "text"
    async with played(folder, log_format=request.param, debug=text) as scene:
        yield scene


async def test_every_outcome_is_provoked(scene: Scene) -> None:
    assert set(OutcomeKind) - scene.outcomes() == set(NOT_PROVOKED)


async def test_every_reason_is_provoked(scene: Scene) -> None:
    assert set(Reason) - scene.reasons() == set(NOT_BUILT_YET)


async def test_log_holds_no_secret(scene: Scene) -> None:
    assert scene.log.count("request_id") > 100
    assert found(scene.log.encode()) == []


async def test_admin_pages_hold_no_secret(scene: Scene) -> None:
    assert {path: places for path, data in scene.pages if (places := found(data))} == {}


async def test_answers_hold_no_secret(scene: Scene) -> None:
    assert {name: places for name, data in scene.answers if (places := found(data))} == {}


async def test_spans_and_metrics_hold_no_secret(scene: Scene) -> None:
    assert {path: places for path, bodies in scene.sink.bodies.items() if (places := found(b"".join(bodies)))} == {}


async def test_provider_that_nobody_meant_gets_no_credential(scene: Scene) -> None:
    assert scene.heads["second"]
    assert [credentials(head) for head in scene.heads["second"] if credentials(head)] == []


async def test_provider_with_keys_gets_one_of_them_and_nothing_of_the_callers(scene: Scene) -> None:
    heads = [
        head for name, heads in scene.heads.items() if name == "keyed" or name.startswith("echo") for head in heads
    ]
    assert len(heads) > 50
    got = {frozenset(credentials(head)) for head in heads}
    assert got == {frozenset({f"our {place}"}) for place in OURS}


async def test_provider_without_keys_gets_all_that_its_caller_brought(scene: Scene) -> None:
    assert {place for head in scene.heads["next"] for place in credentials(head)} == set(CALLERS) - {"proxy"}
