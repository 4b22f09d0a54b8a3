"""What to do: plain synchronous objects that never await, never do I/O, and are told the time.

| file | decides |
|---|---|
| classification | request facts → route |
| classes | which priority a call has |
| callers | by what name a caller is known |
| deadline | phase limits; what is left |
| fallback | which tier next, given the outcome |
| addresses | to which of a provider's addresses, and how many calls they could take all together |
| spread | which of equals first, by what is left of each or by weight |
| pace | the `answer` limit that follows a target's 95th percentile |
| retry | again or not, after how long; the retry budget |
| breaker_state | what is told of a breaker: state, changes, snapshot |
| breaker | closed / open / half-open |
| verdict, ticket, cooldown | what an end says of a target; one call's leave; how long open lasts |
| probes, ramp | the leases of half-open; the ceiling under which a target comes back |
| admission | who waits, who goes next, who is refused: permits, quotas and keys taken together |
| taking, permits | what a call may go with, or what it lacks; what was taken for it |
| forecast | whether a wait would be in vain, and when another try is worth it |
| standing | who waits where, for what, and until when |
| queues, room | where calls wait; a provider's bounds, and whether it has idle capacity |
| fair | whose turn it is in one queue |
| places, lanes | the counted limits, and the parts of them that are kept for some calls |
| shortage, holds | who lacks one and the same thing, and how long those who have it keep it |
| observing | what a share would have done to a call that `mode: observe` lets go |
| shares | apportionment of fleet-wide limits |
| adaptive | the limit under the share: how many calls at once a provider really takes |
| quota | token buckets of requests and tokens per minute |
| estimates | how many tokens a model's calls take, learned from what is reported |
| counting | what an ended attempt costs |
| keys | weighted choice, rest after 429, parking after 401 |
| left | what a key has left, as the heads of answers say |
| tenants, caps | who asks; what one tenant may ask of this instance |
| idempotency | which requests are the same; what the end of one means for those that repeat it |
| merging | when requests that may travel together go, and how many of them |
| likeness | which requests are equal, so that one answer will do for all of them |
| cacheability | whether an answer may be kept, and whether a kept one may be given |
| cached | which answers are kept for equal requests, within bounds, fairly |
| answers | which answers are kept to be given again, within bounds |
| joining | which path a provider is asked for |
| destinations | whom forwarded traffic may reach, and whose it is |
| hello | which name a TLS client asks for, by its first bytes |
| bodies | how much of request bodies is kept in memory |
| window | rolling counts |

Settings classes stand next to the code that uses them and hold the policy's defaults, once.
"""
