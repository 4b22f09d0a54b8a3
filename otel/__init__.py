"""OpenTelemetry and Prometheus behind the Observer port; nothing here influences a request.

    attributes.py    every attribute and metric name, in one table; the GenAI generation switch
    instruments.py   the table of instruments, and what it is filled with
    series.py        what is counted under one set of labels, and all of an instrument
    verdicts.py      what counts as an error of a span and of a metric
    saved.py         what is counted of saved work, and what counts as saved
    metrics.py       the observer that counts
    moments.py       the observer that makes breaker, key and policy events visible as spans
    events.py        what a span tells of a request's events, and whom it links to
    spans.py         the observer that builds spans of sampled requests, once they have ended
    losses.py        spans on their way to a collector, and how many never got there
    prometheus.py    the table as text for /metrics
    push.py          the table as OTLP, from a thread of its own
    exporters.py     the SDK's exporters, imported only when asked for; their warnings, once a minute
    session.py       how exporters reach a collector, and how little they take of its answers
    environment.py   OTEL_* read into one frozen object
    setup.py         puts it together: `build_telemetry(env, wall_ns=...)` gives `Telemetry`

Requests are counted and traced after they have ended, from their facts: sampling is decided before, in
`proxy.trace_context`, so an unsampled request never builds an object here.
"""
