"""The whole product between a caller and a provider that hold every byte: what one sends, the other must not misread.

| file | holds |
|---|---|
| line | the product in this event loop, a provider that records, a caller that sends raw bytes |
| requests, answers | byte-level grammars, mostly right, with what attackers write in every place |
| opinions | what h11 makes of the same bytes |
| reading | a strict and slow reader of answers; that of requests is `tests/downstream/reference.py` |
"""
