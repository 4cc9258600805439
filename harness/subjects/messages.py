"""Messages between this process and a subject's: pickled to the subject, which trusts us, and JSON from it."""

from __future__ import annotations

import json
import pickle
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

LARGEST = 1 << 20  # bytes of an answer; the longest in use are a few hundred
_HEAD = struct.Struct("<Q")
_MOST_FILES = 4


def send_request(to: socket.socket, request: Any, files: Sequence[int]) -> None:
    body = pickle.dumps(request)
    socket.send_fds(to, [_HEAD.pack(len(body))], list(files))
    to.sendall(body)


def read_request(source: socket.socket) -> tuple[Any, list[int]]:
    """Read a request and its file descriptors. Raises EOFError at the end."""
    head, files, _, _ = socket.recv_fds(source, _HEAD.size, _MOST_FILES)
    (size,) = _HEAD.unpack(head or _exactly(source, _HEAD.size, None))
    return pickle.loads(_exactly(source, size, None)), files


def send_answer(to: socket.socket, answer: dict[str, Any]) -> None:
    body = json.dumps(answer).encode()
    to.sendall(_HEAD.pack(len(body)) + body)


def read_answer(source: socket.socket, seconds: float | None) -> dict[str, Any]:
    """Read an answer from an untrusted process.

    Raises TimeoutError if it takes longer, EOFError if the process is gone, ValueError if it is malformed.
    """
    until = None if seconds is None else time.monotonic() + seconds
    (size,) = _HEAD.unpack(_exactly(source, _HEAD.size, until))
    if size > LARGEST:
        raise ValueError(f"an answer of {size} bytes")
    try:
        answer = json.loads(_exactly(source, size, until))
    except RecursionError:
        raise ValueError("an answer of endless lists") from None
    if not isinstance(answer, dict):
        raise ValueError("an answer that is no object")
    return answer


def _exactly(source: socket.socket, size: int, until: float | None) -> bytes:
    parts = b""
    while len(parts) < size:
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        source.settimeout(left)
        part = source.recv(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return parts
