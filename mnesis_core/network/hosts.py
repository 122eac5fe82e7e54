"""Network addresses, programs and variables that users who do not own the host may name.

Public addresses may be reached. Internal ones (loopback, private, link-local, shared and reserved ranges) only if the
host's owner has listed them, and services that hand out the machine's own credentials never.

Naming a program runs it, and naming a variable sends its value away. Both belong to the host's owner as well, who lists what
others may name in the environment; a command on the host is the owner's and needs no list.
"""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import chain
from pathlib import PurePath
from socket import inet_aton
from typing import Any, TypeVar
from urllib.parse import urlsplit

from mnesis_core.errors import NotListed, Values, gettext_noop

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Names for networks in a list.
NAMED = {
    "loopback": ("127.0.0.0/8", "::1/128"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
    "link-local": ("169.254.0.0/16", "fe80::/10"),
}

_METADATA = tuple(
    ip_network(text)
    for text in (
        "169.254.169.254",  # most clouds
        "169.254.170.2",  # credentials of a container at AWS
        "169.254.170.23",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",  # Google over IPv6
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure: a public address by its number
        "192.0.0.192",  # Oracle
    )
)
_NAT64 = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
_COMPATIBLE = ip_network("::/96")  # Deprecated: an IPv4 address in the last four bytes.

PROGRAMS, VARIABLES, ADDRESSES = "MNESIS_MCP_PROGRAMS", "MNESIS_KEY_VARIABLES", "MNESIS_PRIVATE_ADDRESSES"
NOTHING = "none"  # Lists nothing where there is a default.
MORE = "..."  # At the end of a listed program: further arguments may follow, none of which begins with a hyphen.

Entry = TypeVar("Entry")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
# The first argument of these programs says what is run: with only ``...`` after one, anything could be.
_RUNNERS = re.compile(
    r"(npx|npm|pnpm|yarn|bunx?|deno|node|uvx?|pipx|python[\d.]*|ruby|perl|php|env|(ba|da|z|fi)?sh)(\.exe)?"
)
# Programs that run packages and modules by name, as MCP servers are distributed; ``...`` may follow these.
_LAUNCHERS = re.compile(r"npx -y|uvx|python[\d.]* -m")
# Secrets of the site and of the machine. They are never given away, even if they are listed.
_NEVER = re.compile(
    r"SECRET_KEY(_FALLBACKS)?|.*DATABASE_URL|REDIS_URL|PG(PASSWORD|PASSFILE|SERVICEFILE)|KUBECONFIG|BOTO_CONFIG|VAULT_TOKEN"
    r"|GOOGLE_(APPLICATION_)?CREDENTIALS.*|(MNESIS|DJANGO|POSTGRES|AWS|AZURE|ARM|GCP|GCLOUD|CLOUDSDK|GOOGLE_CLOUD|VERTEX"
    r"|VERTEXAI|OCI|ALIBABA_CLOUD|KUBERNETES|SSH)_.*"
)
# litellm's variables for the keys of well-known providers.
PROVIDER_KEYS = tuple(
    f"{provider}_API_KEY"
    for provider in (
        *("AI21", "ANTHROPIC", "CEREBRAS", "CODESTRAL", "COHERE", "DASHSCOPE", "DEEPINFRA", "DEEPSEEK", "FIREWORKS_AI"),
        *("GEMINI", "GROQ", "MISTRAL", "MOONSHOT", "NEBIUS", "NVIDIA_NIM", "OPENAI", "OPENROUTER", "PERPLEXITYAI"),
        *("SAMBANOVA", "TOGETHERAI", "XAI", "ZAI"),
    )
)


def read_networks(text: str) -> tuple[Network, ...]:
    """Read networks, comma-separated: addresses, ranges such as ``10.1.0.0/16``, or the words of ``NAMED``.

    :raises ValueError: one of them is none of these; the message names it.
    """
    found: list[Network] = []
    for item in filter(None, map(str.strip, text.split(","))):
        try:
            found += [ip_network(network) for network in NAMED.get(item.lower(), (item,))]
        except ValueError:
            raise ValueError(f"{item!r} is no address, no range and none of {', '.join(NAMED)}") from None
    return tuple(found)


def may_reach(text: str, listed: Sequence[Network]) -> bool:
    """Return whether an IP address is public or in a listed network. False for anything that is not an IP address.

    An address that hands out the machine's credentials is never reached, listed or not.
    """
    try:
        faces = _faces(ip_address(text))
    except ValueError:
        return False
    if any(face in network for face in faces for network in _METADATA):
        return False
    return all(_is_public(face) or any(face in network for network in listed) for face in faces)


def gives_credentials(text: str) -> bool:
    """Return whether an IP address hands out the machine's own credentials; listing it has no effect."""
    return any(face in network for face in _faces(ip_address(text)) for network in _METADATA)


def literal_address(host: str) -> str | None:
    """Return the IP address that a host names by number, in any form that a resolver takes (``127.1``, ``0x7f000001``).

    None if it is a name, which is looked up when it is connected to. ``localhost`` is always loopback.
    """
    bare = host.strip("[]").rstrip(".").lower()
    if bare == "localhost" or bare.endswith(".localhost"):
        return "127.0.0.1"
    try:
        return str(ip_address(bare))
    except ValueError:
        pass
    try:
        return str(IPv4Address(inet_aton(bare)))
    except (OSError, ValueError):
        return None


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and address.is_site_local:
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _faces(address: Address) -> tuple[Address, ...]:
    """Return an address, or the IPv4 addresses that a packet to an IPv6 address may reach."""
    if isinstance(address, IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in _NAT64):
        return (last,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    is_compatible = address in _COMPATIBLE and int(address) > 1
    return (last,) if is_compatible else (address,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedProgram:
    words: tuple[str, ...]
    takes_more: bool = False

    def fits(self, argv: Sequence[str]) -> bool:
        rest = argv[len(self.words) :]
        if tuple(argv[: len(self.words)]) != self.words:
            return False
        return not rest or (self.takes_more and not any(word.startswith("-") for word in rest))

    def __str__(self) -> str:
        return shlex.join(self.words) + (f" {MORE}" if self.takes_more else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedVariable:
    name: str
    origin: str = ""  # ``https://host:port``; empty: to a provider's own address, and to the listed programs.

    def __str__(self) -> str:
        return f"{self.name}@{self.origin}" if self.origin else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLists:
    programs: tuple[ListedProgram, ...] = ()
    variables: tuple[ListedVariable, ...] = ()
    addresses: tuple[Network, ...] = ()

    def check_server(self, argv: Sequence[str], url: str, secrets: Mapping[str, str]) -> None:
        """:raises NotListed: something of it is not listed; ``field`` says what."""
        if argv:
            self.check_program(argv)
        if url:
            self.check_url(url, field="url")
        for variable in secrets.values():
            self.check_variable(variable, url=url, field="secrets")

    def check_program(self, argv: Sequence[str]) -> None:
        """:raises NotListed: no entry is this command."""
        if not any(program.fits(argv) for program in self.programs):
            # Not the arguments: a secret may have been written among them by mistake.
            told = gettext_noop(
                "This program is not on the list of this host. Its owner can set %(setting)s=%(entry)s where the server is "
                "started, or enter this with a command there."
            )
            raise _not_listed(told, PROGRAMS, f"{PurePath(argv[0]).name} …", field="argv")

    def check_variable(self, name: str, *, url: str = "", field: str) -> None:
        """:param url: where its value is sent; empty: a provider's own address, or a program.

        :raises NotListed: no entry lists this variable for this place, or it may never be listed.
        """
        shown = name if _PLAIN_NAME.fullmatch(name) else "NAME"
        if is_never_listed(name):
            raise NotListed(
                gettext_noop("%(variable)s is never given away. Name a variable that holds nothing else."),
                {"variable": shown},
                field=field,
            )
        wanted = ListedVariable(name=name, origin=origin_of(url) if url else "")
        if wanted not in self.variables:
            told = gettext_noop(
                "This variable is not on the list of this host. Its owner can set %(setting)s=%(entry)s where the server is "
                "started, or enter this with a command there."
            )
            if url:
                told = gettext_noop(
                    "This variable for %(origin)s is not on the list of this host. Its owner can set %(setting)s=%(entry)s "
                    "where the server is started, or enter this with a command there."
                )
            entry = str(replace(wanted, name=shown))
            raise _not_listed(told, VARIABLES, entry, {"origin": wanted.origin}, field=field)

    def check_url(self, url: str, *, field: str) -> None:
        """Look at an address that is a number; names are looked up, and looked at, when they are connected to.

        :raises NotListed: it is inside the network, and not listed; or it cannot be read.
        """
        try:
            origin_of(url)
        except ValueError:
            raise NotListed(gettext_noop("The address cannot be read, or it holds a password."), field=field) from None
        address = literal_address(urlsplit(url).hostname or "")
        if address is not None and not may_reach(address, self.addresses):
            raise address_not_listed(address, field=field)


def address_not_listed(address: str, *, field: str = "url") -> NotListed:
    """:raises ValueError: it is no IP address."""
    if gives_credentials(address):
        return NotListed(
            gettext_noop("%(address)s hands out the credentials of the machine, and is reached by command only."),
            {"address": address},
            field=field,
        )
    told = gettext_noop(
        "%(address)s is no public address and is not on the list of this host. Its owner can set %(setting)s=%(entry)s "
        "where the server is started, or enter this with a command there."
    )
    return _not_listed(told, ADDRESSES, address, {"address": address}, field=field)


def _not_listed(told: str, setting: str, entry: str, values: Values | None = None, *, field: str) -> NotListed:
    return NotListed(
        told,
        {"setting": setting, "entry": shlex.quote(entry), **(values or {})},
        setting=setting,
        entry=entry,
        field=field,
    )


def is_never_listed(name: str) -> bool:
    return bool(_NEVER.fullmatch(name.upper()))


def origin_of(url: str) -> str:
    """Return ``https://host:port`` of an address, or raise ``ValueError`` for one that is invalid."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise ValueError(f"{url!r} is no http or https address")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def read_lists(*, programs: str = "", variables: str = "", addresses: str = "") -> HostLists:
    """Read the lists that settings hold: programs divided by ``;`` or lines, the rest by commas; ``none`` is nothing.

    :raises ValueError: an entry cannot be read, or may not be listed; the message names the setting.
    """
    return HostLists(
        programs=tuple(_read(PROGRAMS, programs, r"[;\n]", _program)),
        variables=tuple(_read(VARIABLES, variables, r"[,\n]", _variable)),
        addresses=tuple(chain.from_iterable(_read(ADDRESSES, addresses, r"[,\n]", read_networks))),
    )


def _read(setting: str, text: str, divider: str, read: Callable[[str], Entry]) -> Iterator[Entry]:
    for item in re.split(divider, "" if text.strip().lower() == NOTHING else text):
        if not item.strip():
            continue
        try:
            yield read(item.strip())
        except ValueError as error:
            raise ValueError(f"{setting}: {error}") from None


def _program(text: str) -> ListedProgram:
    words = shlex.split(text)
    takes_more = words[-1:] == [MORE]
    words = words[:-1] if takes_more else words
    if not words or MORE in words:
        raise ValueError(f"{text!r} is no program; {MORE} stands at the end, if at all")
    runner = PurePath(words[0]).name
    names_what_runs = any(not word.startswith("-") for word in words[1:])
    names_what_runs = names_what_runs or _LAUNCHERS.fullmatch(" ".join([runner, *words[1:]])) is not None
    if takes_more and not names_what_runs and _RUNNERS.fullmatch(runner):
        raise ValueError(f"{text!r} would run anything; name what it runs before the {MORE}")
    return ListedProgram(words=tuple(words), takes_more=takes_more)


def _variable(text: str) -> ListedVariable:
    name, at, place = text.partition("@")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a variable")
    if is_never_listed(name):
        raise ValueError(f"{name} holds a secret of the site or of the machine, and may not be listed")
    if at and not place:
        raise ValueError(f"{text!r} names no host behind the @")
    return ListedVariable(name=name, origin=origin_of(place if "://" in place else f"https://{place}") if at else "")


def local_lists(python: str) -> dict[str, str]:
    """Return the default lists, by setting, of a site that serves its own machine only.

    People at its pages sit at the host, and attach servers by ``npx``, ``uvx`` or as modules. It still lists no shell, and no
    key for any other address.

    :param python: of the site's own environment, whose modules its owner installed
    """
    programs = (f"npx -y {MORE}", f"uvx {MORE}", f"{shlex.quote(python)} -m {MORE}")
    return {PROGRAMS: "; ".join(programs), VARIABLES: ", ".join(PROVIDER_KEYS), ADDRESSES: "loopback, private"}


def look_up(host: str, port: int) -> list[str]:
    """Return all addresses of a name, or raise ``OSError`` for an unknown one. It blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def permitted_address(host: str, port: int, listed: Sequence[Network]) -> str:
    """Return an address of a name, all of whose addresses may be reached. It blocks.

    The name is looked up once and every address that it has is checked, so that a name server that answers otherwise a
    moment later leads nowhere. Redirects must not be followed: they would need a check of their own.

    :raises NotListed: one of the name's addresses may not be reached.
    :raises OSError: the name is unknown.
    """
    addresses = look_up(host, port)
    for address in addresses:
        if not may_reach(address, listed):
            raise address_not_listed(address)
    if not addresses:
        raise OSError(f"{host} has no address")
    return addresses[0]


def pin(request: Any, listed: Sequence[Network]) -> None:
    """Lead a request to an address that may be reached, the certificate still being the name's.

    :param request: httpx's, of either generation
    :raises NotListed, OSError: as ``permitted_address``
    """
    host = str(request.url.host)
    address = permitted_address(host, request.url.port or (443 if request.url.scheme == "https" else 80), listed)
    try:
        ip_address(host)
    except ValueError:  # It is a name, which the certificate is for.
        request.extensions = {**request.extensions, "sni_hostname": host}
    request.url = request.url.copy_with(host=address)
