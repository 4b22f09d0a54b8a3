"""Vocabulary of the wire: where model, stream, usage and errors stand in each provider's format.

    lookup       which operation a path is; a dialect by its name in the policy
    base         `Operation`, the `Dialect` protocol
    openai       chat, completions, embeddings, responses and their relatives
    anthropic    messages
    opaque       anything else: nothing is understood, everything passes
    stream       `StreamScanner`: what an event stream has shown so far
    sse          the grammar of event streams
    usage        token counts out of usage objects
    demand       what a body asks for: text, media, token arrays, and the output that it allows
    injection    usage that the proxy asks for itself, and takes out of the stream again
    errors       what an error object stands for
    retry_after  how long a provider asks us to wait, in all its spellings
    rate_limits  what an answer's head says is left of a provider's limits
    realtime     tokens that the messages of a WebSocket report
    splice       changing fields of a JSON body without touching its other bytes
    batchable    several inputs in one call, and whose result is whose
    apportioning  what one call has used, shared out among those whose inputs it carried
    canonical    what makes two JSON bodies the same
    wholeness    whether an answer is whole and free of errors, so that it may be given again
    wording      the sentences of answers that the proxy makes itself

Pure and synchronous: bytes and documents come in, values go out. May import the standard library, orjson,
`proxy.exchange`, `proxy.fields`, `proxy.outcome` and `proxy.ports`; knows no room.
"""

from __future__ import annotations
