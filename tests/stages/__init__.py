"""Tests of the stages: each alone, then all together under cancellation.

| file | holds |
|---|---|
| world.py | real cores and real stages over a scripted terminal |
| interrupted.py | cancels a task at its n-th await |
| retrying.py | a retry stage over a script, and outcomes that keys meet |
| scenarios.py | what may hold a request up on its way |
| test_retry_walk.py | retry and fallback over random ends of calls |
| test_cancellation.py | the matrix: every scenario, every await, every cause |
"""
