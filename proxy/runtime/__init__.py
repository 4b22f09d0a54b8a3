"""Putting it together. Handles no requests.

| file | owns |
|---|---|
| pipeline | THE ORDER of the stages, with the reason for each position |
| kept_state | decision cores by identity, across reloads |
| assembly | snapshot + kept state + secrets → Runtime: pure construction, then one swap |
| workshop | what all providers of one policy are assembled with |
| targets, models | one provider's pipelines; a tier's pipelines by model |
| tenants | what all policies know of tenants, and each route's stage |
| idempotency | what all policies know of keyed requests, and each route's stage |
| saving | each route's cache, its place, and its single flight |
| merging | the lanes of the process, and each route's stage |
| route_names | what stands for a route where work is saved |
| credentials | whose credential goes along on a route |
| capacity, rings | what binds a provider's calls: shares, queues, lines, lanes; its keys |
| quotas | the buckets of providers, models and keys |
| lanes | what is kept of each limit for the short answers of which routes |
| alarm | the moment at which time alone may let a waiter go |
| cores | one provider's decision cores, found where they are kept or made |
| spreads | a tier over equals, each as its place in the order wants |
| upstreams, addresses | one address of a provider; several of them as one |
| forwarding, tunnels | whose each destination of forwarded traffic is; what a tunnel passes |
| listeners | the listeners for applications as one: what is under way, and its end |
| guard | a breaker in its place: whom it tells, which queues it empties, whom its ceiling binds |
| secrets | reading named values; the last good one when a file vanishes |
| reload | comparing, parsing in a thread, swapping one reference |
| watcher, settling | when to look at the policy; whether what stands there is whole |
| status, status_* | `/status`, `/policy` and gauges, read from the cores: limits, connections, tenants, saved work |
| lifecycle | starting → ready → draining → exited |
| machine | what this machine allows: open files, connections that wait |
| process | everything that one `sponson run` is made of |
| run | one `sponson run`, from the first signal handler to the exit code |
| batching | counting many requests at a time |
| log_line, log_format, log_pipe | one structured line a request, and where it goes though nobody reads it |
"""
