"""From the frames of a WebSocket client to the bytes that its messages carry.

Law: sans-I/O. The library `websockets` would keep a frame until it is whole, and a client that has not logged in could
send a large one slowly, on many connections. Here a payload is handed on as it comes, and at most one control frame is
kept. `tests/transport/test_websocket_frames.py` compares the two.

Hot path: one step for each frame, of which a client may send one for each STOMP frame.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from typing import TYPE_CHECKING, Final, final

from websockets.exceptions import ProtocolError
from websockets.frames import Close, CloseCode, Frame, Opcode

if TYPE_CHECKING:
    from codecs import IncrementalDecoder

    from websockets.speedups import apply_mask
else:
    try:
        from websockets.speedups import apply_mask
    except ImportError:
        from websockets.utils import apply_mask

#: Frames that are read in one call: a flood of empty ones must not keep everybody else waiting.
MAX_FRAMES: Final = 512
#: Of a control frame, RFC 6455, section 5.5.
_MAX_CONTROL_BYTES: Final = 125

_FINAL: Final = 0x80
_RESERVED: Final = 0x70
_MASKED: Final = 0x80
_MASK_BYTES: Final = 4
#: Second byte of a header → bytes of the length behind it.
_LENGTH_BYTES: Final = {_MASKED | 126: 2, _MASKED | 127: 8}

_Utf8Decoder: Final = getincrementaldecoder("utf-8")


def control_frame(opcode: Opcode, payload: bytes = b"") -> bytes:
    return Frame(opcode, payload).serialize(mask=False)


def close_frame(code: CloseCode, reason: str = "") -> bytes:
    return control_frame(Opcode.CLOSE, Close(code, reason).serialize())


def data_header(opcode: Opcode, length: int) -> bytes:
    """What stands before the payload of a whole message."""
    first = _FINAL | opcode
    if length < 126:
        return bytes((first, length))
    if length < 1 << 16:
        return bytes((first, 126)) + length.to_bytes(2, "big")
    return bytes((first, 127)) + length.to_bytes(8, "big")


class _Wrong(Exception):
    """The client broke the protocol."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@final
