"""Tests of what is kept outside of the process; a real Redis or Valkey server plays the other side.

| file | holds |
|---|---|
| server | finds, or fetches once, a server, and starts, stalls and kills it |
| driving | what tests do with a cache and its server |
| contract | what every `CacheStore` does |
"""
