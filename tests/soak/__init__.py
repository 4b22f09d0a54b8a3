"""A thousand reloads under traffic, and what must not come of them: `python -m tests.soak`.

    promises.py   what a reload must keep; limits as they are in force, and every breach of a promise
    policies.py   what is wanted of a policy, its text, and the limits that it sets
    changes.py    the next policy: shares, keys, breakers, routes, models, what goes and what comes back
    spoiled.py    policies that must never go live
    hands.py      how a policy is put in place: renamed, written in place, torn, swapped, gone for a moment
    provider.py   the model servers: they count what they have in flight, and know who must not come
    traffic.py    callers: so many requests a second, a quarter of them streams; and those who stand in a queue
    bench.py      the proxy as a process, the servers and the callers around it
    operator.py   makes one change after the other and waits until the proxy has made up its mind
    report.py     a table in plain words
    run.py        the whole run: what is broken first, warm-up, the reloads, the end
    __main__.py   the command

Nothing is hurried: the proxy is a real process that reloads at most once a second.
"""
