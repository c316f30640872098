"""How a stranger speaks to a job: the one place of these tests that knows the protocol of the rendezvous. `Stranger` and
`FalseHub` are what they use; another protocol gets another file with the same names."""
import collections
import hashlib
import hmac
import os
import socket
import struct
import threading

from psk_tls import PskTls

PROTOCOL = b"tessera hub 7"
# What a rank says, by its records of TLS: its first message, the end of its handshake, the join, and then where it listens.
HELLO, FINISHED, JOIN, JOINED = range(4)


def parse_address(address):
    """(family, what connect() takes)."""
    kind, _, rest = address.partition(":")
    if kind == "unix":
        return socket.AF_UNIX, b"\0" + rest.encode()
    host, _, port = rest.rpartition(":")
    return socket.AF_INET, (host, int(port))


def hashed(key, *parts):
    text = b"".join(struct.pack("<Q", len(part)) + part for part in parts)
    return hmac.new(key, text, hashlib.sha256).digest()


def tls(secret, is_server=False):
    """What a rank, or a hub, makes of the job's secret."""
    return PskTls(b"tessera hub 1", hashed(secret, b"derive", b"what ranks say at the hub"), is_server)


def hello():
    """A first message by a secret that is a guess."""
    guess = tls(os.urandom(32))
    guess.receive()
    return guess.output()


def record(data, kind=b"\x16"):
    return kind + b"\x03\x03" + struct.pack(">H", len(data)) + data


def frame(kind, body=b""):
    return struct.pack("<I", len(body) + 1) + kind + body


class Line:
    """One connection: bytes as they are, and once it is secured frames within TLS. `heard` is all that came, and what was understood of it."""

    def __init__(self, connection):
        self.socket, self.heard, self._rest = connection, b"", b""
        self._tls = None
        connection.settimeout(20)

    def secure(self, session):
        """Whether the other side has shown that it knows the same secret."""
        said = session.receive()
        while True:
            self.socket.sendall(session.output())
            if session.is_open or session.has_ended:
                break
            if not (data := self.receive()):
                return False
            said += session.receive(data)
        self._take(said)
        self._tls = session
        return session.is_open

    def send(self, data):
        if self._tls is not None:
            self._tls.send(data)
            data = self._tls.output()
        self.socket.sendall(data)

    def send_frame(self, kind, body=b""):
        self.send(frame(kind, body))

    def receive(self):
        """What comes next, as it is; nothing at the end."""
        try:
            data = self.socket.recv(65536)
        except ConnectionError:
            data = b""
        self.heard += data
        return data

    def read(self):
        """The next frame, (kind, body), or, before the line is secured, what comes; None at the end."""
        while self._tls is None or len(self._rest) < 4 or len(self._rest) < 4 + struct.unpack("<I", self._rest[:4])[0]:
            if not (data := self.receive()):
                return None
            if self._tls is None:
                return b"", data
            self._take(self._tls.receive(data))
            if self._tls.has_ended:
                return None
        end = 4 + struct.unpack("<I", self._rest[:4])[0]
        kind, body = self._rest[4:5], self._rest[5:end]
        self._rest = self._rest[end:]
        return kind, body

    def _take(self, said):
        self.heard += said
        self._rest += said

    def close(self):
        self.socket.close()


class Stranger:
    """Connects to a hub. Without a secret it guesses one; a member is one that knows it."""

    def __init__(self, address, secret=None):
        self.address, self.secret = address, secret or os.urandom(32)
        self.lines = []

    def connect(self):
        family, where = parse_address(self.address)
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.settimeout(20)
        connection.connect(where)
        self.lines.append(Line(connection))
        return self.lines[-1]

    def heard(self):
        """All bytes that the job has sent it."""
        return b"".join(line.heard for line in self.lines)

    def prove(self):
        """A line whose hub has seen that this one knows the secret; None where it was refused."""
        line = self.connect()
        if not line.secure(tls(self.secret)) or (first := line.read()) is None:
            return None
        assert first == (b"W", PROTOCOL), first
        return line

    def join(self, rank, size, job_id, host="host"):
        """(line, "" or why it was refused)."""
        line = self.prove()
        if line is None:
            return None, "the secret"
        line.send_frame(b"J", b"\0".join(str(field).encode() for field in (job_id, rank, size, host)))
        return line, ""

    def store(self, line, name, value):
        line.send_frame(b"S", name.encode() + b"\0" + value)

    def ask(self, line, name):
        line.send_frame(b"G", name.encode())

    def fail(self, line, rank, message):
        line.send_frame(b"F", str(rank).encode() + b"\0" + message)

    def idle(self, count):
        for _ in range(count):
            self.connect()

    def flood(self, kept=2000):
        """Connects as fast as it can from here on, until the process ends, waits for no answer and holds the latest."""
        family, where = parse_address(self.address)

        def connect():
            held = collections.deque()
            while True:
                held.append(socket.socket(family, socket.SOCK_STREAM))
                held[-1].setblocking(False)
                held[-1].connect_ex(where)
                if len(held) > kept:
                    held.popleft().close()

        threading.Thread(target=connect, daemon=True).start()

    def half_frames(self, count):
        """Records of TLS of which everything is sent but the end."""
        for index in range(count):
            line = self.connect()
            data = (hello(), record(bytes(1 << 14)), record(bytes(0xffff)))[index % 3]
            try:
                line.socket.settimeout(0.2)
                line.send(data[:-1])
            except OSError:
                pass

    def garbage(self):
        """Everything that no rank sends, each on a connection of its own, in place of a handshake and within it."""
        first = hello()
        for data in (frame(b"J", b"job\0" b"1\0" b"2\0host"), frame(b"W", PROTOCOL), frame(b"F", b"x"), bytes(64), b"\xff" * 64,
                     b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 8, os.urandom(4096), first, first + first, first[:-40] + os.urandom(40), record(b""),
                     record(b"x", b"\x17"), record(b"\1", b"\x14") + first, record(b"\2\x28", b"\x15"), record(b"\1\xff\xff\xff" + bytes(8000)),
                     record(bytes(0xffff))):
            line = self.connect()
            try:
                line.send(data)
                while line.read():
                    pass
            except OSError:
                pass

    def replay(self, recorded):
        """Says again what a rank has said to another hub of this secret."""
        line = self.connect()
        try:
            line.send(recorded)
            while line.read():
                pass
        except OSError:
            pass

    def close(self):
        for line in self.lines:
            line.close()


