"""Sponson: a per-pod proxy for the traffic between an application and model providers.

A client request becomes an Exchange. It passes through an ordered list of stages; each surrounds the rest and returns
the Outcome once the last byte has been relayed. What to do is decided by decision cores: plain synchronous objects that
never await, never do I/O and are told the time.

| room | holds |
|---|---|
| exchange, outcome, stage, observer, plan, clock, tasks, ports, trace_context | the vocabulary |
| request, fields, body, link | the vocabulary of the wire |
| dialects/ | where model, stream, usage and errors stand in each wire format |
| decisions/ | WHAT to do: pure, synchronous, told the time |
| stages/ | DOING it: async shells, one concern a file |
| upstream/ | the only room that talks to model servers |
| downstream/ | the only room that talks to the application |
| store/ | what is kept OUTSIDE of the process |
| policy/ | what operators WROTE |
| kubernetes/ | the sidecar in Kubernetes manifests: documents in, documents out |
| runtime/ | putting it TOGETHER: order, assembly, reload, lifecycle |
| simulation/ | the provider simulator and the demo |
| cli/ | one file per command |
"""
