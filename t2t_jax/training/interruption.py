"""Signals that ask a run to save and stop, and the step that all its processes then stop after."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from t2t_jax.parallel.channel import Channel

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class StopRequests:
    """Within it, the first signal to any process of the run lets all of them stop after the same step.

    Processes run ahead of each other, and of their devices, so none may stop where it happens to be. On a request
    process 0 has everyone hold, learns how far each has come, and names the step after the furthest one. The answers
    come from another thread, so a process that waits for its devices holds up nobody. A second Ctrl-C interrupts at
    once.
    """

    def __init__(self, channel: Channel):
        self._channel = channel
        self.received: signal.Signals | None = None
        """The signal that came to this process, if one did."""
        self.step: int | None = None
        """Stop after this step, or the next one if it is past; settled before any process begins a later one."""
        self._wanted = threading.Event()
        self._changed = threading.Condition()
        self._begun = 0
        self._holding = False
        self._held: dict[int, int] = {}  # in process 0: how far each process had come

    def __enter__(self) -> StopRequests:
        if self._channel.count > 1:
            self._channel.handle("stop", lambda sender, _: self._hold_everyone())
            self._channel.handle("hold", lambda sender, _: self._channel.send("held", self._hold()))
            self._channel.handle("held", self._note_held)
            self._channel.handle("stop after", lambda sender, step: self._settle(step))
            threading.Thread(target=self._pass_on, daemon=True).start()
        if threading.current_thread() is threading.main_thread():  # Python allows handlers only there
            self._previous = {number: signal.signal(number, self._note) for number in SIGNALS}
        else:
            self._previous = {}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def begin(self, step: int) -> None:
        """This process is about to give its devices `step`; returns when it may."""
        if self._channel.count == 1:
            if self.received is not None and self.step is None:
                self.step = step
            return
        with self._changed:
            while self._holding and self.step is None:
                self._changed.wait()
            self._begun = step

    def anywhere(self) -> bool:
        """Whether a signal has come to any process; all of them ask at the same place."""
        return any(self._channel.exchange(self.received is not None))

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received is None:  # once, or a signal that comes within this handler would wait for itself
            self.received = signal.Signals(number)
            self._wanted.set()

    def _pass_on(self) -> None:
        self._wanted.wait()
        if self._channel.first:
            self._hold_everyone()
        else:
            self._channel.send("stop")

    def _hold(self) -> int:
        with self._changed:
            self._holding = True
            return self._begun

    def _hold_everyone(self) -> None:
        with self._changed:
            if self._holding:
                return
            self._held[0] = self._hold()
        for process in range(1, self._channel.count):
            self._channel.send("hold", to=process)

    def _note_held(self, sender: int, begun: int) -> None:
        with self._changed:
            self._held[sender] = begun
            if len(self._held) < self._channel.count:
                return
        step = max(self._held.values()) + 1
        for process in range(1, self._channel.count):
            self._channel.send("stop after", step, to=process)
        self._settle(step)

    def _settle(self, step: int) -> None:
        with self._changed:
            self.step = step
            self._changed.notify_all()
