"""Workers of a job as its scheduler sees them: TLS 1.3 with a certificate each connection anew, frames, and what registers a node and shows
that it lives. Many of them are one process that does nothing else; they train nothing."""

import heapq
import os
import random
import re
import resource
import secrets
import selectors
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections import deque
from pathlib import Path

HEADER = Path(__file__).resolve().parent.parent / "tessera/cluster/rendezvous/messages/frame.h"
HEADER_BYTES = 16
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.025, 1.0  # between attempts, as client.cc has them
WORKERS_OF_A_HOST = 8


def frame_types():
    """The protocol's version, and the numbers of its frames by name, as the header has them."""
    text = HEADER.read_text()
    version = int(re.search(r"kProtocolVersion = (\d+);", text)[1])
    return version, {name: int(number) for name, number in re.findall(r"^  k(\w+) = (\d+),$", text, re.M)}


VERSION, TYPES = frame_types()
NAMES = {number: name for name, number in TYPES.items()}


def frame(name, body=b"", generation=0):
    return struct.pack("<2sBBIQ", b"TR", VERSION, TYPES[name], len(body), generation) + body


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<I", len(value)) + value


def register(node_ids, host="host", role=0, incarnation=1, token=0, num_workers=0):
    """`role`: 0 of a worker, 1 of a launcher. No servers, and no word of the program."""
    body = struct.pack("<BQQQQI", role, incarnation, 1, incarnation, token, num_workers) + text(host)
    return frame("Register", body + struct.pack("<I", len(node_ids)) + b"".join(map(text, node_ids)) + struct.pack("<IQ", 0, 0))


def heartbeat(generation, step=0, doing=""):
    body = struct.pack("<q", step) + text(doing) + struct.pack("<i", -1) + text("") + struct.pack("<iI", -1, 0) + text("") + struct.pack("<I", 0)
    return frame("Heartbeat", body, generation)


def take_frames(rest):
    """The whole frames at the beginning of these bytes, (name, generation, body) each, and what is left."""
    found = []
    while len(rest) >= HEADER_BYTES:
        _, _, kind, size, generation = struct.unpack("<2sBBIQ", rest[:HEADER_BYTES])
        if len(rest) < HEADER_BYTES + size:
            break
        found.append((NAMES[kind], generation, rest[HEADER_BYTES:HEADER_BYTES + size]))
        rest = rest[HEADER_BYTES + size:]
    return found, rest


def first_text(body):
    return body[4:4 + struct.unpack("<I", body[:4])[0]].decode()


class Certificates:
    """An authority and certificates of each role, ECDSA, in a folder, made by Tessera."""

    def __init__(self, folder, tessera, nodes=()):
        self.folder = Path(folder) / "tls"
        password = Path(folder) / "password"
        password.touch(0o600)
        password.write_text(secrets.token_hex(16))
        self.environment = {"TESSERA_TLS_PASSWORD_FILE": str(password), "TESSERA_TLS_CONFIG": str(self.folder / "config.json")}
        subprocess.run([tessera, "cluster", "make-certificates", self.folder, *(("--nodes", *nodes) if nodes else ())], check=True,
                       env=os.environ | self.environment, stdout=subprocess.DEVNULL)
        self.password = password

    def context(self, name="client"):
        """What a connection shows and believes: no session of an earlier one."""
        pem = self.folder / f"{name}.pem"
        if not pem.exists():
            words = ["openssl", "pkcs12", "-in", self.folder / f"{name}.p12", "-passin", f"file:{self.password}", "-nodes"]
            pem.touch(0o600)
            pem.write_bytes(subprocess.run(words, check=True, capture_output=True).stdout)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # names of hosts are none of a scheduler's certificate, its role is
        context.load_verify_locations(self.folder / "ca.crt")
        context.load_cert_chain(pem)
        return context


class Member:
    """One that waits for what it has asked; for tests."""

    def __init__(self, port, context, timeout_s=20):
        self.line = context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=timeout_s))
        self.rest, self.heard, self.generation, self.last = b"", deque(), 0, ""

    def say(self, data):
        self.line.sendall(data)

    def hear(self, *names):
        """The body of the next frame of these names, others passed over; None when the other side has hung up."""
        while True:
            while self.heard:
                name, generation, body = self.heard.popleft()
                self.generation, self.last = max(self.generation, generation), name
                if name in names:
                    return body
            try:
                data = self.line.recv(65536)
            except (ConnectionError, ssl.SSLError):
                data = b""
            if not data:
                return None
            found, self.rest = take_frames(self.rest + data)
            self.heard += found

    def enroll(self, node_id, **fields):
        """Registers; why it was refused, "" where it was not."""
        self.say(register([node_id], **fields))
        return self.refusal("Welcome")

    def refusal(self, *names):
        """Why it is hung up on; "" where a frame of these names comes."""
        body = self.hear(*names, "Refused")
        if body is None:
            return "without a word"
        return first_text(body) if self.last == "Refused" else ""

    def beat(self):
        """How long the scheduler takes to answer a heartbeat, in seconds."""
        begin = time.monotonic()
        self.say(heartbeat(self.generation))
        if self.hear("HeartbeatAnswer") is None:
            raise ConnectionError("the scheduler has hung up on a member")
        return time.monotonic() - begin

    def close(self):
        self.line.close()


