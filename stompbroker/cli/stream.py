"""The stream to a broker: TCP, TLS over it, or a Unix socket.

Law: the broker's certificate is always verified, there is no way around it; `--ca` says whom to trust besides the
authorities of this machine. Every failure is a `CommandFailed` that says what to do.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

import trio

from stompbroker.cli.outcome import CommandFailed
from stompbroker.transport import Scheme

if TYPE_CHECKING:
    from stompbroker.cli.target import Target, TlsOptions

#: Time for the connection, for the handshake of TLS, and then for CONNECTED, in seconds. A broker answers at once; a
#: firewall may never.
CONNECT_TIMEOUT_S = 10.0
_WHAT_TO_DO = (
    'Start a broker with "stompbroker serve" (in a checkout: make serve), or name another one with --host and --port, '
    "or with --url."
)
#: OpenSSL's codes: names and addresses in the certificate are others; its time has not come, or has passed.
_WRONG_NAME = {62, 64}
_WRONG_TIME = {9, 10}


async def open_stream(target: Target) -> trio.abc.Stream:
    endpoint = target.endpoint
    context = _make_context(target.tls) if endpoint.scheme.is_encrypted else None
    try:
        with trio.fail_after(CONNECT_TIMEOUT_S):
            stream: trio.SocketStream = (
                await trio.open_unix_socket(endpoint.path)
                if endpoint.scheme is Scheme.UNIX
                else await trio.open_tcp_stream(endpoint.host, endpoint.port)
            )
    except trio.TooSlowError as error:
        raise CommandFailed(f"{endpoint.address} does not answer. {_WHAT_TO_DO}") from error
    except socket.gaierror as error:
        raise CommandFailed(f'There is no host called "{endpoint.host}" ({error.strerror}). {_WHAT_TO_DO}') from error
    except OSError as error:
        raise CommandFailed(f"No broker listens on {endpoint.address}. {_WHAT_TO_DO}") from error
    return stream if context is None else await _secured(stream, context, target)


async def _secured(stream: trio.SocketStream, context: ssl.SSLContext, target: Target) -> trio.abc.Stream:
    # HTTPS does without the last alert, too: a frame shows by itself whether it is whole.
    host, address = target.endpoint.host, target.endpoint.address
    secured = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
    try:
        with trio.fail_after(CONNECT_TIMEOUT_S):
            await secured.do_handshake()
    except trio.TooSlowError as error:
        await trio.aclose_forcefully(stream)
        raise CommandFailed(f"{address} does not answer to TLS; without TLS it is stomp://{address}") from error
    except trio.BrokenResourceError as error:
        await trio.aclose_forcefully(stream)
        cause = error.__cause__
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise _unverified(cause, target) from error
        raise CommandFailed(
            f"{address} does not speak TLS ({tls_alert(error) or 'it closed the connection'}); "
            f"without TLS it is stomp://{address}"
        ) from error
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return secured


def _unverified(error: ssl.SSLCertVerificationError, target: Target) -> CommandFailed:
    host, address, reason = target.endpoint.host, target.endpoint.address, error.verify_message
    if error.verify_code in _WRONG_NAME:
        return CommandFailed(
            f"The certificate of {address} is not for {host}. Use the name that it is made for in --url, or have "
            f'one made for this name: "stompbroker certificate --host {host}".'
        )
    if error.verify_code in _WRONG_TIME:
        return CommandFailed(f"The certificate of {address} cannot be used: {reason}. The broker needs a new one.")
    return CommandFailed(
        f"The certificate of {address} cannot be verified: {reason}. Name the authority that has signed it, or the "
        "certificate itself if it is self-signed, with --ca FILE."
    )


def tls_alert(error: trio.BrokenResourceError) -> str:
    """Why TLS has ended, in OpenSSL's words; empty if it was not TLS that ended."""
    cause = error.__cause__
    return (cause.reason or "").replace("_", " ").lower() if isinstance(cause, ssl.SSLError) else ""


def _make_context(options: TlsOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ca)
    except (OSError, ssl.SSLError) as error:
        raise CommandFailed(f"{options.ca} (--ca) cannot be used: {_reason(error)}. It must be PEM.") from error
    # Whoever is named is trusted, even if somebody else has signed that certificate.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if options.certificate is not None:
        try:
            # A key that is encrypted would make OpenSSL ask for a password on the terminal.
            context.load_cert_chain(options.certificate, options.key, password=lambda: b"")
        except (OSError, ssl.SSLError, ValueError) as error:
            raise CommandFailed(
                f"{options.certificate} (--certificate) and its key cannot be used: {_reason(error)}. Both must be "
                "PEM and belong together, and the key must not have a password."
            ) from error
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
