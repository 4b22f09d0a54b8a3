"""Tests of Sponson: a mirror of the tree.

`proxy/a/b.py` is tested in `tests/a/test_b.py`, `otel/x.py` in `tests/otel/test_x.py`.

| place | holds |
|---|---|
| fakes.py | the doubles that tests share: clocks, replies, observers |
| architecture/ | what a line of code may touch, how long a file may be, who has a test |
| test_packaging.py | what is installed: the wheel, the lock file, the image |
| test_commands.py | the `sponson` command as a process |
| integration/ | the whole proxy over real sockets |
| k8s/ | the manifests, the chart and the image, and the sidecar as a container of this machine |
| bench/ | the benchmark, `make bench` |
"""
