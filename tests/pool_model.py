"""A model of the thread pool's protocol, and all of its interleavings.

`Pool` has the caller and the workers as state machines whose steps are the pool's atomic operations, under the names
that they have in backends/llvm/pool.py.  `explore` looks at every state that any order of steps leads to; since orders
end anywhere, threads that are never scheduled again are among them.  What must hold in each of them:

- a unit is run once, by the thread that has taken it, with the task of its own job;
- the caller goes on only when all units of its job have been run;
- while units are left no worker sleeps that the caller should have woken;
- the caller can take a step if no worker is inside: it waits for nobody who has taken nothing;
- where no thread can take a step, the caller is through with all jobs.

Steps are sequentially consistent here.  docs/pool.md says which orderings make the pool's so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Word(NamedTuple):
    """The word that all threads change."""

    job: int = 0
    asleep: bool = False
    left: int = 0
    inside: int = 0


class Job(NamedTuple):
    """What the caller writes about a job, field by field."""

    task: int = 0
    units: int = 0
    helpers: int = 0


class Thread(NamedTuple):
    """Where a thread stands and what it has read; `entered` while it counts as inside, `parked` in the system."""

    at: str
    seen: Word = Word()
    read: Job = Job()
    entered: bool = False
    parked: bool = False
    number: int = 0


class State(NamedTuple):
    """All of the memory, and the threads, the last of which is the caller; `runs` counts by job and unit."""

    word: Word
    job: Job
    slots: tuple[bool, ...]
    threads: tuple[Thread, ...]
    runs: tuple[tuple[int, ...], ...]


class Broken(AssertionError):
    """The protocol does what it must not do."""


@dataclass(frozen=True)
class Pool:
    """`jobs` are pairs: the number of units, and of workers that may take part.  A `bug` is one of `BUGS`.

    With `turns` a worker may leave a job after any range, and come back.
    """

    jobs: tuple[tuple[int, int], ...]
    workers: int
    share: int = 1000
    turns: bool = True
    bug: str = ""

    def start(self) -> State:
        workers = tuple(Thread("look", number=n) for n in range(self.workers))
        runs = tuple((0,) * units for units, _ in self.jobs)
        return State(Word(), Job(), (False,) * self.workers, (*workers, Thread("begin")), runs)

    def steps(self, s: State) -> Iterator[State]:
        """The states after one step of any thread."""
        for number in range(self.workers):
            yield from self._worker(s, s.threads[number], number)
        yield from self._caller(s, s.threads[-1])

    # --- what both do -------------------------------------------------------------------------

    def _move(self, s: State, number: int, at: str, **changes: object) -> State:
        """The thread goes to `at`; what it has read is forgotten where nothing else is said."""
        old = s.threads[number]
        fresh = Thread(at, entered=old.entered, number=old.number)._replace(**changes)  # type: ignore[arg-type]
        threads = list(s.threads)
        threads[number] = fresh
        return s._replace(threads=tuple(threads))

    def _take(self, s: State, t: Thread, number: int, entering: int) -> State:
        """The compare-and-swap that takes units of the word that was seen."""
        if s.word != t.seen and self.bug != "a unit is taken without a comparison":
            return self._move(s, number, "look")
        if self.bug == "a unit is taken in two steps":
            return self._move(s, number, "store", seen=t.seen, read=t.read)
        return self._taken(s, t, number, entering)

    def _taken(self, s: State, t: Thread, number: int, entering: int) -> State:
        word = s.word if self.bug == "a unit is taken without a comparison" else t.seen
        if word.left == 0:
            raise Broken("a unit was taken of a job that has none")
        entering = 0 if self.bug == "a worker does not count as inside" else entering
        word = word._replace(left=word.left - self._count(t.seen.left), inside=word.inside + entering)
        return self._move(s._replace(word=word), number, "run", seen=t.seen, read=t.read, entered=t.number >= 0)

    def _count(self, left: int) -> int:
        return max(1, left // self.share)

    def _run(self, s: State, t: Thread, number: int) -> State:
        """Run the units that were taken, as the job that was read says."""
        first = t.read.units - t.seen.left
        current = s.word.job if self.bug != "jobs have no number" else s.job.task
        if t.read.task != current:
            raise Broken(f"a unit of job {t.read.task} was run in job {current}")
        runs = [list(row) for row in s.runs]
        for unit in range(first, first + self._count(t.seen.left)):
            if not 0 <= unit < len(runs[t.read.task - 1]) or runs[t.read.task - 1][unit]:
                raise Broken(f"unit {unit} of job {t.read.task} is not one, or was run before")
            runs[t.read.task - 1][unit] = 1
        return self._move(s._replace(runs=tuple(map(tuple, runs))), number, "look")

    # --- a worker -----------------------------------------------------------------------------

    def _worker(self, s: State, t: Thread, n: int) -> Iterator[State]:
        at, word = t.at, s.word
        if at == "look":
            closed = "leave" if t.entered else "idle"
            yield self._move(s, n, "invited", seen=word) if word.left else self._move(s, n, closed)
        elif at == "invited":
            closed = "leave" if t.entered else "idle"
            yield self._move(s, n, "task", seen=t.seen) if n < s.job.helpers else self._move(s, n, closed)
        elif at == "task":
            yield self._move(s, n, "units", seen=t.seen, read=Job(task=s.job.task))
        elif at == "units":
            yield self._move(s, n, "take", seen=t.seen, read=t.read._replace(units=s.job.units))
        elif at == "take":
            yield self._take(s, t, n, 0 if t.entered else 1)
        elif at == "store":
            yield self._taken(s, t, n, 0 if t.entered else 1)
        elif at == "run":
            yield self._run(s, t, n)
            if self.turns:
                yield self._move(self._run(s, t, n), n, "leave")
        elif at == "leave":
            uncounted = self.bug == "a worker does not count as inside"
            left = s._replace(word=word._replace(inside=word.inside - (0 if uncounted else 1)))
            last = word.asleep and word.inside == 1 and self.bug != "nobody wakes the caller"
            yield self._move(left, n, "ring" if last else "idle", entered=False)
        elif at == "ring":
            yield self._unpark(self._move(s, n, "idle"), -1)
        else:
            yield from self._idle(s, t, n)

    def _idle(self, s: State, t: Thread, n: int) -> Iterator[State]:
        """A worker without a job: it looks for one until it lies down."""
        at = t.at
        if at == "idle":
            if s.word.left:
                yield self._move(s, n, "look")
            yield self._move(s, n, "mark")
        elif at == "mark":
            marked = s._replace(slots=_with(s.slots, n, True))
            yield self._move(marked, n, "check" if self.bug == "a worker sleeps without a second look" else "again")
        elif at == "again":
            yield self._move(s, n, "again invited" if s.word.left else "check")
        elif at == "again invited":
            yield self._move(s, n, "unmark" if n < s.job.helpers else "check")
        elif at == "unmark":
            yield self._move(s._replace(slots=_with(s.slots, n, False)), n, "look")
        elif at == "check":
            yield self._move(s, n, "sleep" if s.slots[n] else "look")
        elif at == "sleep":
            yield self._move(s, n, "parked", parked=True) if s.slots[n] else self._move(s, n, "check")
        elif at == "parked" and not t.parked:
            yield self._move(s, n, "check")

    def _unpark(self, s: State, number: int) -> State:
        """What the system does with the thread that is woken, if it sleeps."""
        threads = list(s.threads)
        threads[number] = threads[number]._replace(parked=False)
        return s._replace(threads=tuple(threads))

    # --- the caller ---------------------------------------------------------------------------

    def _caller(self, s: State, t: Thread) -> Iterator[State]:
        at, word = t.at, s.word
        early = self.bug == "a job is published before it is described"
        if at == "begin":
            yield self._move(s, -1, "publish" if early else "write task")
        elif at == "write task":
            yield self._move(s._replace(job=s.job._replace(task=s.job.task + 1)), -1, "write units")
        elif at == "write units":
            units = self.jobs[s.job.task - 1][0]
            yield self._move(s._replace(job=s.job._replace(units=units)), -1, "write helpers")
        elif at == "write helpers":
            helpers = self.jobs[s.job.task - 1][1]
            described = s._replace(job=s.job._replace(helpers=helpers))
            yield self._wake(described, 0) if early else self._move(described, -1, "publish")
        elif at == "publish":
            number = s.job.task + 1 if early else s.job.task
            units = self.jobs[number - 1][0]
            published = s._replace(word=Word(0 if self.bug == "jobs have no number" else number, left=units))
            yield self._move(published, -1, "write task") if early else self._wake(published, 0)
        elif at == "look slot":
            n = t.seen.job
            yield self._move(s, -1, "claim slot", seen=t.seen) if s.slots[n] else self._wake(s, n + 1)
        elif at == "claim slot":
            n = t.seen.job
            claimed = s._replace(slots=_with(s.slots, n, False))
            yield self._move(claimed, -1, "wake", seen=t.seen) if s.slots[n] else self._wake(s, n + 1)
        elif at == "wake":
            n = t.seen.job
            yield self._wake(s if self.bug == "nobody wakes the workers" else self._unpark(s, n), n + 1)
        elif at == "look":
            mine = {"seen": word, "read": s.job}
            yield self._move(s, -1, "take", **mine) if word.left else self._move(s, -1, "join")
        elif at == "take":
            yield self._take(s, t._replace(number=-1), -1, 0)._replace()
        elif at == "store":
            yield self._taken(s, t._replace(number=-1), -1, 0)
        elif at == "run":
            yield self._run(s, t, -1)
        else:
            yield from self._join(s, t)

    def _wake(self, s: State, n: int) -> State:
        """Go on with the slot of worker `n`, or with the work; the register of the loop is kept as a job's number."""
        return self._move(s, -1, "look slot", seen=Word(n)) if n < s.job.helpers else self._move(s, -1, "look")

    def _join(self, s: State, t: Thread) -> Iterator[State]:
        at, word = t.at, s.word
        if at == "join":
            if word.inside == 0 or self.bug == "the caller does not join":
                yield self._through(s)
            else:
                yield self._move(s, -1, "lie down")
        elif at == "lie down":
            yield self._move(s._replace(word=word._replace(asleep=True)), -1, "check")
        elif at == "check":
            yield self._through(s) if word.inside == 0 else self._move(s, -1, "sleep", seen=word)
        elif at == "sleep":
            same = word == t.seen or self.bug == "the caller sleeps without a comparison"
            yield self._move(s, -1, "parked", parked=True) if same else self._move(s, -1, "check")
        elif at == "parked" and not t.parked:
            yield self._move(s, -1, "check")

    def _through(self, s: State) -> State:
        if not all(s.runs[s.job.task - 1]):
            raise Broken(f"the caller went on, and of job {s.job.task} not all units were run")
        return self._move(s, -1, "begin" if s.job.task < len(self.jobs) else "end")