class MessageReader:
    """
    Invariants:
        `_kept` begins with a header; nothing of a payload of data is kept, unless `has_more`
        `_left_bytes` of the current data frame are still to come, and `_mask` is for the next of them
        nothing is read once `is_over`
    """

    __slots__ = (
        "_is_text",
        "_kept",
        "_left_bytes",
        "_mask",
        "_message",
        "_utf8",
        "answers",
        "has_binary",
        "has_more",
        "has_text",
        "is_over",
        "pongs",
    )

    def __init__(self) -> None:
        self._kept = b""
        self._left_bytes = 0
        self._mask = b""
        #: First byte of the header of the current message's current frame; 0 between messages.
        self._message = 0
        self._is_text = False
        #: Has seen the beginning of a character, of a text message.
        self._utf8: IncrementalDecoder | None = None
        #: Control frames to be sent.
        self.answers = b""
        #: PONG frames received.
        self.pongs = 0
        self.has_text = self.has_binary = False
        #: Whether there is more to read in what was received; then call `receive(b"")`.
        self.has_more = False
        #: Whether the client has closed, or was wrong. `answers` ends with our close frame.
        self.is_over = False

    def receive(self, chunk: bytes) -> bytes:
        """The payload that these bytes carry, of MAX_FRAMES frames at most."""
        data = self._kept + chunk if self._kept else chunk
        payload: list[bytes] = []
        at = frames = 0
        try:
            while at < len(data) and frames < MAX_FRAMES and not self.is_over:
                if not self._left_bytes:
                    header_end = self._read_header(data, at)
                    if header_end == at:
                        break
                    at = header_end
                    frames += 1
                    if not self._left_bytes:
                        continue
                piece = data[at : at + self._left_bytes]
                at += len(piece)
                payload.append(self._unmask(piece))
        except _Wrong as wrong:
            self.answers += close_frame(wrong.code, wrong.reason)
            self.is_over = True
        self.has_more = frames == MAX_FRAMES and at < len(data) and not self.is_over
        self._kept = b"" if self.is_over else data[at:]
        return payload[0] if len(payload) == 1 else b"".join(payload)

    def _read_header(self, data: bytes, at: int) -> int:
        """Read one header, with its payload if it is a control frame. Returns where it ends; `at` if it has not come in
        full."""
        if len(data) < at + 2:
            return at
        first, second = data[at], data[at + 1]
        if first & _RESERVED:
            raise _Wrong(CloseCode.PROTOCOL_ERROR, "no extension was agreed on, but a reserved bit is set")
        if not second & _MASKED:
            raise _Wrong(CloseCode.PROTOCOL_ERROR, "frames of a client must be masked")
        length_bytes = _LENGTH_BYTES.get(second, 0)
        mask_at = at + 2 + length_bytes
        end = mask_at + _MASK_BYTES
        if len(data) < end:
            return at
        length = int.from_bytes(data[at + 2 : mask_at], "big") if length_bytes else second & ~_MASKED
        if length >> 63:
            raise _Wrong(CloseCode.PROTOCOL_ERROR, "a length has 63 bits")
        mask = data[mask_at:end]
        if first & 0x08:
            return self._read_control(first, length, mask, data, at, end)
        self._begin_frame(first)
        self._left_bytes, self._mask = length, mask
        if not length:
            self._end_frame()
        return end

    def _begin_frame(self, first: int) -> None:
        opcode = first & 0x0F
        if opcode == Opcode.CONT:
            if not self._message:
                raise _Wrong(CloseCode.PROTOCOL_ERROR, "a continuation of no message")
        elif opcode not in (Opcode.TEXT, Opcode.BINARY):
            raise _Wrong(CloseCode.PROTOCOL_ERROR, f"there is no opcode {opcode}")
        elif self._message:
            raise _Wrong(CloseCode.PROTOCOL_ERROR, "a new message begins before the last one has ended")
        else:
            self._is_text = opcode == Opcode.TEXT
            if self._is_text:
                self.has_text = True
            else:
                self.has_binary = True
        # Never 0: that means that no message has begun.
        self._message = first | 0x01_00

    def _unmask(self, piece: bytes) -> bytes:
        """The next bytes of the current frame."""
        shift = len(piece) % _MASK_BYTES
        unmasked = apply_mask(piece, self._mask)
        self._left_bytes -= len(piece)
        if self._left_bytes:
            self._mask = self._mask[shift:] + self._mask[:shift]
        if self._is_text and (self._utf8 is not None or not unmasked.isascii()):
            self._check_text(unmasked)
        if not self._left_bytes:
            self._end_frame()
        return unmasked

    def _check_text(self, piece: bytes, is_last: bool = False) -> None:
        if self._utf8 is None:
            self._utf8 = _Utf8Decoder()
        try:
            self._utf8.decode(piece, is_last)
        except UnicodeDecodeError:
            raise _Wrong(CloseCode.INVALID_DATA, "a text message is not UTF-8; send binary messages") from None

    def _end_frame(self) -> None:
        if self._message & _FINAL:
            self._message = 0
            if self._utf8 is not None:
                self._check_text(b"", is_last=True)
                self._utf8 = None

    def _read_control(self, first: int, length: int, mask: bytes, data: bytes, at: int, start: int) -> int:
        if length > _MAX_CONTROL_BYTES or not first & _FINAL:
            raise _Wrong(
                CloseCode.PROTOCOL_ERROR, f"a control frame has at most {_MAX_CONTROL_BYTES} bytes, in one piece"
            )
        end = start + length
        if len(data) < end:
            return at
        payload = apply_mask(data[start:end], mask)
        match first & 0x0F:
            case Opcode.PING:
                self.answers += control_frame(Opcode.PONG, payload)
            case Opcode.PONG:
                self.pongs += 1
            case Opcode.CLOSE:
                self._close(payload)
            case opcode:
                raise _Wrong(CloseCode.PROTOCOL_ERROR, f"there is no opcode {opcode}")
        return end

    def _close(self, payload: bytes) -> None:
        """Answer with the same code."""
        try:
            Close.parse(payload)
        except ProtocolError as error:
            raise _Wrong(CloseCode.PROTOCOL_ERROR, str(error)) from None
        except UnicodeDecodeError:
            raise _Wrong(CloseCode.INVALID_DATA, "a reason is not UTF-8") from None
        if self._message:
            raise _Wrong(CloseCode.PROTOCOL_ERROR, "a message was not finished")
        self.answers += control_frame(Opcode.CLOSE, payload[:2])
        self.is_over = True
