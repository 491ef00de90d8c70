"""Access to the Hugging Face Hub, which falls back to the local cache at once if the Hub cannot be reached."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from vitpos.errors import InputError
from vitpos.printable import sanitize

TIMEOUT = 4.0  # seconds to look up the host and connect to it
PORTS = {"http": 80, "https": 443}


@contextmanager
def hub_access(name: str) -> Iterator[None]:
    """Context manager in which libraries read their cache of the Hub alone, if the Hub cannot be reached.

    Otherwise each file would be requested several times, with a message for each attempt, before the cache is used. A
    model that is not in the cache becomes an `InputError` with the cause.

    Args:
        name: Name of the model, for the message.
    """
    constants = _constants()
    if constants is None:
        yield
        return
    before, host = constants.HF_HUB_OFFLINE, urlsplit(constants.ENDPOINT).netloc
    if not before and (uses_proxy() or can_connect(constants.ENDPOINT)):
        yield
        return
    cause = "the variable HF_HUB_OFFLINE is set" if before else f"{host} cannot be reached"
    remedy = "unset it" if before else "check the network, or set HTTPS_PROXY if you need a proxy"
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    except Exception as error:  # of the library that loads the model: any type
        if not _is_missing(error):
            raise
        raise InputError(
            f"{sanitize(name)} was not loaded: it is not in the local cache, and {sanitize(cause)}; "
            f"{remedy}, or give a local folder"
        ) from None
    finally:
        constants.HF_HUB_OFFLINE = before


def uses_proxy() -> bool:
    """Returns whether a proxy is configured; then its host is connected to, and not that of the Hub."""
    return not {"http", "https", "all"}.isdisjoint(getproxies())


def can_connect(address: str, *, timeout: float = TIMEOUT) -> bool:
    """Returns whether the host of an address accepts a connection within ``timeout`` seconds.

    A thread tries it, because the lookup of a host name has no limit of time.
    """
    parts, found = urlsplit(address), []

    def connect() -> None:
        with suppress(OSError, ValueError), socket.create_connection(_host_and_port(parts), timeout):
            found.append(True)

    thread = Thread(target=connect, daemon=True)
    thread.start()
    thread.join(timeout)
    return bool(found)


def _host_and_port(parts: Any) -> tuple[str, int]:
    return parts.hostname or "", parts.port or PORTS.get(parts.scheme, 443)


def _is_missing(error: BaseException | None) -> bool:
    """Returns whether an exception, or one that it was raised from, is that a file is not in the cache."""
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

    while error is not None:
        if isinstance(error, LocalEntryNotFoundError | OfflineModeIsEnabled):
            return True
        error = error.__cause__ or error.__context__
    return False


def _constants() -> Any:
    """Returns the module of settings of huggingface_hub; None without the package."""
    try:
        from huggingface_hub import constants
    except ImportError:
        return None
    return constants
