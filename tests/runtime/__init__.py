"""Tests of what is put together, and of how it changes while it runs.

| file | holds |
|---|---|
| conftest.py | the shop and the desk that most tests begin with |
| desk.py, places.py | a policy keeper over a real place; renames and swaps |
| shop.py | policies assembled over cores that outlive them |
| traffic.py | the proxy in this process, a provider that counts, callers that never stop |
"""
