"""Where may a visitor let this machine fetch from?

Who came by the link sits at this machine and may name its folders. Who came by a password may be
anybody's browser: they reach no folder of this machine, and no address that only this machine and
its neighbours can reach.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from satchel._language import say
from satchel.errors import InvalidInput, NotFound, Refused
from satchel.store.archive.rules import shown
from satchel.store.sources.base import redacted

if TYPE_CHECKING:
    from satchel.store.sources import Source

_ELSEWHERE = re.compile(
    r"(?:git\+)?(?:(?i:https?|ssh|git)://"
    r"|[A-Za-z0-9_][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:(?!//)[^\s:])"
)
_SCP = re.compile(r"[^@/:]+@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*):")
_NAT64 = IPv6Address("64:ff9b::")


def check_elsewhere(text: str) -> None:
    """Refuse whatever is no address of a repository elsewhere, such as a path of this machine.

    Raises:
        InvalidInput: it is none.
    """
    if not _ELSEWHERE.match(text):
        raise InvalidInput(
            say("`{address}` is no address of a repository", address=shown(redacted(text))),
            say("Use `https://…`; who sits at this machine also `ssh://…` or `git@host:path`"),
        )


def check_public(source: Source) -> tuple[str, ...]:
    """Refuse a repository on this machine or in its own network.

    Returns the host's addresses: who fetches must go to these. Its name may lead elsewhere when it
    is asked again.

    Raises:
        Refused: one of the host's addresses is not of the open internet.
        NotFound: nobody knows the host.
    """
    from socket import SOCK_STREAM, gaierror, getaddrinfo

    scp = _SCP.match(source.url)
    host = scp["host"] if scp else urlsplit(source.url).hostname or ""
    try:
        rows = getaddrinfo(host, None, type=SOCK_STREAM) if host else []
    except (gaierror, UnicodeError):
        rows = []
    if not rows:
        raise NotFound(say("There is no host `{host}`", host=shown(host)), say("Check the address"))
    found = tuple(dict.fromkeys(str(row[4][0]) for row in rows))
    if not all(map(is_public, found)):
        raise Refused(
            say("`{host}` is this machine, or in its own network", host=shown(host)),
            say("Import it in a terminal of this machine, or send a zip"),
        )
    return found


def is_public(text: str) -> bool:
    """Whether an address is one of the open internet."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and (within := _within(address)) is not None:
        address = within
    return address.is_global and not address.is_multicast


def _within(address: IPv6Address) -> IPv4Address | None:
    """The older kind of address that one of the newer kind leads to."""
    if int(address) >> 32 == int(_NAT64) >> 32:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour
