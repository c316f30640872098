"""Steps in an order of worth, each within its time: what a step finds is recorded before the next one begins."""

import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from proof.machine import Cut
from proof.record import Row

LEAST_S = 3  # with less time than this no step begins


@dataclass
class Step:
    """`do(machine, until)` returns rows, by `until` of time.monotonic()."""

    name: str
    seconds: float  # what it may take
    do: Callable


@dataclass
class Part:
    name: str
    about: str
    seconds: float  # what its steps may take together, while other parts wait
    steps: Callable[..., Iterable[Step]]
    ahead: Callable | None = None  # starts processes that it profits from, while other parts run; they end before it begins

    def line(self):
        return f"{self.name:<10}{self.seconds:>5.0f} s  {self.about}"


# Of a part's time, for which it waits for what runs ahead.
AHEAD_SHARE = 0.25


def run_step(machine, record, part, step, seconds, until):
    begin = time.monotonic()
    try:
        rows = step.do(machine, min(until, begin + seconds))
    except Cut as error:
        rows = [Row(step.name, "", "cut", detail=str(error))]
    except Exception as error:  # whatever it is: the other steps still have something to say
        with open(machine.log, "a") as file:
            file.write(traceback.format_exc() + "\n")
        rows = [Row(step.name, "", "failed", detail=(str(error) or type(error).__name__).splitlines()[0][:300])]
    record.add(part.name, f"{part.name}/{step.name}", rows, time.monotonic() - begin)


def run_parts(machine, record, parts, until, again=False):
    """Runs what is not found yet, until `until` of time.monotonic(). First each part has its own time; then what was cut has all that
    is left. Steps that never began are cut. With more time than the parts want together, each may take more."""
    scale = max(1, (until - time.monotonic()) / sum(part.seconds for part in parts))
    tried = set()
    ahead = {part.name: part.ahead(machine) for part in parts if part.ahead and has_more(machine, record, part, again)}
    for is_limited in (True, False):
        for part in parts:
            part_until = min(until, time.monotonic() + scale * part.seconds) if is_limited else until
            for child in ahead.pop(part.name, []):
                machine.wait_and_end(child, min(part_until, time.monotonic() + AHEAD_SHARE * part.seconds))
            for step in part.steps(machine):
                name = f"{part.name}/{step.name}"
                if record.is_done(name, again and name not in tried):
                    continue
                if not is_limited and scale * step.seconds <= LEAST_S + time_taken(record, name):
                    continue  # it has had all that it may take
                if part_until - time.monotonic() < LEAST_S:
                    if name not in record.steps:
                        record.add(part.name, name, [Row(step.name, "", "cut", detail="it did not begin")], 0)
                    continue
                tried.add(name)
                run_step(machine, record, part, step, scale * step.seconds, part_until)


def has_more(machine, record, part, again):
    return not all(record.is_done(f"{part.name}/{step.name}", again) for step in part.steps(machine))


def time_taken(record, name):
    rows = record.steps.get(name)
    return rows[0].seconds if rows else 0
