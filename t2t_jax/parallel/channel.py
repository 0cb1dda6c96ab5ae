"""Messages between the processes of a run: a star of TCP connections with process 0 in its middle.

JAX's collectives move numbers between devices and wait for ever for a process that is gone. What processes tell each
other here is small and rare: that data is ready, which step to stop at, translations, and why one of them cannot go
on. The kernel closes the connections of a process that ends, however it ends, and probes a silent machine, so nobody
waits for the dead.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from t2t_jax.errors import RunError

Json = Any  # a value that JSON can write and read back; tuples come back as lists
Handler = Callable[[int, Json], None]  # of the sender's number and the value

HELLO_LIMIT = 1 << 10  # bytes a stranger may send
LIMIT = 1 << 30  # bytes of one message
SILENCE = 30  # seconds without an answer of the other machine's kernel until it counts as gone
GREETING = 5  # seconds a new connection has to say who it is


class Loss(NamedTuple):
    """A process that ended before the run did."""

    process: int
    reason: str | None
    """Its own words, where it could still speak."""
    status: int
    """Exit status for the others."""


class Channel:
    """This process's place in the star. `Channel.alone()` is that of a run of one process."""

    def __init__(self, number: int, count: int, peers: dict[int, socket.socket], on_loss: Callable[[Loss], None]):
        """Take over connected sockets: process 0 has one to each other process, the others one to process 0.

        `on_loss` is called, from another thread, at the first process that is lost; it should not return.
        """
        self.number, self.count = number, count
        self._peers, self._on_loss = peers, on_loss
        self._values: dict[int, queue.SimpleQueue[Json]] = {peer: queue.SimpleQueue() for peer in peers}
        self._handlers: dict[str, Handler] = {}
        self._early: dict[str, list[tuple[int, Json]]] = {}
        self._lock = threading.Lock()  # of what several threads change, and so that messages don't mix
        self._leaving = False
        self._threads = [threading.Thread(target=self._read, args=(peer,), daemon=True) for peer in peers]
        for thread in self._threads:
            thread.start()

    @classmethod
    def alone(cls) -> Channel:
        """The channel of a run that has no other process."""
        return cls(0, 1, {}, lambda loss: None)

    @property
    def first(self) -> bool:
        """Whether this is process 0, which alone writes the run directory and speaks to the user."""
        return self.number == 0

    def exchange(self, value: Json = None) -> list[Json]:
        """Every process's value, by process. All processes call it in the same order; it returns when all have."""
        if self.count == 1:
            return [value]
        if not self.first:
            self.send("value", value)
            return list(self._values[0].get())
        values = [value, *(self._values[peer].get() for peer in sorted(self._peers))]
        for peer in self._peers:
            self.send("value", values, to=peer)
        return values

    def send(self, kind: str, value: Json = None, to: int = 0) -> None:
        """Tell process `to`; others than 0 can only tell process 0."""
        with self._lock, contextlib.suppress(OSError):  # the thread that reads from it finds out why and says so
            _send(self._peers[to], [kind, value])

    def handle(self, kind: str, handler: Handler) -> None:
        """Have `handler` called, in another thread, for each message of `kind`, those that came before included."""
        with self._lock:
            self._handlers[kind] = handler
            early = self._early.pop(kind, [])
        for sender, value in early:
            handler(sender, value)

    def close(self) -> None:
        """Leave together with all others, in peace."""
        if self.first:
            for peer in self._peers:
                self._values[peer].get()
            self._leaving = True  # from here on they may go
            for peer in self._peers:
                self.send("value", [], to=peer)
            for thread in self._threads:
                thread.join(GREETING)
        else:
            self.exchange()
            self._leaving = True
        for connection in self._peers.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # closing alone would not wake the thread that reads
            connection.close()

    def fail(self, reason: str, status: int) -> None:
        """Tell the others why this process is about to end."""
        with self._lock:
            if self._leaving:
                return
            self._leaving = True
        for peer in self._peers:
            self.send("failed", [self.number, reason, status], to=peer)
        deadline = time.monotonic() + 2
        for connection in self._peers.values():  # a close with unread input would take the message back
            try:
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(max(0.1, deadline - time.monotonic()))
                while connection.recv(1 << 16):
                    pass
            except OSError:
                continue

    def _read(self, peer: int) -> None:
        try:
            while True:
                kind, value = _receive(self._peers[peer], LIMIT)
                if kind == "failed":
                    self._lost(Loss(*value))
                elif kind == "value":
                    self._values[peer].put(value)
                else:
                    self._deliver(peer, kind, value)
        except (OSError, EOFError, ValueError, TypeError):
            self._lost(Loss(peer, None, 1))

    def _deliver(self, sender: int, kind: str, value: Json) -> None:
        with self._lock:
            handler = self._handlers.get(kind)
            if handler is None:
                self._early.setdefault(kind, []).append((sender, value))
                return
        handler(sender, value)

    def _lost(self, loss: Loss) -> None:
        with self._lock:
            if self._leaving:
                return
            self._leaving = True
        if self.first:
            for peer in self._peers:
                if peer != loss.process:
                    self.send("failed", list(loss), to=peer)
        self._on_loss(loss)


