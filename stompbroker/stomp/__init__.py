"""STOMP 1.0, 1.1 and 1.2 without I/O: bytes in, frames out, and back.

Law: no clock, no sockets, no event loop, and of our modules only `errors`.
"""

from stompbroker.stomp.connection import Connection, HeartBeats, State, forbid_body
from stompbroker.stomp.frame import AnswerRun, Frame, Head, Limits, SendRun, Version, unescape, weight_bytes
from stompbroker.stomp.frame_reader import MAX_FRAMES_PER_CALL, FrameReader
from stompbroker.stomp.frame_writer import (
    HEART_BEAT,
    LETTER_PREFIX,
    delivery_prefix,
    message_tail,
    message_tail_template,
    render_error,
    render_frame,
    render_headers,
    render_passed_through,
    render_receipts,
    tail_headers,
    translate_tail,
)
from stompbroker.stomp.heads import HeadAllowance

__all__ = [
    "HEART_BEAT",
    "LETTER_PREFIX",
    "MAX_FRAMES_PER_CALL",
    "AnswerRun",
    "Connection",
    "Frame",
    "FrameReader",
    "Head",
    "HeadAllowance",
    "HeartBeats",
    "Limits",
    "SendRun",
    "State",
    "Version",
    "delivery_prefix",
    "forbid_body",
    "message_tail",
    "message_tail_template",
    "render_error",
    "render_frame",
    "render_headers",
    "render_passed_through",
    "render_receipts",
    "tail_headers",
    "translate_tail",
    "unescape",
    "weight_bytes",
]
