"""The policy under test: what Sponson is told about the overloaded model.

The share is what the model can do at once, so its own queue stays empty. At most 100 calls wait here, 0.2 s at 500
calls a second; the rest goes to a small model at once, and what that cannot take gets an answer that the policy holds.
"""

from __future__ import annotations

SLOTS = 400
MEAN_SECONDS = 0.8
CAPACITY_PER_SECOND = SLOTS / MEAN_SECONDS
SMALL_SLOTS = 40
SMALL_MEAN_SECONDS = 0.2

POLICY = """\
version: 1
fleet: {{size: {{static: 1}}}}
providers:
  large:
    base_url: http://127.0.0.1:{large_port}/v1
    keys: [{{id: l1, env: BENCH_KEY_ALPHA}}]
    limits: {{concurrency: 400}}
    queue: {{max: 100}}
    connections: {{max: 400}}
    timeouts: {{queue: 300ms, first_byte: 4s, answer: 4s}}
  small:
    base_url: http://127.0.0.1:{small_port}/v1
    keys: [{{id: s1, env: BENCH_KEY_BETA}}]
    limits: {{concurrency: 40}}
    queue: {{max: 10}}
    timeouts: {{queue: 100ms, first_byte: 2s, answer: 2s}}
routes:
  - name: chat
    match: {{path: /v1/chat/completions}}
    tiers:
      - {{provider: large}}
      - {{provider: small, model: bench-small}}
      - {{answer: {{status: 200, json: {{note: "The assistant is busy; try again soon."}}}}}}
    total: 8s
    retry: {{attempts: 2}}
telemetry: {{log_successes: 0.01}}
"""