def gather_at(
    address: tuple[str, int], number: int, count: int, patience: float, on_loss: Callable[[Loss], None]
) -> Channel:
    """Meet the other processes at `address` (host and port), where process 0 listens.

    Args:
      address: of process 0, as the others can reach it.
      number, count: this process, of how many.
      patience: seconds to wait for the others.
      on_loss: as for `Channel`.

    Raises:
      RunError: not all came in time, or they don't agree on who takes part.
    """
    if count == 1:
        return Channel.alone()
    deadline = time.monotonic() + patience
    peers = _listen(address, count, deadline) if number == 0 else {0: _call(address, number, count, deadline)}
    for connection in peers.values():
        connection.settimeout(None)
        _watch(connection)
    return Channel(number, count, peers, on_loss)


def _listen(address: tuple[str, int], count: int, deadline: float) -> dict[int, socket.socket]:
    host, port = address
    try:
        server = socket.create_server(("", port), backlog=count)
    except OSError as error:
        raise RunError(f"Process 0 cannot listen at {host}:{port}: {error.strerror or error}.") from None
    peers: dict[int, socket.socket] = {}
    with server:
        while len(peers) < count - 1:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                missing = ", ".join(str(i) for i in range(1, count) if i not in peers)
                raise RunError(f"Of {count} processes, {missing} did not come to {host}:{port} in time.") from None
            try:
                connection.settimeout(GREETING)
                hello = _receive(connection, HELLO_LIMIT)
                peer, theirs = int(hello["process"]), int(hello["of"])
            except (OSError, EOFError, ValueError, KeyError, TypeError):
                connection.close()  # whoever it is, it is none of us
                continue
            complaint = None
            if theirs != count:
                complaint = f"Process {peer} was told of {theirs} processes, process 0 of {count}."
            elif not 0 < peer < count or peer in peers:
                complaint = f"Two processes say that they are process {peer} of {count}."
            _send(connection, {"complaint": complaint})
            if complaint:
                raise RunError(complaint)
            peers[peer] = connection
    return peers


def _call(address: tuple[str, int], number: int, count: int, deadline: float) -> socket.socket:
    host, port = address
    while True:
        try:
            connection = socket.create_connection(address, timeout=GREETING)
            _send(connection, {"process": number, "of": count})
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            answer = _receive(connection, HELLO_LIMIT)
            break
        except (OSError, EOFError, ValueError):
            if time.monotonic() > deadline:
                raise RunError(
                    f"Process {number} found no process 0 at {host}:{port}; is it running, and can it be reached?"
                ) from None
            time.sleep(0.2)
    if answer["complaint"]:
        raise RunError(answer["complaint"])
    return connection


def _watch(connection: socket.socket) -> None:
    """Have the kernel notice when the other machine is gone or cannot be reached, without anyone's cooperation."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    probes = {"TCP_KEEPIDLE": SILENCE // 3, "TCP_KEEPINTVL": SILENCE // 6, "TCP_KEEPCNT": 4}
    for name, value in (probes | {"TCP_USER_TIMEOUT": SILENCE * 1000}).items():
        if hasattr(socket, name):  # Linux has all of them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _send(connection: socket.socket, value: Json) -> None:
    content = json.dumps(value).encode()
    connection.sendall(struct.pack("!Q", len(content)) + content)


def _receive(connection: socket.socket, limit: int) -> Json:
    (size,) = struct.unpack("!Q", _exactly(connection, 8))
    if size > limit:
        raise ValueError(f"a message of {size} bytes")
    return json.loads(_exactly(connection, size))


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        part = connection.recv(min(size - len(content), 1 << 20))
        if not part:
            raise EOFError
        content += part
    return bytes(content)
