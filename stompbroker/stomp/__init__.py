"""STOMP 1.0, 1.1 and 1.2 without I/O: bytes in, frames out, and back.

Law: no clock, no sockets, no event loop, nothing of ours but `errors`. Neighbours import from here only.
"""

from stompbroker.stomp.commands import forbid_body
from stompbroker.stomp.connection import Connection, Greeting
from stompbroker.stomp.frame import AnswerRun, Frame, Head, SendRun, one_by_one, weight_bytes
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
from stompbroker.stomp.heartbeat import HeartBeats
from stompbroker.stomp.limits import Limits
from stompbroker.stomp.states import State
from stompbroker.stomp.transactions import Transactions
from stompbroker.stomp.versions import Version

__all__ = [
    "HEART_BEAT",
    "LETTER_PREFIX",
    "MAX_FRAMES_PER_CALL",
    "AnswerRun",
    "Connection",
    "Frame",
    "FrameReader",
    "Greeting",
    "Head",
    "HeartBeats",
    "Limits",
    "SendRun",
    "State",
    "Transactions",
    "Version",
    "delivery_prefix",
    "forbid_body",
    "message_tail",
    "message_tail_template",
    "one_by_one",
    "render_error",
    "render_frame",
    "render_headers",
    "render_passed_through",
    "render_receipts",
    "tail_headers",
    "translate_tail",
    "weight_bytes",
]
