from __future__ import annotations

import json

from click.testing import CliRunner

from proxy.cli.schema import command


def test_the_schema_is_json_and_knows_the_surface() -> None:
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 0
    json.loads(result.stdout)
    assert all(f'"{name}"' in result.stdout for name in ("providers", "routes", "first_byte", "spread", "tenants"))
