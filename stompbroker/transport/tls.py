"""TLS: the broker's certificates, and connections over them.

Law: the standard library's TLS, 1.2 at least, over buffers of our own: nothing is ever written to the socket beside the
TLS object. New certificates are for new connections; those that are open keep theirs.
"""

from __future__ import annotations

import re
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import trio

from stompbroker.buffers import joined
from stompbroker.errors import OperatorError
from stompbroker.transport.transport import LINGER_S, Transport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.buffers import Buffer

#: How much is encrypted before the kernel is offered it. A connection may keep that much besides its outbox.
PIECE_BYTES: Final = 64 * 1024
#: What TLS is given to decrypt at once. Its buffers never shrink, so this is what an idle connection keeps.
FEED_BYTES: Final = 16 * 1024
#: The largest record of TLS.
RECORD_BYTES: Final = 16 * 1024
#: A client that makes TLS answer over and over, and reads nothing, gets no more memory than this.
MAX_UNSENT_BYTES: Final = 2 * PIECE_BYTES

#: Names of RFC 4514, and others that OpenSSL and the library cryptography write in the same way.
_SHORT_NAMES: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The settings of similar names; empty where there is none."""

    certificate: str
    key: str = ""
    client_ca: str = ""
    #: Whether a client without a certificate of `client_ca` is turned away.
    requires_client_certificate: bool = False


@final
class Tls:
    """The certificates in use. Raises OperatorError if they cannot be used."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        #: For STOMP and WebSocket: asks clients for a certificate if there is a `client_ca`.
        self.for_clients = _make_context(files)
        #: For HTTP, where nobody logs in by certificate.
        self.for_http = _make_context(TlsFiles(certificate=files.certificate, key=files.key))

    def reload(self) -> None:
        """Read the files again, for connections from now on. Raises OperatorError, and then nothing has changed."""
        fresh = Tls(self._files)
        self.for_clients, self.for_http = fresh.for_clients, fresh.for_http


