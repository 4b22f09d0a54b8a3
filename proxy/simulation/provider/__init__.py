"""A simulated model provider: real HTTP, invented answers, faults on request. Manual: README.md, here.

settings     SimulatorSettings: what one provider is like
durations    "1m30s" and its relatives, read and written
latency      how long an answer takes to begin: constant, uniform, lognormal
profiles     traffic as known from the field, and what its provider is like
faults       Fault: what goes wrong, and for which requests
grammar      text and JSON to Fault, strictly; values reads single ones, spelling writes them back
schedule     which faults meet this request
retry_after  the headers by which providers say when to come back

asks         a request body to an Ask: what the caller wants
answers      an Ask to an Answer: words, token counts, vectors
moderations  scores, in the same's shape
batches      several inputs in one call: their cost, their maximum, one that spoils all
openai       an Answer in OpenAI's shape: bodies, stream events, errors
anthropic    the same in Anthropic's shape
realtime     a session over a WebSocket, in OpenAI's shape
dialect      which of the two a path speaks
compose      from an Ask to the body or the events of its answer

allowance    one rate: what is left of it, and when more fits
limits       requests and tokens per minute, of the account and of each key
limit_headers  what callers are told of them: headers, and the 429
executions   what was executed, by idempotency key and by body
metering     one call against the limits and against what was executed before
tally        what was counted of that

capacity     the concurrency limit and the queue before it
ledger       what was received and how it ended; counts
reading      what a request says before its body is understood
bending      what a fault makes of a body or a stream before it is sent
delivery     bytes to the socket: whole, in events, dripping, cut, reset
service      the life of one request
control      /sim/requests, /sim/stats, /sim/faults, /health
listener     the listening socket, which can be shut and opened again
simulator    ProviderSimulator: all of this behind `async with`
group        several providers in one process
launch       the process of `sponson sim`: addresses, event loop, signals
"""

from __future__ import annotations

from proxy.simulation.provider.allowance import Refill
from proxy.simulation.provider.faults import Fault
from proxy.simulation.provider.grammar import FaultError, parse_fault
from proxy.simulation.provider.latency import Latency
from proxy.simulation.provider.limits import TokenRule
from proxy.simulation.provider.settings import SettingsError, SimulatorSettings
from proxy.simulation.provider.simulator import ProviderSimulator

__all__ = [
    "ProviderSimulator",
    "SimulatorSettings",
    "SettingsError",
    "Fault",
    "FaultError",
    "parse_fault",
    "Latency",
    "Refill",
    "TokenRule",
]
