"""The whole proxy over real sockets: a process of its own between scripted providers and raw callers.

messages    bodies, events and scripts that many tests send
caller      Wire and call(): the application's side, byte by byte
scripted    ScriptedProvider: the model server's side, one coroutine a request
harness     ProxyProcess, and Lab: a proxy and the providers that its policy names
conftest    the Lab that the tests of a module share, of its POLICY and with its ENV; what makes its providers as new
reasons     the table of reasons: how each is provoked, and what is told
quotas      buckets that are full and refill next to nothing, and what a call has cost of them
doors       calls with names, each answered when it is told to: who goes, who waits, in which order
ports       at which nobody listens
unreachable addresses at which nobody answers
drains      callers in every phase of a call, and how each goes on
watched     what a process of ours does, as the kernel tells it
test_*      one module a promise; the tests of a module share a Lab, each with providers of its own
"""