@final
class TlsTransport(Transport):
    """
    Invariants:
        `_unsent` was encrypted before everything in `_outgoing`, and is sent before it
        one byte is owed if the next one that is offered to us was encrypted already (see `Transport.send_now`)
        only `send_all` sends while `_is_sending`; if it was cancelled, it stays set, and nothing can be sent any more
    """

    __slots__ = (
        "_encrypted",
        "_has_said_goodbye",
        "_incoming",
        "_is_sending",
        "_outgoing",
        "_owed_bytes",
        "_tls",
        "_under",
        "_unsent",
    )

    def __init__(self, under: Transport, context: ssl.SSLContext) -> None:
        super().__init__(under.peer, under.endpoint)
        self._under = under
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        #: Received, and not given to TLS yet.
        self._encrypted = memoryview(b"")
        self._unsent = b""
        self._owed_bytes = 0
        self._is_sending = False
        self._has_said_goodbye = False

    async def shake_hands(self) -> None:
        """Must come first. Raises BrokenResourceError if no connection is agreed on."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._under.send_all(self._outgoing.read())
                chunk = await self._under.receive_some(FEED_BYTES)
                if not chunk:
                    raise trio.BrokenResourceError("the client left during the handshake of TLS") from None
                self._incoming.write(chunk)
            except ssl.SSLError as error:
                await self._under.send_all(self._outgoing.read())  # an alert
                await self._under.finish()
                raise trio.BrokenResourceError(f"no TLS: {_reason(error)}") from error
        await self._under.send_all(self._outgoing.read())
        try:
            self.certificate = _subject(self._tls.getpeercert() or {})
        except ValueError as error:  # of names that are not text
            raise trio.BrokenResourceError(f"the client's certificate cannot be read: {error}") from error

    # Receiving

    async def receive_some(self, max_bytes: int) -> bytes:
        # A record more than that may come: a rest that is left for the next call would make the next chunks small.
        data = self._decrypt()
        if data or self._has_said_goodbye:
            await trio.lowlevel.checkpoint()
            return data
        while not data and not self._has_said_goodbye:
            self._encrypted = memoryview(await self._under.receive_some(max_bytes))
            # Many clients close without a word of TLS; frames have an end of their own.
            self._has_said_goodbye = not self._encrypted
            data = self._decrypt()
            self._send_answers()
        return data

    def _decrypt(self) -> bytes:
        """All that has come. Raises BrokenResourceError if it is not TLS."""
        records: list[bytes] = []
        while not self._has_said_goodbye:
            try:
                record = self._tls.read(RECORD_BYTES)
            except ssl.SSLWantReadError:
                if not self._encrypted:
                    break
                self._incoming.write(self._encrypted[:FEED_BYTES])
                self._encrypted = self._encrypted[FEED_BYTES:]
            except ssl.SSLError as error:
                if not records and not isinstance(error, ssl.SSLZeroReturnError):
                    raise trio.BrokenResourceError(f"wrong TLS: {_reason(error)}") from error
                self._has_said_goodbye = True
            else:
                self._has_said_goodbye = not record
                records.append(record)
        return records[0] if len(records) == 1 else b"".join(records)

    def _send_answers(self) -> None:
        """What TLS says by itself, such as that it has new keys, too. Raises BrokenResourceError if a client makes it
        say more than it reads."""
        if self._outgoing.pending and not self._is_sending:
            self._push()
        if self._outgoing.pending + len(self._unsent) > MAX_UNSENT_BYTES:
            raise trio.BrokenResourceError("the client asks for more of TLS than it reads")

    # Sending

    def send_now(self, *parts: Buffer) -> int:
        data = joined(parts)
        if self._is_sending or (self._unsent and not self._push()):
            return 0
        taken_bytes, self._owed_bytes = self._owed_bytes, 0
        while taken_bytes < len(data):
            piece = memoryview(data)[taken_bytes : taken_bytes + PIECE_BYTES]
            try:
                self._tls.write(piece)
            except ssl.SSLError:
                break  # `send_all` says what is wrong
            taken_bytes += len(piece)
            if not self._push():
                self._owed_bytes = 1
                return taken_bytes - 1
        return taken_bytes

    def _push(self) -> bool:
        """Offer the kernel what is encrypted. Whether it took all."""
        unsent = self._unsent + self._outgoing.read()
        try:
            self._unsent = unsent[self._under.send_now(unsent) :]
        except OSError:
            self._unsent = unsent
        return not self._unsent

    async def send_all(self, *parts: Buffer) -> None:
        data = joined(parts)
        if self._is_sending:
            raise trio.BrokenResourceError("a part of what was sent before is missing")
        self._is_sending = True
        rest = memoryview(data)[self._owed_bytes :]
        self._owed_bytes = 0
        try:
            while rest or self._unsent or self._outgoing.pending:
                if rest:
                    self._tls.write(rest[:PIECE_BYTES])
                    rest = rest[PIECE_BYTES:]
                unsent, self._unsent = self._unsent + self._outgoing.read(), b""
                await self._under.send_all(unsent)
        except ssl.SSLError as error:
            raise trio.BrokenResourceError(f"wrong TLS: {_reason(error)}") from error
        self._is_sending = False

    # Ending

    async def finish(self) -> None:
        try:
            with trio.move_on_after(LINGER_S):
                self._say_goodbye()
                await self.send_all(b"")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client was quicker
        await self._under.finish()

    async def close(self) -> None:
        if self._has_said_goodbye and not self._is_sending:
            # It may wait for ours.
            self._say_goodbye()
            self._push()
        await self._under.close()

    def _say_goodbye(self) -> None:
        with suppress(ssl.SSLError):  # it would rather wait for the client's
            self._tls.unwrap()

    def has_left(self) -> bool:
        return self._has_said_goodbye or self._under.has_left()

    def is_reset(self) -> bool:
        return self._under.is_reset()

    def note_unanswered(self, received_bytes: int, sent_bytes: int) -> None:
        self._under.note_unanswered(received_bytes, sent_bytes)


def _subject(certificate: Mapping[str, Any]) -> str | None:
    """The subject of a certificate as RFC 4514 writes it: from the last part to the first."""
    parts = [
        "+".join(f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in reversed(certificate.get("subject", ()))
    ]
    return ",".join(parts) or None


def _escaped(value: str) -> str:
    text = re.sub(r'[,+"\\<>;]', r"\\\g<0>", value).replace("\0", "\\00")
    if text.startswith((" ", "#")):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and len(text) > 1 else text


def _make_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could make us sign as often as it likes on one connection.
    context.options |= ssl.OP_NO_RENEGOTIATION
    certificate, key = Path(files.certificate).expanduser(), Path(files.key or files.certificate).expanduser()
    for name, path in (("tls_certificate", certificate), ("tls_key", key)):
        _check_readable(name, path)
    try:
        # A key that is encrypted would make OpenSSL ask for a password on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise OperatorError(
            f"The certificate {certificate} (tls_certificate) and the key {key} (tls_key) cannot be used: "
            f"{_reason(error)}. Both must be PEM and belong together, and the key must not have a password."
        ) from error
    if files.client_ca:
        authorities = Path(files.client_ca).expanduser()
        _check_readable("tls_client_ca", authorities)
        try:
            context.load_verify_locations(authorities)
        except OSError as error:
            raise OperatorError(
                f"The authorities {authorities} (tls_client_ca) cannot be used: {_reason(error)}. They must be PEM."
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED if files.requires_client_certificate else ssl.CERT_OPTIONAL
    return context


def _check_readable(name: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise OperatorError(f"The file {path} ({name}) cannot be read: {error.strerror}.") from error


def _reason(error: Exception) -> str:
    return (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
