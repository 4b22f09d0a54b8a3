"""The only room that talks to the application.

| file | owns |
|---|---|
| server | listeners; one exchange per request |
| hops | `Via` and `Max-Forwards`: loops end here |
| incoming | the request as the wire gave it, checked for ambiguous framing; its body |
| reply | the answer's bytes: head, framing, stamps, back-pressure |
| rescue | outcome → HTTP: every answer that the proxy makes itself |
| admin | probes, `/metrics`, `/policy`, `/status` |
| arrival | one request as its connection hands it over |
| connections | the factory of connections, which knows them |
| wire | a connection: requests by llhttp, pipelining, keep-alive, what is no request |
"""
