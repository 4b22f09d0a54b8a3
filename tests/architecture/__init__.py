"""The architecture as rules over the syntax tree; `tests/test_architecture.py` runs them.

| file | holds |
|---|---|
| rooms.py | the table: which room may import what; the file to edit when a room comes |
| source.py | parsed files, their imports and functions |
| imports.py | rules about what a file touches |
| shape.py | rules about sizes, docstrings and mirrored tests |
"""
