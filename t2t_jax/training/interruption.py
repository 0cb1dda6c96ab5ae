"""Signals that ask a run to save and stop."""

from __future__ import annotations

import signal
import threading
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class StopRequests:
    """Within it, the first signal is noted for the loop to see between steps; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def __enter__(self) -> StopRequests:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers only there
            self._previous = {number: signal.signal(number, self._note) for number in SIGNALS}
        else:
            self._previous = {}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
