"""Limits and keepalive of both ends of a gRPC connection, and how a channel is opened."""

from __future__ import annotations

from typing import Any

import grpc

from kev.wire.tls import authorities, target_of

MAX_REQUEST_BYTES = 64 * 1024 * 1024
"""Largest message a service accepts."""
MAX_REPLY_BYTES = 256 * 1024 * 1024
"""Largest message a client accepts: 1,000 whole results."""
STREAM_WINDOW_BYTES = 64 * 1024
PENDING_CALLS = 16_384
"""Calls that may wait for their handlers to begin."""
PENDING_S = 3_600
"""How long they may wait; a call's own deadline ends it before."""
KEEPALIVE_MS = 30_000
KEEPALIVE_TIMEOUT_MS = 10_000

_KEEPALIVE: list[tuple[str, Any]] = [
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]

SERVER_OPTIONS: list[tuple[str, Any]] = [
    *_KEEPALIVE,
    # Clients may ping far more often than ours do before they are sent away: on a busy machine
    # pings wait and then arrive close together.
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 10),
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", MAX_REPLY_BYTES),
    # Beyond 1,000 calls that no handler has yet, gRPC's own server cancels some at random: without a
    # reason, and without a time to come back. Those who ask at once by thousands get our own answer.
    ("grpc.server.max_pending_requests", PENDING_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", 2 * PENDING_CALLS),
    # It also cancels those that waited for half a minute.
    ("grpc.server_max_unrequested_time_in_server", PENDING_S),
    # Off, so that a second process on the same port gets an error instead of half the calls.
    ("grpc.so_reuseport", 0),
]

CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    *_KEEPALIVE,
    ("grpc.max_receive_message_length", MAX_REPLY_BYTES),
    # A small fixed window per stream. With gRPC's own growing one a service could write 80,000
    # small frames to a client that reads none; with this one its write waits after 2,000.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", STREAM_WINDOW_BYTES),
    ("grpc.max_send_message_length", MAX_REQUEST_BYTES),
    # A service that comes back is found within a second or two, not after gRPC's two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


def open_channel(address: str, ca: str = "") -> grpc.aio.Channel:
    """A channel with this project's limits. Connects on first use.

    Args:
        address: ``HOST:PORT``; encrypted with ``tls://`` before it.
        ca: PEM file of the authorities that an encrypted one trusts; empty takes gRPC's list of public ones.

    Raises:
        ValueError: says what is wrong with that file.
    """
    target, encrypted = target_of(address)
    if not encrypted:
        return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(authorities(ca)), options=CHANNEL_OPTIONS)
