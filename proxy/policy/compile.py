"""The child process that understands policies: pickled bytes in, a pickled snapshot or problems out.

Parsing and validating hold the interpreter for tens of milliseconds and need a large library; in a child neither
delays a request nor stays in the proxy's memory. Only `runtime/compiler.py` starts it.
"""

from __future__ import annotations

import os
import pickle
import sys

from proxy.policy.load import load_policy
from proxy.policy.problem import PolicyError


def main() -> None:
    """Reads (PolicyBytes, instance index) from standard input; writes a PolicySnapshot or a tuple of Problems.

    Ends quietly when nothing is asked: its parent did not start after all.
    """
    question = sys.stdin.buffer.read()
    if not question:
        return
    data, index = pickle.loads(question)
    try:
        answer: object = load_policy(data, instance_index=index)
    except PolicyError as error:
        answer = error.problems
    try:
        sys.stdout.buffer.write(pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The parent has ended meanwhile; nothing may be left that the interpreter would try to write.
        os._exit(0)


if __name__ == "__main__":
    main()