class Worker:
    """One of a swarm."""

    def __init__(self, number):
        self.node_id = f"host{number // WORKERS_OF_A_HOST}/{number % WORKERS_OF_A_HOST}"
        self.host = f"host{number // WORKERS_OF_A_HOST}"
        place = number // WORKERS_OF_A_HOST
        self.address = f"127.{1 + place // 62500}.{place // 250 % 250}.{1 + place % 250}"  # of its host
        self.token = 0
        self.forget()
        self.pause = FIRST_PAUSE_S

    def forget(self):
        self.line, self.rest, self.is_secret, self.is_in = None, b"", False, False


class Swarm:
    """Workers that come at once and come again where they are turned away, as real ones do."""

    def __init__(self, count, context):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        if count + 100 > most:
            raise SystemExit(f"{count} connections need as many descriptors, and a process may have {most} (ulimit -Hn)")
        self.workers, self.context = [Worker(number) for number in range(count)], context
        self.selector, self.draws = selectors.DefaultSelector(), random.Random(1)
        self.to_connect = []  # (when, its name, worker), the next one first
        self.num_attempts = 0

    def drop(self, worker):
        if worker.line is not None:
            try:
                self.selector.unregister(worker.line)
            except (KeyError, ValueError):
                pass
            worker.line.close()
        worker.forget()

    def leave(self):
        for worker in self.workers:
            self.drop(worker)

    def try_again(self, worker):
        self.drop(worker)
        due = time.monotonic() + self.draws.uniform(worker.pause / 2, worker.pause)
        heapq.heappush(self.to_connect, (due, worker.node_id, worker))
        worker.pause = min(2 * worker.pause, LONGEST_PAUSE_S)

    def come(self, port, limit_s):
        """All connect and register. How long it took until the last one was welcome, in seconds."""
        begin = time.monotonic()
        for worker in self.workers:
            self.drop(worker)
            worker.pause = FIRST_PAUSE_S
        self.to_connect = [(begin, worker.node_id, worker) for worker in self.workers]
        heapq.heapify(self.to_connect)
        self.num_attempts = 0
        waiting = set(self.workers)
        while waiting:
            now = time.monotonic()
            if now - begin > limit_s:
                raise RuntimeError(f"{len(waiting)} of {len(self.workers)} workers are not in after {limit_s} s")
            while self.to_connect and self.to_connect[0][0] <= now:
                self.connect(heapq.heappop(self.to_connect)[2], port)
            for key, _ in self.selector.select(0.01):
                worker = key.data
                try:
                    self.advance(worker)
                except (OSError, ssl.SSLError):
                    waiting.add(worker)
                    self.try_again(worker)
                if worker.is_in:
                    waiting.discard(worker)
        return time.monotonic() - begin

    def connect(self, worker, port):
        self.num_attempts += 1
        plain = socket.socket()
        plain.setblocking(False)
        plain.bind((worker.address, 0))
        try:
            plain.connect(("127.0.0.1", port))
        except BlockingIOError:
            pass
        except OSError:
            plain.close()
            return self.try_again(worker)
        worker.line = plain
        self.selector.register(plain, selectors.EVENT_WRITE, worker)

    def advance(self, worker):
        if not isinstance(worker.line, ssl.SSLSocket):
            error = worker.line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            self.selector.unregister(worker.line)
            worker.line = self.context.wrap_socket(worker.line, do_handshake_on_connect=False)
            self.selector.register(worker.line, selectors.EVENT_READ, worker)
        try:
            if not worker.is_secret:
                worker.line.do_handshake()
                worker.is_secret = True
                worker.line.send(register([worker.node_id], worker.host, token=worker.token))
            while data := worker.line.recv(65536):
                found, worker.rest = take_frames(worker.rest + data)
                for name, _, body in found:
                    if name == "Welcome":
                        worker.token = struct.unpack("<Q", body[:8])[0]
                        worker.is_in = True
                    elif name == "Refused":
                        raise RuntimeError(f"{worker.node_id} was refused: {first_text(body)}")
            raise ConnectionError("the scheduler has hung up")
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self.selector.modify(worker.line, selectors.EVENT_READ | selectors.EVENT_WRITE, worker)


MOST_LINES = 10_000


class Scheduler:
    """`tessera scheduler` in a process of its own, which is killed and started again with its state."""

    def __init__(self, tessera, folder, workers, certificates, *options, descriptors=None):
        """`descriptors`: how many it may have; None: as many as this process might."""
        self.descriptors = descriptors or resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self.command = [tessera, "scheduler", "--workers", str(workers), "--state", Path(folder) / "state", *map(str, options)]
        self.environment, self.port, self.process = os.environ | certificates.environment, 0, None
        self.start()

    def limit_descriptors(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors, self.descriptors))

    def start(self):
        self.process = subprocess.Popen([*self.command, "--port", str(self.port)], env=self.environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, preexec_fn=self.limit_descriptors)
        line = self.process.stdout.readline()
        found = re.search(r"listening at 127\.0\.0\.1:(\d+) for", line)
        if not found:
            raise RuntimeError(line + self.process.stdout.read())
        self.port = int(found[1])
        # A pipe that nobody reads is full after some minutes of strangers, and the scheduler would wait for room in it.
        self.lines = deque([line], MOST_LINES)
        self.reader = threading.Thread(target=self.lines.extend, args=(self.process.stdout,), daemon=True)
        self.reader.start()

    def kill(self):
        """What it has said, its last lines."""
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        return "".join(self.lines)

    def cpu_s(self):
        """What it has computed since it started, in seconds of a core."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.M)[1]) / 1024
