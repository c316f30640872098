"""Claims about the readers of a page that a benchmark has, and about how it counts: they ask as the page's script does, and what is not answered
well is not counted."""

import argparse
import multiprocessing
import re
import socket
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from claims import main

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import observing_readers_side as side  # noqa: E402
from page_readers import LIMIT_S, PAUSE_S, Answer, NoAnswer, Readers, ReadersProcess, look_on  # noqa: E402

STATE = b'{"version":1}'


def head_of(size, status=b"200 OK"):
    return b"HTTP/1.1 " + status + b"\r\nContent-Length: " + str(size).encode() + b"\r\nConnection: close\r\n\r\n"


class AnAnswer(unittest.TestCase):
    def test_is_whole_with_its_last_byte_however_it_is_cut(self):
        text = head_of(len(STATE)) + STATE
        for cut in range(1, len(text)):
            answer = Answer()
            self.assertFalse(answer.take(text[:cut]), cut)
            self.assertTrue(answer.take(text[cut:]), cut)
            self.assertEqual(answer.size, len(STATE))
        self.assertTrue(Answer().take(text))

    def test_that_is_not_good_is_refused(self):
        for text, why in ((head_of(0, b"403 Forbidden"), "403 Forbidden"), (head_of(0, b"503 Service Unavailable"), "503"),
                          (head_of(1) + b"ab", "longer than the 1 bytes"), (b"HTTP/1.1 200 OK\r\n\r\n", "does not say how long")):
            with self.assertRaisesRegex(NoAnswer, why):
                Answer().take(text)

    def test_that_ends_early_is_refused(self):
        for text, why in ((b"", "after 0 bytes of a head"), (b"HTTP/1.1 2", "after 10 bytes of a head"), (head_of(5) + b"ab", "after 2 of 5 bytes")):
            answer = Answer()
            if text:
                answer.take(text)
            with self.assertRaisesRegex(NoAnswer, why):
                answer.take(b"")


class Page(ThreadingHTTPServer):
    """A page that notes who asks for what, and when. It closes each connection, as a job's does."""

    def __init__(self, case):
        self.asked, self.token = [], "secret"

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802
                page = self.server
                page.asked.append((self.path, self.headers["Authorization"], time.monotonic()))
                is_known = f"token={page.token}" in self.path or self.headers["Authorization"] == f"Bearer {page.token}"
                body = STATE if is_known else b"403 Forbidden\n"
                self.wfile.write(head_of(len(body), b"200 OK" if is_known else b"403 Forbidden") + body)

            def log_message(self, *words):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/?token=secret"
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        case.addCleanup(thread.join)
        case.addCleanup(self.server_close)
        case.addCleanup(self.shutdown)

    def paths(self):
        return [path for path, _, _ in self.asked]


