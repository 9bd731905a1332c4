"""What is served on 127.0.0.1 is for this machine's own programs and pages: which requests are theirs."""

from __future__ import annotations

LOOPBACK = "127.0.0.1"


def asked_here(host: str | None, site: str | None) -> bool:
    """Whether a request is answered, by its headers ``Host`` and ``Sec-Fetch-Site``.

    A web page elsewhere can make a browser ask 127.0.0.1, and read the answer if the page's own host name resolves to
    127.0.0.1 (DNS rebinding); browsers then send that name.

    >>> asked_here("localhost:9100", None), asked_here("evil.example", None), asked_here("127.0.0.1", "cross-site")
    (True, False, False)
    """
    return (host or "").rsplit(":", 1)[0] in (LOOPBACK, "localhost") and (site or "none") in ("none", "same-origin")
