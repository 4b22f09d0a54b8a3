"""Tests of the room that talks to model servers.

| file | holds |
|---|---|
| peer.py | a provider on a real socket that does what a test's script says |
| doubles.py | exchanges, replies and clocks that a test reads and turns by hand |
| test_wire*.py | the contract with what is not public in aiohttp, under uvloop and asyncio |
| test_*.py | the mirror of each other file |
"""