class SomeReaders(unittest.TestCase):
    def readers(self, url, count, **options):
        readers = Readers(url, count, **options)
        self.addCleanup(readers.close)
        return readers

    def look(self, readers, until):
        end = time.monotonic() + 30
        while not until():
            self.assertLess(time.monotonic(), end, "they do not see what they should")
            readers.look(1)

    def test_each_opens_the_page_once_and_then_asks_for_the_state(self):
        page = Page(self)
        readers = self.readers(page.url, 5, pause_s=0.01)
        self.look(readers, lambda: len(readers.times) >= 20)
        self.assertEqual(page.paths().count("/?token=secret"), 5)
        states = [known for path, known, _ in page.asked if path == "/state.json"]
        self.assertGreaterEqual(len(states), 20)
        self.assertEqual(set(states), {"Bearer secret"})
        self.assertEqual(len(page.paths()), 5 + len(states))

    def test_only_answers_with_a_state_are_counted(self):
        page = Page(self)
        readers = self.readers(page.url, 3, pause_s=0.01)
        self.look(readers, lambda: len(readers.times) >= 6)
        figures = readers.figures()
        self.assertEqual(figures["bytes"], len(STATE) * len(figures["times"]))
        self.assertTrue(all(0 < taken < 30 for taken in figures["times"]))
        self.assertGreater(figures["seconds"], 0)
        readers.begin_count()
        self.assertEqual((readers.figures()["times"], readers.figures()["bytes"]), ([], 0))

    def test_one_pauses_between_an_answer_and_the_next_question(self):
        page = Page(self)
        readers = self.readers(page.url, 1, pause_s=0.1)
        self.look(readers, lambda: len(readers.times) >= 3)
        times = [when for path, _, when in page.asked if path == "/state.json"]
        for earlier, later in zip(times, times[1:]):
            self.assertGreaterEqual(later - earlier, 0.1)

    def test_who_is_refused_says_so(self):
        page = Page(self)
        readers = self.readers(page.url.replace("secret", "wrong"), 1)
        with self.assertRaisesRegex(NoAnswer, "403 Forbidden"):
            self.look(readers, lambda: False)

    def test_who_hears_nothing_gives_up(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            readers = self.readers(f"http://127.0.0.1:{silent.getsockname()[1]}/?token=a", 2, limit_s=0.05)
            with self.assertRaisesRegex(NoAnswer, "no answer within 0.05 s"):
                self.look(readers, lambda: False)

    def await_questions(self, page, count):
        end = time.monotonic() + 30
        while page.paths().count("/state.json") < count:
            self.assertLess(time.monotonic(), end, "they ask too seldom")
            time.sleep(0.005)

    def test_they_count_from_when_they_are_told_until_they_end(self):
        page = Page(self)
        pipe, theirs = multiprocessing.Pipe()
        looks = threading.Thread(target=look_on, args=(page.url, 4, theirs, 0.01))
        looks.start()
        self.await_questions(page, 8)
        pipe.send("count")
        self.await_questions(page, page.paths().count("/state.json") + 16)
        pipe.send("end")
        self.assertTrue(pipe.poll(30))
        figures = pipe.recv()
        looks.join()
        # At most four questions, one of each reader, have no answer yet: of the first eight four have had one before the count began.
        self.assertGreater(len(figures["times"]), 0)
        self.assertLessEqual(len(figures["times"]), page.paths().count("/state.json") - 4)

    def test_what_one_has_met_is_told_by_all(self):
        page = Page(self)
        pipe, theirs = multiprocessing.Pipe()
        looks = threading.Thread(target=look_on, args=(page.url.replace("secret", "wrong"), 2, theirs))
        looks.start()
        self.assertTrue(pipe.poll(30))
        self.assertEqual(pipe.recv(), {"failed": "HTTP/1.1 403 Forbidden"})
        looks.join()

    def test_they_have_a_process_of_their_own(self):
        page = Page(self)
        readers = ReadersProcess(page.url, 2)
        self.await_questions(page, 1)
        readers.count()
        self.assertEqual(set(readers.end()), {"times", "bytes", "seconds", "cpu_s"})
        refused = ReadersProcess(page.url.replace("secret", "wrong"), 2)
        refused.process.join()
        refused.count()
        with self.assertRaisesRegex(NoAnswer, "a reader of the page was not answered: HTTP/1.1 403 Forbidden"):
            refused.end()

    def test_they_ask_as_the_pages_script_does(self):
        script = (ROOT / "tessera/tools/dashboard/job_page.js").read_text()
        self.assertEqual(re.findall(r'fetch\("([^"]+)"', script), ["state.json"])
        self.assertIn("headers: { Authorization: `Bearer ${token}` }", script)
        self.assertEqual(float(re.search(r"while \(await ask\(\)\).*setTimeout\(done, (\d+)\)", script)[1]), 1000 * PAUSE_S)
        self.assertEqual(float(re.search(r"setTimeout\(\(\) => ends\.abort\(\), (\d+)\)", script)[1]), 1000 * LIMIT_S)


class TheSide(unittest.TestCase):
    def test_counts_by_the_last_whole_line_with_a_loss(self):
        self.assertIsNone(side.newest_step(b""))
        self.assertIsNone(side.newest_step(b"the loss is not there yet\nloss 1 0x1.2p+1"))
        self.assertEqual(side.newest_step(b"s 8 0x1p+0\nloss 9 0x1.2p+1\nrank 1: something else\n"), 9)
        self.assertEqual(side.newest_step(b"loss 9 0x1.2p+1\nloss 10 0x1.3p-2\nloss 11 0x1"), 10)

    def test_finds_the_page_where_the_launcher_says_it(self):
        said = b"a warning\ntessera run: dashboard: http://127.0.0.1:4000/?token=6f1c\nloss 1 0x1p+0\n"
        self.assertEqual(side.address_in(said), "http://127.0.0.1:4000/?token=6f1c")
        self.assertIsNone(side.address_in(said[:40]), "half a line is not yet an address")

    def test_says_what_the_readers_and_the_launcher_take(self):
        figures = {"times": [0.002] * 99 + [0.5], "bytes": 100 * 2048, "seconds": 2.0, "cpu_s": 0.03}
        self.assertEqual(side.said_of(0.02, figures, 2.0), "50 answers a second of 2 KiB, 99 % within 500 ms; the launcher takes 1.0 % of a core, "
                                                           "the readers themselves 1.5 %")
        self.assertEqual(side.said_of(0.02, None, 4.0), "the launcher takes 0.5 % of a core")

    def test_refuses_readers_that_hardly_looked(self):
        figures = {"times": [0.001] * 300, "seconds": 6.0}
        side.check_looked(figures, 100)
        with self.assertRaisesRegex(RuntimeError, "have had 299 answers in 6.0 s, less than 300"):
            side.check_looked({**figures, "times": [0.001] * 299}, 100)

    def test_has_no_more_readers_than_a_page_serves(self):
        header = (ROOT / "tessera/cluster/dashboard/dashboard_server.h").read_text()
        self.assertEqual(side.MOST_READERS, int(re.search(r"kMostConnections = (\d+);", header)[1]))


# Stands for `tessera run`: says a step all the time, and shows it where it is to have a page.
LAUNCHER = """#!{python}
import http.server, json, sys, threading, time
step, ranks = 0, {ranks}

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({{"num_ranks": ranks, "step": step}}).encode()
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)

    def log_message(self, *words):
        pass

if "--dashboard" in sys.argv:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print("tessera run: dashboard: http://127.0.0.1:%d/?token=a" % server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
while step < {steps}:
    print("loss %d 0x1p+0" % (step + 1), flush=True)
    step += 1
    time.sleep(0.005)
sys.exit("out of data")
"""


class AudienceOnPaper:
    """Stands for a process of readers, each of which has one answer a second, however slow this machine is."""

    def __init__(self, url, count):
        self.url, self.num_readers, self.is_counting = url, count, False

    def count(self):
        self.is_counting = True

    def end(self):
        with urllib.request.urlopen(self.url, timeout=30) as answer:
            size = len(answer.read())
        return {"times": [0.003] * self.num_readers * self.is_counting, "bytes": size * self.num_readers, "seconds": 1.0, "cpu_s": 0.02}

    def kill(self):
        pass


class SeenJob(side.Job):
    """Whoever looks at it sees two more steps than before, however slow this machine is."""
    seen = 0

    def step(self):
        end = time.monotonic() + 60
        while (step := super().step()) < self.seen + 2:
            if time.monotonic() > end:
                raise RuntimeError(f"no step after {step}")
            time.sleep(0.005)
        self.seen = step
        return step


class ARound(unittest.TestCase):
    def run_round(self, readers, ranks=side.RANKS, steps=10**9):
        of_test = {"WARM_S": 0.01, "COUNTED_S": 0.1, "ReadersProcess": AudienceOnPaper, "Job": SeenJob}
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.multiple(side, **of_test):
            launcher = Path(folder) / "tessera"
            launcher.write_text(LAUNCHER.format(python=sys.executable, ranks=ranks, steps=steps))
            launcher.chmod(0o755)
            return side.round_of(argparse.Namespace(bin=Path(folder), readers=readers), Path(folder), Path(folder) / "said")

    def test_counts_the_steps_of_a_job_of_its_own(self):
        value, about = self.run_round(None)
        self.assertGreater(value, 0)
        self.assertRegex(about, r"^the launcher takes [\d.]+ % of a core$")

    def test_has_as_many_readers_as_it_is_told(self):
        value, about = self.run_round(6)
        self.assertGreater(value, 0)
        self.assertRegex(about, r"^6 answers a second of 0 KiB, 99 % within 3 ms; the launcher takes [\d.]+ % of a core, the readers themselves 2.0 %$")

    def test_fails_where_the_page_shows_something_else(self):
        with self.assertRaisesRegex(RuntimeError, "of 3 ranks; 4 have made those from"):
            self.run_round(0, ranks=3)

    def test_fails_where_the_job_ends_before_its_first_step(self):
        with self.assertRaisesRegex(RuntimeError, "has ended with exit code 1: (.|\\n)*out of data"):
            self.run_round(0, steps=0)


if __name__ == "__main__":
    main()
