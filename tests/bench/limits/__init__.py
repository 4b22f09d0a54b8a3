"""Limits that hold: the headline experiments of quotas, keys, classes, tenants and idempotency: `--limits`.

Each has processes of its own: Sponson with the policy that an operator would write for the case, and simulated
providers (`sponson sim`); the callers are in the benchmark's process. What is compared runs at the same time.

    keys.py         one key against twenty: throughput, and who meets a 429
    duplicates.py   writes at a provider that executes and then loses answers
    flood.py        fifty agents, and a batch job with long contexts
    priorities.py   P0 beside P1 and P2 that take all they can get
    precision.py    a crowd that meets a quota of which little is left; ten virtual minutes
    experiment.py   one after the other, long or short
    callers.py      who calls, with an official SDK's habits; how each call ended
    loads.py        how calls come: in a closed loop, or at random moments
    sides.py        the processes, and what they say of themselves
    finding.py      what was measured beside reference and goal
    tables.py       the same as a table

Tokens, rates and seconds are the simulated providers' own. A call's time is bounded, and most of a second: what the
machine adds to it is small beside that, and is counted against Sponson.
"""
