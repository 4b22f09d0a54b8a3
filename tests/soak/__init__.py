"""Everything at once, for minutes, and what must not be left of it: `python -m tests.soak`, or `make soak`.

    plan.py       how long a run is, and how much traffic there is
    promises.py   what must be kept; limits as they are in force, and every breach of a promise
    policies.py   what is wanted of a policy, its text, and the limits that it sets
    changes.py    the next policy: shares, keys, breakers, routes, models, what goes and what comes back
    spoiled.py    policies that must never go live
    hands.py      how a policy is put in place: renamed, written in place, torn, swapped, gone for a moment
    operator.py   makes one change after the other and waits until the proxy has made up its mind

    provider.py   the model servers: they count what they have in flight, and know who must not come
    traffic.py    callers who must not see an error: so many calls a second; and those who stand in a queue
    rough.py      the provider that does everything wrong
    visits.py     all other kinds of traffic, one function each, and what a caller may see; a new kind is a line there
    talks.py      WebSockets: the provider's side of one, and the caller's
    visitors.py   visits by the clock
    simulated.py  `sponson sim` as the provider of the profile research-agents
    agents.py     the agents of that profile, each answer checked and timed

    inside.py     the proxy with a spy in its process
    footprint.py  what the proxy holds: memory, descriptors, tasks, connections on both sides, objects
    slopes.py     a line through what it holds, second by second
    judge.py      what must be as it was, and what must not rise
    bench.py      the proxy as a process, the servers and the callers around it
    run.py        the whole run: what is broken first, warm-up, the mixed part, the agents, the end
    report.py     tables in plain words
    __main__.py   the command

A run is a warm-up and the run itself; in each the mixed part (60 %), then the agents (40 %). After the warm-up, and at
the end, everything comes to rest: what is held then is compared. Ten minutes are some 250 changes of the policy,
50,000 calls, 5,000 visits and 24,000 calls of agents; agents have a sixteenth of the tokens, and all their times.

    make soak                                ten minutes, and coming to rest
    make soak ARGS="--seconds 60"            a first impression
    make soak ARGS="--reloads 1000"          a thousand changes of the policy, however long they take
    make soak ARGS="--scale 4 --delay-ms 5"  larger contexts; and a promise of what is added at P99

Nothing is hurried: the proxy is a real process that reloads at most once a second.
"""
