"""What a proof has found: a line of JSON for each row, written at once, and a table of the same rows for people."""

import json
import time
from dataclasses import asdict, dataclass

# met, missed: the goal; told: a figure without a goal; failed: it did not work; cut: its time was over; skipped: it cannot be done here.
VERDICTS = ("met", "told", "missed", "failed", "cut", "skipped")


@dataclass
class Row:
    point: str  # what was looked at
    figure: str  # what was found, with its unit
    verdict: str
    goal: str = ""
    detail: str = ""
    part: str = ""
    step: str = ""
    seconds: float = 0  # of the whole step
    at: float = 0  # of the system's clock, when the step was over

    def line(self):
        return f"{self.part:<10} {self.point:<68} {self.figure:>20}  {self.goal:<19} {self.verdict:<8} {self.detail}".rstrip()


def judged(point, figure, is_good, goal, detail=""):
    """A row with a goal."""
    return Row(point, figure, "met" if is_good else "missed", goal, detail)


class Record:
    """The rows in a folder: results.jsonl, each as soon as it is known, and table.txt. Those of an earlier run in it, and those of
    the files `earlier`, count as found; what a step says anew replaces what it has said before."""

    def __init__(self, folder, earlier=()):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "results.jsonl"
        self.steps = {}  # name: rows
        for path in earlier:
            if path.resolve() != self.path.resolve():
                for rows in read_steps(path).values():
                    self.keep(rows)
        self.steps |= read_steps(self.path)
        end_last_line(self.path)

    def is_done(self, step, again=False):
        """Whether nothing is left to find out: the step was not cut. `again`: nor has it failed, nor missed a goal."""
        rows = self.steps.get(step)
        unwanted = {"cut", "failed", "missed"} if again else {"cut"}
        return rows is not None and not any(row.verdict in unwanted for row in rows)

    def add(self, part, step, rows, seconds):
        now = time.time()  # not rounded: by it the rows of two runs of a step are told apart
        for row in rows:
            row.part, row.step, row.seconds, row.at = part, step, round(seconds, 1), now
        self.keep(rows)
        self.write_table()
        for row in rows:
            print(row.line(), flush=True)

    def keep(self, rows):
        with open(self.path, "a") as file:
            file.write("".join(json.dumps(asdict(row)) + "\n" for row in rows))
        self.steps[rows[0].step] = rows

    def rows(self):
        return [row for rows in self.steps.values() for row in rows]

    def counts(self):
        return {verdict: sum(row.verdict == verdict for row in self.rows()) for verdict in VERDICTS}

    def summary(self):
        return ", ".join(f"{count} {verdict}" for verdict, count in self.counts().items() if count)

    def write_table(self):
        head = Row("point", "figure", "verdict", "goal", part="part").line()
        (self.folder / "table.txt").write_text("\n".join([head, *(row.line() for row in self.rows()), self.summary()]) + "\n")


def end_last_line(path):
    """Takes away a last line that was cut off, so that the next one is whole."""
    if path.exists() and not (text := path.read_text()).endswith("\n"):
        path.write_text(text[:text.rfind("\n") + 1])


def read_steps(path):
    """The rows of each step, those of its latest run. A last line that was cut off is none."""
    steps = {}
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    lines = text.splitlines()
    for number, line in enumerate(lines):
        try:
            row = Row(**json.loads(line))
        except (ValueError, TypeError) as error:
            if number + 1 == len(lines) and not text.endswith("\n"):
                continue
            raise SystemExit(f"scripts/gpu_proof: {path}:{number + 1}: no row of a proof: {error}") from error
        known = steps.setdefault(row.step, [])
        if known and known[0].at != row.at:
            known.clear()
        known.append(row)
    return steps
