"""The only room that talks to the application.

| file | owns |
|---|---|
| server | listeners; one exchange per request |
| incoming | the request as the wire gave it, checked for ambiguous framing; its body |
| reply | the answer's bytes: head, framing, stamps, back-pressure |
| rescue | outcome → HTTP: every answer that the proxy makes itself |
| admin | probes, `/metrics`, `/policy`, `/status` |
| wire | everything that is not public in aiohttp |
"""
