"""The only room that talks to the application.

| file | owns |
|---|---|
| server | listeners; one exchange per request |
| forward | the forward listener: whole addresses, and CONNECT |
| hops | `Via` and `Max-Forwards`: loops end here |
| incoming | the request as the wire gave it, checked for ambiguous framing; its body |
| reply | the answer's bytes: head, framing, stamps, back-pressure |
| departure | clients that leave unheard: behind unread bytes, or before an answer that they do not take |
| cut | ends that must not look like the answer's end |
| rescue | outcome → HTTP: every answer that the proxy makes itself |
| admin | probes, `/metrics`, `/policy`, `/status` |
| arrival | one request as its connection hands it over |
| connections | the connections of one address, from its doors to a shutdown |
| door | accepting: no more than there is room and files for; what waits outside |
| room | how many may be here, and who goes so that another can come |
| wire | a connection: requests by llhttp, pipelining, what is no request |
| lasting | how long a connection lasts: idle ones, half heads |
| socket_state | what only the system knows of a socket |
"""
