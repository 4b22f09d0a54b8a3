"""Store: what is kept outside of the process, so that it outlives a pod and serves several.

A cache in Redis or Valkey: looked up in bounded time, written behind, and never more than a miss when it fails. The
library (the extra `redis`) is loaded when a policy names such a server.

| file | holds |
|---|---|
| cache | one server as a `CacheStore`: its session, its outages, what it tells |
| lookups | requests that wait for a lookup, and the connections that serve them |
| writes | answers that wait to be written, within bounds, and the connection that writes them |
| server | where the server is, connections to it, and what went wrong in a word |
| codec | an answer as bytes, checked and versioned |
"""
