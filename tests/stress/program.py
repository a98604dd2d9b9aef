"""What the stress runs: threads, forks, starts and stops, all at random.

`python program.py FOLDER SEED SECONDS`. Each session writes `FOLDER/<round>.jsonl`, its children beside it.
What a process made in a session, as far as it can know, is in `FOLDER/<round>.<pid>.made.json`. In exact
rounds all threads work between start and stop; in loose ones they work across them, and only children of a
fork know what they made.
"""

import contextlib
import faulthandler
import gc
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

import instrument
from instrument import plugins, sessions
from instrument.recorder import _core
from instrument_exporters.json import JsonExporter

PATIENCE = float(os.environ.get("PATIENCE", "60"))  # seconds until a process shows where it hangs, and fails
FORKS = multiprocessing.get_context("fork")
MAIN = threading.get_ident()  # in a child of a thread, that thread is the main one, but ends otherwise


class Tell(JsonExporter):
    """Shows the errors that the session only counts."""

    def export(self, batch, /):
        try:
            super().export(batch)
        except BaseException:
            traceback.print_exc()
            raise


plugins.OWN_EXPORTERS["json"] = f"{__name__}:Tell"


class Oops(Exception):
    pass


@instrument.kernel(flops=lambda x: x, bytes=lambda x: {"fp16": x}, attrs=lambda x: {"x": x})
def measured(x):
    return x


@instrument.kernel
def failing(x):
    raise Oops(x)


@instrument.kernel
def nested(work, depth):
    work.one(depth + 1)


@instrument.kernel(flops=lambda x: 1 / 0)
def badly_measured(*, x):
    return x


@instrument.region("decorated", fixed=1.5)
def decorated(work, depth):
    work.one(depth + 1)


SHARED = instrument.region("shared")


