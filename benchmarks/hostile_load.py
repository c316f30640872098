"""Strangers that do to a scheduler's port, all at once, what they can: connections that say nothing, that say a byte a second, garbage,
forged frames, and handshakes without end. They yield to everybody else on their machine, for what they compute is no cost of the scheduler's."""

import os
import random
import resource
import socket
import ssl
import time

from simulated_workers import frame, register

NUM_IDLE, NUM_SLOW, AT_ONCE = 2000, 200, 20


def connect(port):
    line = socket.socket()
    line.setblocking(False)
    try:
        line.connect(("127.0.0.1", port))
    except BlockingIOError:
        pass
    except OSError:
        line.close()
        return None
    return line


def client_hello():
    """The first bytes of a client of TLS that knows no secret and has no certificate."""
    out = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


class Crowd:
    """So many connections; those that have ended are replaced, some at a time."""

    def __init__(self, port, count):
        self.port, self.count, self.lines = port, count, []

    def fill(self):
        self.lines = [line for line in self.lines if not self.has_ended(line)]
        for _ in range(min(AT_ONCE, self.count - len(self.lines))):
            if line := connect(self.port):
                self.lines.append(line)
                self.begin(line)

    def begin(self, line):
        pass

    @staticmethod
    def has_ended(line):
        try:
            ended = line.recv(4096) == b""
        except BlockingIOError:
            ended = False
        except OSError:
            ended = True
        if ended:
            line.close()
        return ended

    def work(self):
        self.fill()

    def end(self):
        for line in self.lines:
            line.close()


class Idle(Crowd):
    """They connect, say nothing, and go at random: a loop of connects and closes."""

    def work(self):
        self.fill()
        for _ in range(min(AT_ONCE, len(self.lines))):
            self.lines.pop(random.randrange(len(self.lines))).close()


class Slow(Crowd):
    """A byte a second of a first message that never ends."""

    def __init__(self, port, count):
        super().__init__(port, count)
        self.hello, self.said, self.due = client_hello(), {}, 0.0

    def work(self):
        self.fill()
        if time.monotonic() < self.due:
            return
        self.due = time.monotonic() + 1
        for line in self.lines:
            place = self.said[line] = self.said.get(line, -1) + 1
            try:
                line.send(self.hello[place:place + 1])
            except OSError:
                pass
        self.said = {line: self.said.get(line, -1) for line in self.lines}


class Says(Crowd):
    """They say something at once, and wait to be hung up on."""

    def __init__(self, port, words):
        super().__init__(port, AT_ONCE)
        self.words, self.waiting = words, []

    def begin(self, line):
        self.waiting.append(line)

    def work(self):
        self.fill()
        still = []
        for line in self.waiting:
            try:
                line.send(random.choice(self.words))
            except BlockingIOError:
                still.append(line)
            except OSError:
                pass
        self.waiting = still


def attack(port, seconds):
    """Everything, for so long."""
    os.nice(19)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    hello = client_hello()
    garbage = [os.urandom(4096), b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\xff" * 5000, hello[:100] + b"x" * 9000]
    forged = [register(["worker_0"]), frame("Heartbeat", b"", 1), frame("Welcome", bytes(28)), b"\x17\3\3\0\x20" + os.urandom(32)]
    crowds = [Idle(port, NUM_IDLE), Slow(port, NUM_SLOW), Says(port, garbage), Says(port, forged), Says(port, [hello])]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for crowd in crowds:
            crowd.work()
        time.sleep(0.01)
    for crowd in crowds:
        crowd.end()
