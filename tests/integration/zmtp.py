"""Just enough of ZeroMQ's protocol (ZMTP 3.0, mechanism PLAIN) and of Protobuf's encoding to send a
daemon messages that no node of ours would send."""

import socket
import struct

# Signature, version 3.0, mechanism, no server, filler.
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"PLAIN".ljust(20, b"\0") + bytes(32)
HELLO = b"\x05HELLO" + bytes(2)  # neither a name nor a password
WELCOME = b"\x07WELCOME"
INITIATE = b"\x08INITIATE" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"

_MORE, _LONG, _COMMAND = 1, 2, 4


def frame(body, flags=0):
    if len(body) < 256:
        return struct.pack(">BB", flags, len(body)) + body
    return struct.pack(">BQ", flags | _LONG, len(body)) + body


def message(*frames):
    return b"".join(frame(body, _MORE) for body in frames[:-1]) + frame(frames[-1])


def oversized(size):
    """The begin of a frame that claims to have `size` bytes."""
    return struct.pack(">BQ", _LONG, size) + bytes(4096)


def connect(port, seconds=5):
    return socket.create_connection(("127.0.0.1", port), seconds)


def shake_hands(port):
    """A connection on which messages can follow. A ConnectionError where the other end hangs up, as one does
    that wants a key."""
    connection = connect(port)
    connection.sendall(GREETING + frame(HELLO, _COMMAND))
    received = b""
    while len(received) < len(GREETING + frame(WELCOME)):
        part = connection.recv(len(GREETING + frame(WELCOME)) - len(received))
        if not part:
            connection.close()
            raise ConnectionError(f"port {port} hangs up on strangers")
        received += part
    connection.sendall(frame(INITIATE, _COMMAND))
    connection.recv(256)  # its READY
    return connection


def _varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def encode(fields):
    """A Protobuf message of {number: value}: an int (uint32, int64), bytes or str, or a float for a
    fixed64 that holds this number."""
    out = b""
    for number, value in fields.items():
        if isinstance(value, float):
            out += _varint(number << 3 | 1) + struct.pack("<Q", int(value))
        elif isinstance(value, int):
            out += _varint(number << 3) + _varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += _varint(number << 3 | 2) + _varint(len(data)) + data
    return out


def header(
    *, version=1, kind, role, rank=0, lane=0, epoch=0.0, iteration=0, bucket=0, chunk=0, body=b""
):
    """wire::FrameHeader."""
    zigzag = {4: 2 * rank, 5: 2 * lane}
    return encode(
        {
            1: version,
            2: kind,
            3: role,
            **zigzag,
            6: epoch,
            7: iteration,
            8: bucket,
            9: chunk,
            11: len(body),
        }
    )
