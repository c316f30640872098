"""Readers of a job's page, all in one process of one thread. Each opens the page and then asks for the job's state as the page's script does:
on a connection of its own, and again a second after the answer has come. Real readers sit at other machines, so this process says what it
computes itself. It looks at no more of an answer than tells that it is good and whole."""

import heapq
import multiprocessing
import os
import re
import selectors
import socket
import time
from urllib.parse import parse_qs, urlsplit

PAUSE_S, LIMIT_S = 1, 5  # as in job_page.js: between an answer and the next question, and until an answer must be there
MOST_READ = 1 << 18


class NoAnswer(Exception):
    """A reader has not seen what it asked for."""


class Answer:
    """An answer as it comes."""

    def __init__(self):
        self.head, self.size, self.left = b"", 0, None  # bytes of the body, and those that are still to come

    def take(self, part):
        """Whether it is whole with this part. An empty one says that the connection has ended."""
        if not part:
            raise NoAnswer(f"the connection has ended after {self.size - self.left} of {self.size} bytes" if self.left is not None else
                           f"the connection has ended after {len(self.head)} bytes of a head")
        if self.left is not None:
            self.left -= len(part)
        else:
            self.head += part
            head, end, body = self.head.partition(b"\r\n\r\n")
            if not end:
                return False
            if not head.startswith(b"HTTP/1.1 200 "):
                raise NoAnswer(head.split(b"\r\n")[0].decode(errors="replace"))
            length = re.search(rb"\r\nContent-Length: (\d+)(?:\r\n|$)", head)
            if not length:
                raise NoAnswer("an answer does not say how long it is")
            self.size = int(length[1])
            self.left = self.size - len(body)
        if self.left < 0:
            raise NoAnswer(f"an answer is longer than the {self.size} bytes that it says")
        return self.left == 0


class Reader:
    """One of them, and what it is waiting for."""

    def __init__(self):
        self.line, self.answer, self.asked, self.began, self.has_page = None, None, b"", 0.0, False


class Readers:
    """So many readers of the page at this address."""

    def __init__(self, url, count, pause_s=PAUSE_S, limit_s=LIMIT_S):
        parts = urlsplit(url)
        token = parse_qs(parts.query)["token"][0]
        self.address, self.pause_s, self.limit_s = (parts.hostname, parts.port), pause_s, limit_s
        self.page = f"GET /?token={token} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: text/html\r\n\r\n".encode()
        self.state = (f"GET /state.json HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: */*\r\nAuthorization: Bearer {token}\r\n"
                      "Cache-Control: no-cache\r\n\r\n").encode()
        # They have not all opened it at one moment.
        now = time.monotonic()
        self.due = [(now + pause_s * i / count, i, Reader()) for i in range(count)]
        self.waiting = {}  # number: reader; who has waited longest comes first
        self.selector = selectors.DefaultSelector()
        self.room = memoryview(bytearray(MOST_READ))
        self.begin_count()

    def begin_count(self):
        """Forgets what was before."""
        self.times, self.num_bytes, self.counted_since, self.cpu_before = [], 0, time.monotonic(), self.cpu_s()

    def figures(self):
        """What has been since the count began. `times`: what each answer with a state has taken."""
        return {"times": self.times, "bytes": self.num_bytes, "seconds": time.monotonic() - self.counted_since, "cpu_s": self.cpu_s() - self.cpu_before}

    @staticmethod
    def cpu_s():
        spent = os.times()
        return spent.user + spent.system

    def look(self, most_s):
        """Waits for what comes next, at most so long, and does it. Returns whether what is registered without a reader has something to say."""
        now = time.monotonic()
        until = now + most_s
        if self.due:
            until = min(until, self.due[0][0])
        if self.waiting:
            until = min(until, next(iter(self.waiting.values())).began + self.limit_s)
        is_told = False
        for key, _ in self.selector.select(max(until - now, 0)):
            if key.data:
                self.serve(*key.data)
            else:
                is_told = True
        now = time.monotonic()
        if self.waiting and now - next(iter(self.waiting.values())).began > self.limit_s:
            raise NoAnswer(f"no answer within {self.limit_s} s")
        while self.due and self.due[0][0] <= now:
            _, number, reader = heapq.heappop(self.due)
            self.ask(number, reader)
        return is_told

    def ask(self, number, reader):
        reader.line = socket.socket()
        reader.line.setblocking(False)
        reader.line.connect_ex(self.address)  # what fails is told when something is sent
        reader.asked, reader.answer, reader.began = self.state if reader.has_page else self.page, Answer(), time.monotonic()
        self.waiting[number] = reader
        self.selector.register(reader.line, selectors.EVENT_WRITE, (number, reader))

    def serve(self, number, reader):
        if reader.asked:
            reader.asked = reader.asked[reader.line.send(reader.asked):]
            if not reader.asked:
                self.selector.modify(reader.line, selectors.EVENT_READ, (number, reader))
            return
        count = reader.line.recv_into(self.room)
        if not reader.answer.take(bytes(self.room[:count]) if reader.answer.left is None else self.room[:count]):
            return
        self.selector.unregister(reader.line)
        reader.line.close()
        del self.waiting[number]
        now = time.monotonic()
        if reader.has_page:
            self.times.append(now - reader.began)
            self.num_bytes += reader.answer.size
        # The page's script asks as soon as it is there.
        heapq.heappush(self.due, (now + (self.pause_s if reader.has_page else 0), number, reader))
        reader.has_page = True

    def close(self):
        for reader in self.waiting.values():
            reader.line.close()
        self.selector.close()


def look_on(url, count, pipe, pause_s=PAUSE_S):
    """Looks on until the pipe says "end", and answers with the figures since it has said "count", or with what a reader has met instead."""
    readers = Readers(url, count, pause_s)
    try:
        readers.selector.register(pipe, selectors.EVENT_READ, None)
        while True:
            if not readers.look(LIMIT_S):
                continue
            if pipe.recv() == "end":
                pipe.send(readers.figures())
                return
            readers.begin_count()
    except (NoAnswer, OSError, EOFError) as error:
        pipe.send({"failed": str(error) or type(error).__name__})
    finally:
        readers.close()


class ReadersProcess:
    """They look on from a process of their own until they are told to end."""

    def __init__(self, url, count):
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=look_on, args=(url, count, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def count(self):
        """From now on what they see is counted."""
        self.say("count")

    def end(self):
        """Returns their figures."""
        self.say("end")
        try:
            figures = self.pipe.recv()
        except (EOFError, OSError):
            figures = {"failed": "their process has ended"}
        self.process.join()
        if "failed" in figures:
            raise NoAnswer(f"a reader of the page was not answered: {figures['failed']}")
        return figures

    def say(self, word):
        try:
            self.pipe.send(word)
        except OSError:  # they have ended, and have said why
            pass

    def kill(self):
        self.process.kill()
        self.process.join()
