"""Work saved: the experiments about merged calls, kept connections, kept answers and equal calls: `--saved`.

    merging.py      a model whose batches are cheap: calls a second with and without merging; a quiet lane
    reuse.py        bursts to several providers, some slow: one shared pool against Sponson's; pauses after bursts
    alike.py        a thousand equal calls at once, equal streams, and questions of which a few are asked often
    experiment.py   one after the other, long or short
    calls.py        who calls, and whether each answer was the right one
    origins.py      providers that count connections and close idle ones
    tables.py       what was found, as a table

Times and rates are the simulated models' own. Merging is measured with nothing else running, since milliseconds
count there; what shares of calls and connections are measured of runs side by side.
"""
