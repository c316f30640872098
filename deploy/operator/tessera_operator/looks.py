"""Which jobs are to be looked at, and when: each by one thread at a time, however often it is asked for."""

import contextlib
import heapq
import logging
import threading
import time

from tessera_operator.reconcile import reconcile

logger = logging.getLogger("tessera_operator")
SETTLE_S = 0.05  # events come in crowds: one look sees all of them
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 60.0  # after a failure, and after many of them


class Clock:
    """The time of this machine."""

    def time(self):
        return time.time()

    def monotonic(self):
        return time.monotonic()

    def wait(self, condition, seconds):
        """Until the condition is told something, at most so long; None: however long that takes."""
        condition.wait(seconds)


class Looks:
    """Threads that look at jobs. ask() is called from any thread."""

    def __init__(self, cluster, num_threads=4, clock=None):
        self._cluster = cluster
        self._clock = clock or Clock()
        self._lock = threading.Condition()
        self._due = {}  # key -> when
        self._heap = []  # (when, key), some of them outdated
        self._busy = {}  # key -> when it was asked for meanwhile, or None
        self._refusals = {}  # key -> those that stand
        self._pauses = {}  # key -> that after its last look, which has failed
        self._is_over = False
        self._threads = [threading.Thread(target=self._work, name=f"looks-{number}", daemon=True) for number in range(num_threads)]

    def start(self):
        for thread in self._threads:
            thread.start()

    def stop(self):
        """Returns when no look is under way any more."""
        with self._lock:
            self._is_over = True
            self._lock.notify_all()
        for thread in self._threads:
            thread.join()

    def ask(self, key, after_s=SETTLE_S):
        with self._lock:
            self._put(key, self._clock.monotonic() + after_s)

    def _put(self, key, when):
        if key in self._busy:
            before = self._busy[key]
            self._busy[key] = when if before is None else min(before, when)
        elif key not in self._due or when < self._due[key]:
            self._due[key] = when
            heapq.heappush(self._heap, (when, key))
            self._lock.notify()

    def _next(self):
        """The key that is due, once there is one; None at the end."""
        with self._lock:
            while not self._is_over:
                while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
                    heapq.heappop(self._heap)
                left = self._heap[0][0] - self._clock.monotonic() if self._heap else None
                if left is not None and left <= 0:
                    key = heapq.heappop(self._heap)[1]
                    del self._due[key]
                    self._busy[key] = None
                    return key
                self._clock.wait(self._lock, left)
        return None

    def _work(self):
        while (key := self._next()) is not None:
            after_s = MAX_PAUSE_S
            try:
                after_s = self._look(key)
            except BaseException as failure:  # of what was to be said of a failure: no thread ends by it, and no job stays busy
                with contextlib.suppress(BaseException):
                    logger.error("%s %s/%s: %s, of which nothing can be said; again in %.0f s", *key, type(failure).__name__, after_s)
            with self._lock:
                asked = self._busy.pop(key)
                if after_s is not None:
                    self._put(key, self._clock.monotonic() + after_s)
                if asked is not None:
                    self._put(key, asked)

    def _look(self, key):
        try:
            after_s, refusals = reconcile(self._cluster, key, self._refusals.get(key, ()), self._clock.time)
        except Exception as failure:  # whatever it was, the other jobs go on
            pause = self._pauses[key] = min(2 * self._pauses[key], MAX_PAUSE_S) if key in self._pauses else FIRST_PAUSE_S
            logger.error("%s %s/%s: %s: %s; again in %.0f s", *key, type(failure).__name__, str(failure).replace("\n", " ")[:500], pause)
            return pause
        self._pauses.pop(key, None)
        if refusals:
            self._refusals[key] = refusals
        else:
            self._refusals.pop(key, None)
        return after_s