BUGS = (
    "a unit is taken without a comparison",
    "a unit is taken in two steps",
    "a worker does not count as inside",
    "jobs have no number",
    "a worker sleeps without a second look",
    "nobody wakes the caller",
    "nobody wakes the workers",
    "a job is published before it is described",
    "the caller does not join",
    "the caller sleeps without a comparison",
)


def explore(pool: Pool) -> int:
    """The number of states that can be reached.  Raises Broken if one is not as it must be."""
    start = pool.start()
    known, todo = {start}, [start]
    while todo:
        state = todo.pop()
        after = list(pool.steps(state))
        _check(pool, state, bool(after))
        for one in after:
            if one not in known:
                known.add(one)
                todo.append(one)
    return len(known)


def _check(pool: Pool, state: State, moves: bool) -> None:
    caller, workers = state.threads[-1], state.threads[:-1]
    if not moves and caller.at != "end":
        raise Broken(f"all threads wait for each other: {state}")
    holding = any(t.entered or t.at == "ring" for t in workers)
    if not holding and caller.at != "end" and not any(True for _ in pool._caller(state, caller)):
        raise Broken(f"the caller waits for workers that have taken nothing: {state}")
    if state.word.left and caller.at in ("look", "take", "run"):
        asleep = [t for t in workers[: state.job.helpers] if t.parked]
        if asleep:
            raise Broken(f"a worker that should help sleeps: {state}")


def _with(values: tuple[bool, ...], place: int, value: bool) -> tuple[bool, ...]:
    return (*values[:place], value, *values[place + 1 :])
