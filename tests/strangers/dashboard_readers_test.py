"""Who looks at a running job, good readers and hostile ones: they see what is so, or nothing, and the job trains as if nobody did."""

import base64
import hashlib
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from attacked_jobs import BIN, eventually, family, free_port, listening_ports, main, read

TESSERA, JOB, RESNET = BIN / "tessera", BIN / "train_job", BIN / "resnet50_cifar10"
ENDLESS = 1_000_000  # epochs
SAFE = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}


def environment(**further):
    return {**{k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_"))}, **further}


def losses_in(output):
    return re.findall(r"loss (\d+) (\S+)", output), set(re.findall(r"crc ([0-9a-f]{8})", output))


class Watched:
    """A job with a dashboard, and its readers. `command`: behind `tessera`."""

    def __init__(self, case, *command, **further):
        self.out = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([str(word) for word in (TESSERA, *command)], stdout=self.out, stderr=subprocess.PIPE, text=True,
                                        env=environment(**further))
        case.addCleanup(self.end)
        self.said = []
        self._url = threading.Event()
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()
        if not self._url.wait(60):
            raise AssertionError("no dashboard: " + "".join(self.said))

    def _listen(self):
        for line in self.process.stderr:
            self.said.append(line)
            if "dashboard: http" in line:
                self.url = line.split("dashboard: ")[1].strip()
                parts = urlsplit(self.url)
                self.host, self.port, self.token = parts.hostname, parts.port, parse_qs(parts.query)["token"][0]
                self._url.set()

    def ranks(self):
        """Process ids by rank."""
        found = {}
        for pid in family(self.process.pid):
            rank = re.search(rb"(?:^|\0)TESSERA_RANK=(\d+)", read(f"/proc/{pid}/environ"))
            if rank and read(f"/proc/{pid}/cmdline").startswith(os.fsencode(JOB)):
                found[int(rank[1])] = pid
        return found

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self._reader.join(10)
        self.process.stderr.close()
        self.out.close()

    def wait(self, limit_s=300):
        """(exit code, standard output)."""
        code = self.process.wait(limit_s)
        self._reader.join(10)
        self.out.seek(0)
        return code, self.out.read()

    def ask(self, path="/state.json", method="GET", headers=None, token=None):
        """(status, headers, body)."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            given = self.token if token is None else token
            connection.request(method, path, headers={"Authorization": f"Bearer {given}", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def state(self):
        status, _, body = self.ask()
        if status != 200:
            raise AssertionError(f"{status}: {body}")
        return json.loads(body)

    def until(self, holds, what, limit_s=120):
        """The first state of which it holds."""
        def look():
            time.sleep(0.1)
            try:
                state = self.state()
            except (AssertionError, OSError, http.client.HTTPException):
                return None
            return state if holds(state) else None
        return eventually(look, what, limit_s)

    def raw(self, bytes_sent):
        """All that is heard up to the end."""
        with socket.create_connection((self.host, self.port), timeout=30) as connection:
            heard = b""
            try:
                connection.sendall(bytes_sent)
                while data := connection.recv(65536):
                    heard += data
            except OSError:
                pass
            return heard


class Readers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="tessera-dashboard."))
        # A thousand connections take as many descriptors, however few this user usually has.
        few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most if most < 4096 and most != resource.RLIM_INFINITY else max(few, 4096), most))
        cls.data = cls.folder / "cifar"
        made = subprocess.run([str(RESNET), "--make_data", str(cls.data), "--train_records", "320", "--test_records", "40"],
                              capture_output=True, text=True, timeout=120, env=environment())
        assert made.returncode == 0, made.stdout + made.stderr

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def setUp(self):
        self.over = self.folder / f"{self.id()}.over"

    def training(self):
        """It goes on until `over` is there, or the test is."""
        return [JOB, "--data_path", self.data, "--epochs", ENDLESS, "--slow_rank", 0, "--slow_ms", 20, "--stop_file", self.over]

    def watched(self, ranks=4):
        return Watched(self, "run", "-n", ranks, "--num_threads", 1, "--dashboard", 0, *self.training())

    def ends_well(self, job):
        """What it has printed."""
        self.over.touch()
        code, out = job.wait()
        self.assertEqual(code, 0, "".join(job.said))
        return out

    def test_a_hundred_readers_see_four_ranks_train_and_change_no_bit(self):
        job = self.watched()
        self.assertEqual(job.host, "127.0.0.1")
        states, failures = [[] for _ in range(100)], []
        ended = threading.Event()

        def look(mine):
            while not ended.is_set():
                try:
                    mine.append(job.state())
                except (OSError, http.client.HTTPException):
                    if job.process.poll() is None and not ended.is_set():
                        time.sleep(0.1)
                except Exception as error:  # told to the test
                    failures.append(error)
                time.sleep(0.5)

        readers = [threading.Thread(target=look, args=(mine,)) for mine in states]
        for reader in readers:
            reader.start()
        try:
            eventually(lambda: failures or all(len(mine) > 1 for mine in states), "each has looked twice", 300)
            out = self.ends_well(job)
        finally:
            ended.set()
        for reader in readers:
            reader.join(60)
        self.assertEqual(failures, [])
        last = max(int(step) for step, _ in losses_in(out)[0])
        plain = subprocess.run([str(word) for word in (TESSERA, "run", "-n", 4, "--num_threads", 1, JOB, "--data_path", self.data, "--epochs", ENDLESS,
                                                       "--stop_after", last)], capture_output=True, text=True, timeout=300, env=environment())
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertEqual(losses_in(out), losses_in(plain.stdout))
        for mine in states:
            steps = [state["step"] for state in mine]
            self.assertEqual(steps, sorted(steps))
        last = max((state for mine in states for state in mine), key=lambda state: state["step"])
        self.assertEqual(last["num_ranks"], 4)
        self.assertEqual(last["mode"], "data_parallel")
        self.assertEqual(len(last["losses"]), 4)

        def narrow(loss):  # the page writes a float with its shortest decimals
            return struct.unpack("f", struct.pack("f", loss))[0]

        losses = {(int(step), narrow(float.fromhex(loss))) for step, loss in losses_in(out)[0]}
        for curve in last["losses"]:
            self.assertTrue({(step, narrow(loss)) for step, loss in curve["points"]} <= losses, "a curve has losses that were not")

    def test_the_end_is_seen_by_who_looks(self):
        job = self.watched()
        seen = self.seen_until_the_end(job)
        job.until(lambda now: now["step"] > 0, "it trains")
        out = self.ends_well(job)
        last = max(int(step) for step, _ in losses_in(out)[0])
        state = seen()
        self.assertEqual(state["state"], "completed")
        self.assertEqual(state["step"], last)
        self.assertEqual({rank["state"] for rank in state["ranks"]}, {"ended"})

    def seen_until_the_end(self, job):
        """Begins to look; a function that waits for the job's end and gives what was seen last."""
        seen = []

        def look():
            while job.process.poll() is None:
                try:
                    seen.append(job.state())
                except (OSError, http.client.HTTPException, AssertionError):
                    pass
                time.sleep(0.1)

        reader = threading.Thread(target=look)
        reader.start()

        def last():
            reader.join(300)
            return seen[-1]

        return last

    def test_ranks_checkpoints_and_the_log_are_shown(self):
        folder = self.folder / "saved"
        job = Watched(self, "run", "-n", 2, "--num_threads", 1, "--dashboard", 0, *self.training(), "--checkpoint_dir", folder,
                      "--save_steps", 5)
        state = job.until(lambda now: now["checkpoints"] and now["step"] > 0 and now["log"], "a checkpoint is shown")
        self.assertRegex(state["checkpoints"][0]["path"], r"saved/job.*\.ckpt$")
        self.assertTrue(any(line["rank"] == 0 and line["text"].startswith("loss ") for line in state["log"]))
        self.assertTrue(all(rank["resident_bytes"] > 1 << 20 for rank in state["ranks"] if rank["step"] > 0))

    def test_a_rank_that_fails_is_named(self):
        job = self.watched(ranks=2)
        job.until(lambda now: now["step"] > 0, "it trains")
        seen = self.seen_until_the_end(job)
        os.kill(job.ranks()[1], signal.SIGKILL)
        self.assertEqual(job.wait()[0], 1)
        state = seen()
        self.assertEqual(state["state"], "failed")
        self.assertIn("SIGKILL", state["ranks"][1]["detail"])

    def test_a_rank_that_is_started_again_goes_on_being_shown(self):
        once = self.folder / "killed.once"
        job = Watched(self, "run", "-n", 2, "--num_threads", 1, "--max_restarts", 2, "--dashboard", 0, *self.training(), "--kill_rank", 1,
                      "--kill_step", 30, "--kill_once", once)
        state = job.until(lambda now: now["ranks"] and now["ranks"][1]["restarts"] == 1 and now["ranks"][1]["step"] > 30, "it trains on")
        self.assertEqual(state["state"], "running")

    def test_who_has_no_token_learns_nothing(self):
        job = self.watched()
        refusals = set()
        for path in ("/", "/state.json", "/metrics", "/nothing", "/?token=", f"/?token={job.token[:-1]}", f"/?token={job.token}0",
                     f"/?x={job.token}", f"/{job.token}"):
            status, headers, body = job.ask(path, token="wrong")
            self.assertEqual(status, 403, path)
            self.assertEqual(body, "403 Forbidden\n")
            refusals.add(json.dumps({name: value for name, value in headers.items() if name != "Date"}))
        self.assertEqual(len(refusals), 1, "the same to all")
        self.assertEqual(job.ask("/?token=" + job.token, token="wrong")[0], 200)
        self.assertEqual(job.ask("/nothing")[0], 404)

    def test_nothing_can_be_written(self):
        job = self.watched()
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            self.assertEqual(job.ask("/state.json", method=method)[0], 405, method)
        self.assertTrue(job.raw(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nstop").startswith(b"HTTP/1.1 413 "))
        status, headers, body = job.ask(method="HEAD")
        self.assertEqual((status, body), (200, ""))
        self.assertGreater(int(headers["Content-Length"]), 100)

    def test_another_name_of_the_host_is_refused(self):
        job = self.watched()
        for host, status in (("localhost", 200), ("localhost:9", 200), ("127.0.0.1", 200), ("evil.example", 403), ("evil.example:80", 403),
                             ("127.0.0.1.evil.example", 403), ("[::1]", 403), ("", 403)):
            self.assertEqual(job.ask(headers={"Host": host})[0], status, host)

    def test_the_page_is_whole_and_asks_nobody_else(self):
        job = self.watched()
        status, headers, page = job.ask("/?token=" + job.token, token="")
        self.assertEqual(status, 200)
        for name, value in SAFE.items():
            self.assertEqual(headers[name], value)
        policy = headers["Content-Security-Policy"]
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        self.assertNotIn("Set-Cookie", headers)
        self.assertNotIn(job.token, page)
        addresses = set(re.findall(r"\b(?:https?|wss?)://[^\s\"'<>)]*", page))
        self.assertEqual(addresses, {"http://www.w3.org/2000/svg"}, "only the name of SVG, which nobody asks for")
        self.assertFalse(re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", page))
        self.assertFalse(re.findall(r"<[^>]*\son\w+=", page), "handlers in the page's text, which its policy forbids")
        self.assertFalse(re.findall(r"<[^>]*\sstyle=", page))
        script = re.search(r"<script>(.*)</script>", page, re.S)[1]
        self.assertIn(f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'", policy)

    def test_metrics_are_open_metrics(self):
        job = self.watched()
        job.until(lambda now: now["step"] > 1, "it trains")
        status, headers, text = job.ask("/metrics")
        self.assertEqual(status, 200)
        self.assertTrue(headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0"))
        self.assertTrue(text.endswith("# EOF\n"))
        families = {}
        for line in text.splitlines()[:-1]:
            if line.startswith("# TYPE "):
                families[line.split()[2]] = line.split()[3]
            elif not line.startswith("# "):
                sample = re.fullmatch(r'(\w+)(?:\{(?:\w+="(?:[^"\\\n]|\\["\\n])*",?)+\})? (\S+)', line)
                self.assertTrue(sample, line)
                float(sample[2])
                self.assertTrue(any(sample[1] == name or sample[1] == name + "_info" for name in families), line)
        self.assertIn("tessera_loss", families)
        self.assertRegex(text, r'tessera_step\{rank="3"\} \d')

    def test_half_requests_and_big_heads_cost_only_their_connections(self):
        job = self.watched()
        half = [socket.create_connection((job.host, job.port), timeout=30) for _ in range(50)]
        for connection in half:
            connection.sendall(b"GET /state.json HTTP/1.1\r\nHost: local")
        big = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"
        self.assertIn(job.raw(big)[:13], (b"HTTP/1.1 431 ", b""))
        self.assertTrue(job.raw(b"\x00" * 100 + b"\r\n\r\n").startswith(b"HTTP/1.1 400 "))
        job.state()
        began = time.monotonic()
        for connection in half:
            with connection:
                heard = connection.recv(4096)
                self.assertTrue(heard.startswith(b"HTTP/1.1 408 "), heard)
        self.assertLess(time.monotonic() - began, 30)

    def test_a_thousand_idle_connections_do_not_hold_up_the_job(self):
        job = self.watched()
        idle = []
        for _ in range(1000):
            try:
                connection = socket.create_connection((job.host, job.port), timeout=10)
                idle.append(connection)
            except OSError:
                break
        for connection in idle:
            self.addCleanup(connection.close)
        self.assertGreater(len(idle), 256)
        descriptors = len(os.listdir(f"/proc/{job.process.pid}/fd"))
        self.assertLess(descriptors, 256 + 150)
        job.until(lambda now: now["step"] > 0, "there is room again")
        self.ends_well(job)

    def test_slow_readers_do_not_hold_up_the_job(self):
        job = self.watched()
        slow = []
        for _ in range(100):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect((job.host, job.port))
            connection.sendall(f"GET /state.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {job.token}\r\n\r\n".encode())
            slow.append(connection)
            self.addCleanup(connection.close)
        self.assertIsNotNone(job.state())
        self.ends_well(job)

    def test_it_listens_where_it_is_told_and_nowhere_without_the_option(self):
        job = self.watched()
        self.assertEqual(listening_ports(job.process.pid), {job.port: "127.0.0.1"})
        refused = subprocess.run([str(word) for word in (TESSERA, "run", "--dashboard", job.port, "true")], capture_output=True, text=True,
                                 timeout=30, env=environment())
        self.assertEqual(refused.returncode, 1)
        self.assertIn("give another port", refused.stderr)
        port = free_port()
        everywhere = Watched(self, "run", "-n", 1, "--dashboard", f"0.0.0.0:{port}", "sleep", 600)
        self.assertEqual(everywhere.port, port)
        eventually(lambda: any("neither is encrypted" in line for line in everywhere.said), "a warning")
        begun = self.folder / "begun"
        plain = subprocess.Popen([str(TESSERA), "run", "-n", "1", "sh", "-c", f"touch {begun}; exec sleep 600"], env=environment())
        self.addCleanup(plain.wait)
        self.addCleanup(plain.terminate)
        eventually(begun.exists, "the rank runs")
        self.assertEqual(listening_ports(plain.pid), {})

    def test_a_wrong_place_is_a_wrong_command_line(self):
        for place in ("a", ":1", "70000", "::1:80"):
            refused = subprocess.run([str(TESSERA), "run", "--dashboard", place, "true"], capture_output=True, text=True, timeout=30,
                                     env=environment())
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn("[ADDRESS:]PORT", refused.stderr)

    def test_a_program_that_trains_nothing_is_shown_by_its_log(self):
        job = Watched(self, "run", "-n", 2, "--dashboard", 0, "bash", "-c", "echo '<script>alert(1)</script>'; exec sleep 600")
        state = job.until(lambda now: len(now["log"]) == 2, "both have written")
        self.assertEqual({line["text"] for line in state["log"]}, {"<script>alert(1)</script>"})
        self.assertEqual({rank["state"] for rank in state["ranks"]}, {"starting"})
        self.assertEqual(state["step"], 0)

    def test_ranks_that_are_threads_are_shown(self):
        job = Watched(self, "run", "--threads", 3, "--num_threads", 1, "--dashboard", 0, *self.training())
        state = job.until(lambda now: len(now["losses"]) == 3, "all three tell their loss")
        self.assertEqual([rank["state"] in ("training", "waiting") for rank in state["ranks"]], [True] * 3)

    def test_a_schedulers_dashboard_shows_ranks_of_all_launchers(self):
        port = free_port()
        key = self.folder / "job.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(32))
        scheduler = Watched(self, "scheduler", "--workers", 4, "--port", port, "--dashboard", 0, TESSERA_SECRET_FILE=str(key))
        self.assertEqual(scheduler.state()["state"], "waiting")
        launchers = [subprocess.Popen([str(word) for word in (TESSERA, "run", "--join", f"127.0.0.1:{port}", "-n", 2, "--num_threads", 1,
                                                              *self.training())],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(TESSERA_SECRET_FILE=str(key)))
                     for _ in range(2)]
        for launcher in launchers:
            self.addCleanup(launcher.wait)
            self.addCleanup(launcher.terminate)
        state = scheduler.until(lambda now: sum(rank["loss"] is not None for rank in now["ranks"]) == 4, "all four tell their loss")
        self.assertEqual(state["mode"], "data_parallel")
        self.assertEqual([rank["state"] in ("training", "waiting") for rank in state["ranks"]], [True] * 4)
        self.over.touch()
        for launcher in launchers:
            self.assertEqual(launcher.wait(120), 0)
        self.assertEqual(scheduler.wait(60)[0], 0)


if __name__ == "__main__":
    main()
