"""What Sponson costs, measured beside a bare aiohttp proxy and no proxy at all: `python -m tests.bench`.

    traffic.py    the bytes of one request, one answer and one stream; a reader of HTTP/1.1 messages
    provider.py   the model server behind every row, as cheap as Python allows
    bare.py       the reverse proxy that most people would write with aiohttp
    peers.py      Envoy and nginx, where they are installed, and how to install them
    sink.py       takes OpenTelemetry exports and forgets them
    awake.py      keeps a core from going idle, which would blur the figures
    rows.py       what is compared, and how each is started with which settings
    load.py       the load generator: closed loop, every answer compared byte for byte
    measure.py    processes pinned to a core; their CPU time, memory and start-up time
    rounds.py     one round: every phase with every row, in turn
    report.py     ratios and verdicts out of the rounds; no measuring
    tables.py     the same as tables
    quota_precision.py   how much of a token quota is used, and how often the provider refuses; on virtual time
    quota_provider.py    the provider and the calls of that
    machine.py    what the figures depend on beside the code
    limits/       quotas, keys, classes, tenants and idempotency under traffic that needs them
    overload/     more work than a model can do: an unprotected application and one behind Sponson
    saved/        merged calls, kept connections, kept answers and equal calls
    __main__.py   the command

The proxy under test has one core to itself; load generator, provider and sink share another. All figures are
meant as ratios within one run on one machine; those of the experiments are seconds of a simulated model, and those
of overload count where the machine kept up, which it says.

    make bench                              three rounds, overload, limits, work saved: some thirteen minutes
    make bench ARGS=--quick                 one short round
    make bench ARGS=--overload              overload alone
    make bench ARGS=--limits                limits alone: some four minutes
    make bench ARGS=--saved                 work saved alone: some two minutes and a half
    make bench ARGS="--saved --quick"       the same in one, a first impression; as well with --limits
    make bench ARGS="--peers --rounds 5"    Envoy and nginx beside the others
"""
