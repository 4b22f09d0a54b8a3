"""What to do: plain synchronous objects that never await, never do I/O, and are told the time.

| file | decides |
|---|---|
| classification | request facts → route |
| deadline | phase limits; what is left |
| fallback | which tier next, given the outcome |
| retry | again or not, after how long; the retry budget; Retry-After in all its forms |
| breaker | closed / open / half-open |
| admission | who waits, who goes next, who is refused: permits and keys taken together |
| shares | apportionment of fleet-wide limits |
| keys | weighted choice, rest after 429, parking after 401 |
| window | rolling counts |

Settings classes stand next to the code that uses them and hold the policy's defaults, once.
"""
