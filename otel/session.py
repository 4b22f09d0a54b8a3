"""The HTTP session of the exporters: nothing of the environment, and little of what a collector has to say.

The library would read every answer whole and unpacked. Nobody looks at it, and whoever answers there without end, as a
stream at a wrong address does, would fill the memory.
"""

from __future__ import annotations

from typing import Any, Final

from requests import PreparedRequest, Response, Session
from urllib3.exceptions import HTTPError

MOST_BYTES: Final = 65536
"""Of an answer; a longer one costs its connection."""


class CollectorSession(Session):
    """A session to which only the exporters' own variables matter.

    By itself it would send everything to a proxy of the environment, perhaps to this very process, and put a credential
    of ~/.netrc in the place of the one that is meant for the collector.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False

    def send(self, request: PreparedRequest, **kwargs: Any) -> Response:
        """Sends a request; of the answer's body so much is read as a connection needs that is to be used again."""
        response = super().send(request, **{**kwargs, "stream": True})
        try:
            ended = len(response.raw.read(MOST_BYTES + 1, decode_content=False)) <= MOST_BYTES
        except HTTPError:  # the head has come, and says all that there is to know
            ended = False
        if not ended:
            response.close()
        return response
