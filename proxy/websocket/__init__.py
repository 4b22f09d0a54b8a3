"""WebSockets as one in the middle sees them (RFC 6455); part of the vocabulary of the wire.

| file | owns |
|---|---|
| handshake | what a handshake asks for, what of it is a secret, and what agrees to it |
| frames | where frames and messages begin and end; frames of our own |
"""
