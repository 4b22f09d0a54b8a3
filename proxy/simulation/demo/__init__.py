"""`sponson demo`: the proxy and three simulated providers as processes, real traffic, and a report of what happened.

settings     DemoSettings: ports, duration, whether to stay
problem      DemoProblem: what ends a demo early, with its exit code
ports        whether they are free
shipped      which policy file is used: the checkout's own, or an editable copy
children     the processes: started, watched, ended; none outlives the demo
providers    the simulated providers from outside: fail, recover, count

operations   the kinds of request, and when an answer to one is whole
callers      who sends them: several at a time, or all at once
play         the order of events: calm, failure, recovery, burst

log_reader   the lines that the proxy logs, as they come
timeline     what breakers did, from those lines
metrics      the proxy's `/metrics`, read and summed
report       samples and counts to the rows of the report

narrator     what is printed while it runs
tables       what is printed at the end
advice       what to try next, with --stay
staying      what is said from then on
demo         all of this, from the first check to the exit code
"""

from __future__ import annotations
