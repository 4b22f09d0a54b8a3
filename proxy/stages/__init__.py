"""Doing it: async shells around the decisions, one concern a file, mirrored names.

| file | surrounds a call with |
|---|---|
| observation | facts, and one word to the observer at the end |
| classification | the body read; route, tenant and class found |
| deadline | the time by which the answer must have begun |
| tenants | the caps of who asks, held to the last byte |
| idempotency | one call for all requests with the same key |
| shared_call, recording | no stage: one call for several callers, and the answer that they all read |
| detached | no stage: what all calls in tasks of their own have in common |
| response_cache | what was kept of an equal request; refreshing fetches old answers anew |
| single_flight | one call for equal requests at the same time |
| merging | one call for requests that differ in their inputs alone |
| merged_call, merged_answer | no stages: such a call, and its answer until it is dealt |
| fallback | tiers, in their order |
| spread | equals that stand in for each other within one tier |
| tier | what one tier changes: provider, model, parameters |
| context | the check that a prompt is not too long for a model |
| retry | attempts of one tier |
| breaker | leave to go, and the verdict at the end |
| admission | the permit, the quotas and the key; the only waiting room |
| metering | nothing itself: what an attempt reserves and has used, for admission |
| addresses | the choice among several addresses |
| attempt | one upstream call's record and limits |
| answer | the policy's own answer; a terminal |
| stale_cache | a kept answer when nothing else is left; a terminal |

Cleanup is synchronous, so that a cancelled task cannot stop half-way through releasing.
"""
