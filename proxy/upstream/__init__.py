"""The only room that talks to model servers.

| file | owns |
|---|---|
| transport | the terminal stage: one attempt on the wire; the table of what may go wrong on it |
| answer | the head of an answer, and what may stand in its place |
| call | one attempt's state: its connection, its watch, its answer |
| whole | passing an answer on that has come whole |
| relay | passing every other answer on: hold-back, pieces, visible breaks |
| tunnel | a WebSocket that was agreed to: its limits, and how it ends |
| side | one end of it: frames that pass, backpressure, signs of life |
| passage | a tunnel that a caller asked for (CONNECT): dialled, agreed to, watched, ended |
| passing | one end of it: bytes that pass untouched, half-closes, resets |
| towards | requests to other addresses than those of `base_url` |
| aside | the connections of both |
| guarded | look-ups whose answer leaves out what a name must not lead to |
| keep | failing answers, held back whole |
| meter | looking at copies: usage, errors and first content |
| headers | request and answer headers: what is forwarded, what is added |
| watch | one timer per attempt for all its phases |
| upload | request bodies that are passed on while they arrive |
| ear | early answers, heard while a body is sent |
| pool | idle connections per address, newest first |
| warmth | connections that are kept ready |
| promises | for how long servers say that they keep a connection |
| redial | aiohttp-retry, in the connect phase only |
| shortage | dials that fail for want of something of this machine's |
| faults | what went wrong with a connection, in plain words, and its cure |
| address | where a provider listens |
| pieces | passing pieces on inside the event that brings them |
| dialer | dialling by aiohttp's connector: all that is not public in aiohttp |
| lookup | names, each looked up in a thread of its own |
| moves | which addresses a name has left |
| vigil | peers that vanish without a word |
| framing | whether another answer may follow one on its connection |
| wire | a connection: answers by llhttp, bytes that nobody asked for |
"""