class FalseHub:
    """Listens in place of a hub. With the secret it can speak as one would that has gone wrong."""

    def __init__(self, address, secret=None):
        family, where = parse_address(address)
        self.listener = socket.socket(family, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.settimeout(20)
        self.listener.bind(where)
        self.listener.listen(64)
        self.secret = secret or os.urandom(32)

    def accept(self):
        return Line(self.listener.accept()[0])

    def welcome(self, line):
        """Shows the secret and hears the join: (job id, rank, size, host); None where the rank does not believe it."""
        if not line.secure(tls(self.secret, is_server=True)):
            return None
        line.send_frame(b"W", PROTOCOL)
        joined = line.read()
        return None if joined is None else tuple(field.decode() for field in joined[1].split(b"\0"))

    def reflect(self, line):
        """Sends a rank its own words."""
        try:
            while said := line.receive():
                line.send(said)
        except OSError:  # it has hung up
            pass

    def close(self):
        self.listener.close()


# What a hub says that has gone wrong, by name: (kind, body).
WRONG_WORDS = {"a failure without a rank": (b"F", b"x"), "a failure of no rank": (b"F", b"zz\0message"), "a failure of rank 77": (b"F", b"77\0message"),
               "a value without a name": (b"V", b"value"), "the end of no rank": (b"E", b"zz"), "the end of rank 77": (b"E", b"77"),
               "the end of rank -1": (b"E", b"-1"), "no kind": (b"?", b"?"), "hosts of other ranks": (b"A", b"a\0b\0c\0d\0e")}


def welcome_all(hub, line, hosts):
    line.send_frame(b"A", b"\0".join(host.encode() for host in hosts))


def answer_asked(line, values):
    """Answers what the rank asks for, in turn, with `values`; the names asked for."""
    names = []
    while len(names) < len(values) and (said := line.read()) is not None:
        if said[0] == b"G":
            line.send_frame(b"V", said[1] + b"\0" + values[len(names)])
            names.append(said[1].decode())
    return names


class Relay:
    """Stands between a rank and its hub and passes on what they say: `to_hub` and `to_rank` is what the two said. `hold(record number)`
    keeps the rank's words back from that record on, until `go_on()`; `change(number)` flips a bit of that one."""

    def __init__(self, address, target):
        self.target, self.to_hub, self.to_rank = target, b"", b""
        self.held, self._may_go = threading.Event(), threading.Event()
        self._hold = self._change = None
        family, where = parse_address(address)
        self.listener = socket.socket(family, socket.SOCK_STREAM)
        self.listener.bind(where)
        self.listener.listen(8)
        self.address = address if family == socket.AF_UNIX else "tcp:%s:%d" % self.listener.getsockname()
        self._sockets = []
        self.num_connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, number):
        self._hold = number

    def change(self, number):
        self._change = number

    def go_on(self):
        self._may_go.set()

    def _accept(self):
        family, where = parse_address(self.target)
        while True:
            try:
                rank = self.listener.accept()[0]
                hub = socket.socket(family, socket.SOCK_STREAM)
                hub.connect(where)
            except OSError:
                return
            self._sockets += [rank, hub]
            self.num_connections += 1
            threading.Thread(target=self._pass_records, args=(rank, hub), daemon=True).start()
            threading.Thread(target=self._pass_bytes, args=(hub, rank), daemon=True).start()

    def _pass_records(self, rank, hub):
        rest, number = b"", 0
        while data := self._receive(rank):
            rest += data
            while len(rest) >= 5 and len(rest) >= 5 + struct.unpack(">H", rest[3:5])[0]:
                end = 5 + struct.unpack(">H", rest[3:5])[0]
                one, rest = bytearray(rest[:end]), rest[end:]
                is_counted = one[0] != 0x14  # a change of ciphers, which means nothing in TLS 1.3
                if is_counted and number == self._hold:
                    self.held.set()
                    self._may_go.wait(60)
                if is_counted and number == self._change:
                    one[5] ^= 1
                self.to_hub += one
                self._send(hub, bytes(one))
                number += is_counted
        self._end(hub)

    def _pass_bytes(self, hub, rank):
        while data := self._receive(hub):
            self.to_rank += data
            self._send(rank, data)
        self._end(rank)

    @staticmethod
    def _receive(source):
        try:
            return source.recv(65536)
        except OSError:
            return b""

    @staticmethod
    def _send(target, data):
        try:
            target.sendall(data)
        except OSError:
            pass

    @staticmethod
    def _end(target):
        try:
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self._may_go.set()
        for one in [self.listener, *self._sockets]:
            one.close()


def steal(port):
    """Takes a connection between ranks: connects first where one of them listens, and speaks what would end a reader that
    trusts it. The connection, or None where another one was there first."""
    try:
        thief = socket.create_connection(("127.0.0.1", port), timeout=5)
        # A header of Gloo's: an operation for a buffer that nobody waits for.
        thief.sendall(struct.pack("<6Q", 48 + 64, 1, 12345, 0, 64, 0) + b"x" * 64)
        return thief
    except OSError:
        return None
