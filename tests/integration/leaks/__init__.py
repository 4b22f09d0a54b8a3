"""Secrets, marked, in every place where one can stand, while everything happens that can happen.

| file | holds |
|---|---|
| marks | the marks, the headers and bodies that carry them, and the search |
| scene | the proxy with its providers, and every output of it |
| calls | ways of calls to end that `tests/integration/reasons.py` does not provoke |
| malformed | requests that are none, a mark where it hurts |
| policies | policies and secrets that are rejected |
"""
