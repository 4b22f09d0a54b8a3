"""What stands in for the world, so that a policy can be tried without accounts, keys or costs.

provider/    a model provider over real sockets: OpenAI and Anthropic shaped, with scripted faults
demo/        `sponson demo`: the proxy and three such providers as processes, traffic, a report

No other room imports this one, except `cli`.
"""

from __future__ import annotations