class Work:
    """One thread's doings, at random, and how many of each it made."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.made = Counter()
        self.forms = [
            *(self.shared, self.attributes, self.kernel, self.kernel, self.kernels_inside, self.decorated),
            *(self.step, self.marks, self.metrics, self.raises, self.raises, self.generator, self.many_names),
            *(self.late, self.odd, self.by_hand),
        ]

    def run(self, times):
        for _ in range(times):
            with contextlib.suppress(Oops):
                self.one(0)

    def one(self, depth):
        self.random.choice(self.forms)(depth)

    def inside(self, depth):
        if depth < 12 and self.random.random() < 0.6:
            self.one(depth + 1)

    def shared(self, depth):
        self.made["spans"] += 1
        with SHARED:
            self.inside(depth)

    def attributes(self, depth):
        size = self.random.choice((0, 1, 40, 900, 5000))
        self.made["spans"] += 1
        with instrument.region("attributes", text="é" * size, number=size, items=[1, "x" * size], none=None):
            self.inside(depth)

    def kernel(self, depth):
        self.made["spans"] += 2
        measured(self.random.random())
        badly_measured(x=1)

    def kernels_inside(self, depth):
        self.made["spans"] += 1
        nested(self, depth) if depth < 12 else measured(1)

    def decorated(self, depth):
        self.made["spans"] += 1
        decorated(self, depth) if depth < 12 else measured(1)

    def step(self, depth):
        self.made["spans"] += 1
        with instrument.step(self.random.choice((None, 0, -5, 2**40)), kind=depth):
            self.inside(depth)

    def marks(self, depth):
        self.made["marks"] += 2
        instrument.mark("mark")
        instrument.mark("mark with", depth=depth, text="t" * self.random.randrange(300))

    def metrics(self, depth):
        self.made["counted"] += 3
        instrument.count("counted", 3, where=depth % 3)
        instrument.gauge("gauge", self.random.choice((1.5, float("nan"), float("inf"))))
        instrument.observe("observed", depth)

    def raises(self, depth):
        self.made["spans"] += 1
        with instrument.region("raises"):
            self.inside(depth)
            if self.random.random() < 0.5:
                self.made["spans"] += 1
                failing(depth)
            raise Oops

    def generator(self, depth):
        def items():
            self.made["spans"] += 1
            with instrument.region("generator"):
                yield 1
                self.inside(depth)
                yield 2

        for item in items():
            self.made["spans"] += 1
            with instrument.region("consumer", item=item):
                pass
            if self.random.random() < 0.3:
                break

    def many_names(self, depth):
        self.made["spans"] += 1
        with instrument.region(f"name {self.random.randrange(300)}"):
            self.inside(depth)

    def late(self, depth):
        self.made["spans"] += 1
        with instrument.region("late") as region:
            region.set(a=self.random.random(), b="late")
            self.inside(depth)
            instrument.annotate(depth=depth, big="x" * self.random.choice((0, 3, 20_000)))

    def odd(self, depth):
        self.made["spans"] += 1
        instrument.region("never entered", a=depth)
        instrument.region("never entered").__exit__(None, None, None)
        with instrument.region(
            "odd", value=object(), **{f"key {self.random.randrange(50)}": 2**70}
        ) as region:
            region.set()

    def by_hand(self, depth):
        self.made["spans"] += 1
        region = instrument.region("by hand", depth=depth)
        region.__enter__()
        if self.random.random() < 0.1:
            gc.collect()
        region.__exit__(None, None, None)


def end_within(seconds):
    """Else show where every thread is, and die. faulthandler's own watchdog hangs in a fork's child."""
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def made_by(works):
    return sum((work.made for work in works), Counter())


def wait_for(*pids):
    deadline = time.monotonic() + PATIENCE
    for pid in pids:
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            assert time.monotonic() < deadline, f"child {pid} does not end"
            time.sleep(0.002)
        assert os.waitstatus_to_exitcode(ended[1]) == 0, ended


class Program:
    def __init__(self, folder, seed):
        self.folder = folder
        self.random = random.Random(seed)
        self.round = 0

    def seed(self):
        return self.random.getrandbits(32)

    def start(self):
        chunk = self.random.choice((1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16))
        sessions._chunk_bytes = lambda _: chunk
        self.round += 1
        instrument.start(
            export=f"json:{self.folder}/{self.round}.jsonl" + self.random.choice(("", "", ".gz")),
            buffer_mib=self.random.choice((2, 2, 3, 64)),
            overflow=self.random.choice(("newest", "oldest")),
            interval=self.random.choice((0.005, 0.02, 0.5)),
        )

    def note(self, made, **more):
        name = f"{self.round}.{os.getpid()}.made.json"
        (self.folder / name).write_text(json.dumps({**made, **more}))

    def stop(self, made=None):
        summary = instrument.stop(timeout=PATIENCE)
        assert summary.delivered, str(summary)
        if made is not None:
            self.note(made)

    # ---- children

    def in_child(self, seed, times=60):
        """In a fork's child: work, maybe in threads and with a child of its own, and note what was made."""
        end_within(PATIENCE * 0.7)
        recorded = _core.active()  # a fork may come while another thread starts or stops the session
        works = [Work(seed + number) for number in range(1 + seed % 3)]
        threads = [threading.Thread(target=work.run, args=(times,)) for work in works[1:]]
        for thread in threads:
            thread.start()
        works[0].run(times)
        if seed % 5 == 0:
            wait_for(self.fork(seed // 7))
        for thread in threads:
            thread.join()
        if recorded:
            self.note(made_by(works), seed=seed, main=threading.get_ident() == MAIN)

    def fork(self, seed):
        """A child by os.fork, from whatever thread calls; it ends in one of the ways that deliver."""
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            self.in_child(seed)
            if seed % 3 == 0 and threading.get_ident() == MAIN:
                sys.exit(0)  # unwinds what the parent had open, and runs atexit
            if seed % 2 == 0:
                assert instrument.flush(PATIENCE)
            assert instrument.stop(PATIENCE).delivered
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            if not isinstance(sys.exception(), SystemExit):
                os._exit(status)

    def children(self):
        """Some children, from inside open regions; how many spans that took, and who is to be waited for."""
        pids = []
        times = self.random.randrange(4)
        for _ in range(times):
            with instrument.region("parent of a fork", a=1), instrument.step():
                pid = self.fork(self.seed())
                if self.random.random() < 0.5:
                    wait_for(pid)
                else:
                    pids.append(pid)
        if self.random.random() < 0.3:
            process = FORKS.Process(target=self.in_child, args=(self.seed(),))
            process.start()
            process.join(PATIENCE)
            assert process.exitcode == 0, process.exitcode
        return Counter(spans=2 * times), pids

    # ---- rounds

    def exact(self):
        self.start()
        works = [Work(self.seed()) for _ in range(self.random.randrange(1, 6))]
        threads = [threading.Thread(target=work.run, args=(self.random.randrange(300),)) for work in works]
        for thread in threads:
            thread.start()
        works.append(Work(self.seed()))
        works[-1].run(self.random.randrange(100))
        if self.random.random() < 0.3:
            assert instrument.flush(PATIENCE)
        forks, pids = self.children()
        for thread in threads:
            thread.join()
        wait_for(*pids)
        self.stop(made_by(works) + forks)

    def loose(self):
        going = threading.Event()
        going.set()

        def forever(work):
            while going.is_set():
                work.run(5)

        def short_lived(seed):
            made = random.Random(seed)
            while going.is_set():
                thread = threading.Thread(target=Work(made.random()).run, args=(3,))
                thread.start()
                thread.join()

        def forking(seed):
            made, pids = random.Random(seed), []
            while going.is_set():
                with instrument.region("forking thread"):
                    pids.append(self.fork(made.getrandbits(32)))
                time.sleep(0.02)
            wait_for(*pids)

        threads = [threading.Thread(target=forever, args=(Work(self.seed()),)) for _ in range(3)]
        threads.append(threading.Thread(target=short_lived, args=(self.seed(),)))
        if self.random.random() < 0.5:
            threads.append(threading.Thread(target=forking, args=(self.seed(),)))
        for thread in threads:
            thread.start()
        for _ in range(self.random.randrange(1, 6)):
            self.start()
            time.sleep(self.random.random() * 0.05)
            if self.random.random() < 0.3:
                assert instrument.flush(PATIENCE)
            self.stop()
        going.clear()
        for thread in threads:
            thread.join()


def in_thread_failed(what):
    """An exception in a thread is a failure of the program."""
    traceback.print_exception(what.exc_value)
    os._exit(4)


def main():
    threading.excepthook = in_thread_failed
    folder, seed, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    end_within(PATIENCE * 1.3 + seconds)
    program = Program(folder, seed)
    deadline = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < deadline:
        sys.setswitchinterval(program.random.choice((1e-6, 1e-5, 1e-3, 5e-3)))
        program.exact() if program.random.random() < 0.6 else program.loose()
        rounds += 1
    assert not _core.active()
    sys.stdout.write(f"{rounds} rounds, {program.round} sessions\n")


if __name__ == "__main__":
    main()
