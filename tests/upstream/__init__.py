"""Tests of the room that talks to model servers.

| file | holds |
|---|---|
| peer.py | a provider on a real socket that does what a test's script says |
| doubles.py | exchanges, replies and clocks that a test reads and turns by hand |
| test_wire*.py | a connection and what it promises, also to and of aiohttp, under uvloop and asyncio |
| test_*.py | the mirror of each other file |
"""
