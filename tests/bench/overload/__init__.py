"""More work than a model can do: an unprotected application and one behind Sponson: `python -m tests.bench --overload`.

The model has 400 slots, takes 0.8 s on average and queues without bound: it serves 500 calls a second. Poisson
arrivals offer it 0.5, 1.0 and 1.5 times that, open loop: nobody waits for an answer before sending the next call.
The application behaves as official SDKs do: 10 s for an attempt, two more attempts after a timeout or a refusal.

    model.py        the model server
    arrivals.py     when calls begin, and how late they really began
    application.py  who sends them, with an SDK's patience and retries; how each call ended
    protection.py   the policy under test
    experiment.py   one level of load: both applications at the same time, each with a model of its own
    results.py      what is counted, and the verdicts
    tables.py       the same as tables

Service times are lognormal with a coefficient of variation of 0.3: P99 is 1.5 s, which leaves 0.5 s for queueing
within the promised 2 s. (Exponential ones would break the promise without any queue: P99 3.7 s.) The model is as
kind as a server can be: it notices at once when a caller leaves, and does no work for those who have left.
"""
