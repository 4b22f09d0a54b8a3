"""Tests of the room that talks to the application.

| file | holds |
|---|---|
| visitor.py | raw clients, servers on ports of their own, and a strict reader of answers |
| doubles.py | replies, arrivals and fronts that a test reads and turns by hand |
| test_wire*.py | a connection and what it promises, under uvloop and asyncio |
| test_*.py | the mirror of each other file |
"""
