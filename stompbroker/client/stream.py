"""The stream to a broker: TCP or a Unix socket, TLS over it, and WebSocket over either.

Law: everything that fails is a `NoConnection`; within CONNECT_TIMEOUT_S each step succeeds or fails.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Final

import trio

from stompbroker.client.errors import NoConnection, Problem
from stompbroker.client.websocket import open_websocket
from stompbroker.transport import Scheme

if TYPE_CHECKING:
    from stompbroker.transport import Endpoint

#: Time for the connection, for each handshake, and then for CONNECTED, in seconds. A broker answers at once; a firewall
#: may never.
CONNECT_TIMEOUT_S: Final = 10.0
#: OpenSSL's codes: names and addresses in the certificate are others; its time has not come, or has passed.
_WRONG_NAME: Final = {62, 64}
_WRONG_TIME: Final = {9, 10}


async def open_stream(endpoint: Endpoint, context: ssl.SSLContext | None) -> trio.abc.Stream:
    """Raises NoConnection. `context`: needed for what is encrypted."""
    address = endpoint.address
    try:
        with trio.fail_after(CONNECT_TIMEOUT_S):
            stream: trio.abc.Stream = (
                await trio.open_unix_socket(endpoint.path)
                if endpoint.scheme is Scheme.UNIX
                else await trio.open_tcp_stream(endpoint.host, endpoint.port)
            )
    except trio.TooSlowError as error:
        raise NoConnection(Problem.NO_ANSWER, f"{address} does not answer.") from error
    except (
        socket.gaierror,
        UnicodeError,
    ) as error:  # the latter for what cannot be a name: an empty or long part of it
        reason = error.strerror if isinstance(error, OSError) else "it cannot be the name of one"
        raise NoConnection(Problem.NO_HOST, f'There is no host called "{endpoint.host}" ({reason}).') from error
    except OSError as error:
        raise NoConnection(Problem.NOBODY_LISTENS, f"No broker listens on {address}.") from error
    try:
        if endpoint.scheme.is_encrypted:
            assert context is not None
            stream = await _secured(stream, context, endpoint)
        if endpoint.scheme.is_websocket:
            with trio.fail_after(CONNECT_TIMEOUT_S):
                stream = await open_websocket(stream, endpoint)
    except trio.TooSlowError as error:
        await trio.aclose_forcefully(stream)
        raise NoConnection(Problem.NO_ANSWER, f"{address} does not answer to WebSocket.") from error
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return stream


async def _secured(stream: trio.abc.Stream, context: ssl.SSLContext, endpoint: Endpoint) -> trio.abc.Stream:
    # HTTPS does without the last alert, too: a frame shows by itself whether it is whole.
    secured = trio.SSLStream(stream, context, server_hostname=endpoint.host, https_compatible=True)
    plain = f"without TLS it is {'ws' if endpoint.scheme.is_websocket else 'stomp'}://{endpoint.address}"
    try:
        with trio.fail_after(CONNECT_TIMEOUT_S):
            await secured.do_handshake()
    except trio.TooSlowError as error:
        raise NoConnection(Problem.NO_TLS, f"{endpoint.address} does not answer to TLS; {plain}") from error
    except trio.BrokenResourceError as error:
        cause = error.__cause__
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise _unverified(cause, endpoint) from error
        reason = tls_alert(error) or "it closed the connection"
        raise NoConnection(Problem.NO_TLS, f"{endpoint.address} does not speak TLS ({reason}); {plain}") from error
    return secured


def _unverified(error: ssl.SSLCertVerificationError, endpoint: Endpoint) -> NoConnection:
    reason, certificate = error.verify_message, f"The certificate of {endpoint.address}"
    if error.verify_code in _WRONG_NAME:
        return NoConnection(Problem.WRONG_NAME, f"{certificate} is not for {endpoint.host}.")
    if error.verify_code in _WRONG_TIME:
        return NoConnection(Problem.WRONG_TIME, f"{certificate} cannot be used: {reason}. The broker needs a new one.")
    return NoConnection(Problem.UNVERIFIED, f"{certificate} cannot be verified: {reason}.")


def tls_alert(error: trio.BrokenResourceError) -> str:
    """Why TLS has ended, in OpenSSL's words; empty if it was not TLS that ended."""
    cause = error.__cause__
    return (cause.reason or "").replace("_", " ").lower() if isinstance(cause, ssl.SSLError) else ""
