#!/usr/bin/env python3
"""A person at a terminal: what they type into `strata repl` and what the screen shows.

usage: session.py STRATA MODELS TEST...
"""

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time

import program
from program import require

PATIENCE = 120  # seconds; far above what anything takes


def plain(text):
    """The text without what moves the cursor and rings the bell."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x07", "", text).replace("\r\n", "\n")


class Screen:
    """The program on a pseudo terminal of its own."""

    def __init__(self, strata, *arguments, columns=160):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(strata.folder)
            os.environ.update(TERM="xterm", HOME=strata.folder, XDG_STATE_HOME=strata.folder)
            os.execv(strata.binary, [strata.binary, *arguments])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self.raw = ""  # unread, as it came
        self.transcript = ""

    def read_until(self, text):
        """Everything up to `text`, as it stands on the screen."""
        end = time.monotonic() + PATIENCE
        while text not in plain(self.raw):
            ready = select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]
            try:
                got = os.read(self.fd, 65536).decode("utf8", "replace") if ready else ""
            except OSError:  # Linux's way to say that nobody writes any more
                got = ""
            if not got:
                raise AssertionError("waited for %r after:\n%s%r" % (text, self.transcript, self.raw))
            self.raw += got
        seen, _, self.raw = plain(self.raw).partition(text)
        self.transcript += seen + text
        return seen

    def keys(self, keys):
        os.write(self.fd, keys.encode())

    def leave(self):
        self.keys("\x04")
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        require(status == 0, "exit code 0", self.transcript)

    def loads(self, library):
        with open("/proc/%d/maps" % self.pid) as maps:
            return library in maps.read()


def shows(screen, typed, *expected):
    """Types a line; each of `expected` must be in what it shows."""
    screen.keys(typed + "\n")
    seen = screen.read_until("\n> ")
    for text in expected:
        require(text in seen, repr(text) + " after " + repr(typed), seen)
    return seen


def begin(strata, *arguments):
    screen = Screen(strata, "repl", *arguments)
    screen.read_until("\n> ")
    return screen


def prompt(strata):
    """Values, help, completion, history, several lines, Ctrl-C, time."""
    screen = begin(strata, os.path.join(strata.models, "digits.lua"))
    require("help(x)" in screen.transcript, "a greeting", screen.transcript)
    require(not screen.loads("libtorch"), "a start without LibTorch", screen.transcript)

    shows(screen, "1 + 1", "\n2")
    require("\n2" not in shows(screen, "1 + 1;"), "silence", screen.transcript)
    shows(screen, "= _ * 21", "\n42")
    shows(screen, "{1, {a = 'b'}}", '{1, {a="b"}}')
    shows(screen, "jbo", 'there is no global "jbo"; did you mean "job"?')
    shows(screen, "job.optimzer", 'did you mean "optimizer"?')
    shows(screen, ":time 1 + 1", "\n2", "\ntime ")

    # Several lines, and back from the middle of one.
    screen.keys("for i = 1, 2 do\n")
    screen.read_until("\n>> ")
    shows(screen, "print('line', i) end", "line\t1\nline\t2")
    screen.keys("function f(\n")
    screen.read_until("\n>> ")
    screen.keys("\x03")
    screen.read_until("^C\n> ")
    screen.keys("print('runs') while true do end\n")
    screen.read_until("runs\n")
    screen.keys("\x03")
    screen.read_until("interrupted")
    screen.read_until("\n> ")

    # An error within several lines is on its line.
    for line in ("strata.job{", "  layers = {nn.ReLU{}},", "  schedul = '1f1b',", "  seed = 3,"):
        screen.keys(line + "\n")
        screen.read_until("\n>> ")
    shows(screen, "}", ']:3: the job has no key "schedul"')

    shows(screen, "job:plan", "job:plan{key=value")  # a method alone shows its help

    # Help, from the tables of the checks.
    shows(screen, "nn.Conv2d?", "shapes: (N, in_channels, H, W)", "kernel_size", "dilation")
    shows(screen, "help('schedule')", "job.schedule: ", "zb_h1")
    shows(screen, "job?", "job:plan{", "job:summary(", "job.optimizer: ")
    shows(screen, "help('partitoin')", 'did you mean "partition"?')

    # Tab: members, methods, options inside of calls, keys, texts, files.
    shows(screen, "nn.Embed\t{10, 4}", "Embedding(10, 4)")
    shows(screen, "nn.Conv2d{3, 64, ker\t5}", "kernel_size=(5, 5)")
    shows(screen, "job:plan{pi\t2}.bounds", "{0, 3, 10}")
    shows(screen, 'strata.schedule("zb_h1\t", {ra\t2, micro\t4}):check()', "true")
    strata.write("here.lua", "return require('strata').job{layers={require('strata').nn.ReLU{}}, "
                 "input={shape={2}}, batch={micro_batches=1, micro_batch_size=1}, name='found'}")
    shows(screen, "strata.load('her\t').name", '"found"')
    # Behind calls too, where the type of what they give is known: nothing runs for it.
    shows(screen, "job:plan{pipe=2}:forec\t()", "predicted: step")
    shows(screen, "strata.load('here.lua'):pl\t{pi\t1}.bou\t", "{0, 1}")
    shows(screen, "job:plan{pipe=2}:sched\t():gan\t{comm=1, wid\t40}", "rank 1 |")
    shows(screen, "strata.job{layers={nn.Dropout{inpl\ttrue}}}", "Dropout(inplace=true)")
    shows(screen, "job.pl\t?", "job:plan{key=value")
    screen.keys("half a line\x03")
    screen.read_until("^C\n> ")
    screen.leave()

    # The next session knows the lines of this one.
    screen = begin(strata, os.path.join(strata.models, "digits.lua"))
    shows(screen, "\x1b[A", "job:plan{key=value")
    screen.keys("for i = 1, 2 do\n")
    screen.read_until("\n>> ")
    shows(screen, "print('again', i) end", "again\t2")
    shows(screen, "\x1b[A", "again\t1\nagain\t2")  # all of its lines
    screen.leave()
    screen = begin(strata)
    shows(screen, "\x1b[A", "again\t1\nagain\t2")
    screen.leave()

    # Piped, the same without a prompt.
    shown = strata.run("repl", "digits.lua", stdin="1 + 1\njob:plan{pipe=2}.bounds\n_[2];\n_ + 1\n")
    require(shown == "2\n{0, 3, 10}\n4\n", "three answers", shown)


def tensors(strata):
    """LibTorch is there once a tensor is needed; operators have help and complete."""
    screen = begin(strata)
    require(not screen.loads("libtorch"), "a start without LibTorch", screen.transcript)
    shows(screen, "F.ones(2, 3)", "tensor([[1., 1., 1.],\n        [1., 1., 1.]])")
    require(screen.loads("libtorch"), "LibTorch", screen.transcript)
    shows(screen, "F.zeros(100, 100)", "[0., 0., 0., ..., 0., 0., 0.]", "size=(100, 100)")
    shows(screen, "F.softmax?", "softmax(Tensor input, int? dim=nil, int _stacklevel=3")
    shows(screen, "x = F.ones(2, 3)")
    shows(screen, "x:log_soft\t(1).shape", "{2, 3}")
    shows(screen, "x:softmax?", "F.softmax: ")
    screen.leave()


def job(strata):
    """Looks at a job: summary, plans side by side, moves, files, memory, pictures, advice."""
    screen = begin(strata, os.path.join(strata.models, "digits.lua"))
    shows(screen, "job:summary()", "forward", "activations", "(16, 32, 8, 8)", "65,600", "MFLOP", "85,066")
    shows(screen, "plan = job:plan{pipe=2, partition='parameters', schedule='1f1b'}")
    shows(screen, "plan", "cuts 0, 7, 10", "bubble", "balance", "memory of the fullest rank")
    shows(screen, "plan:compare{methods={'uniform', 'parameters', {0, 6, 10}}, stages={2, 3}}",
          "uniform", "0,7,10", "slowest stage", "balance", "bubble", "memory", "step",
          "0,6,10, 3, 1f1b, 4: ")  # the cuts of two stages are none of three
    shows(screen, "moved = plan:move(7, 0)")
    shows(screen, "moved.bounds", "{0, 8, 10}")
    shows(screen, "plan:move(7, 1)", "is on stage 1 already")
    shows(screen, "plan:move(0, 1)", "stage 0 would be empty")
    shows(screen, "plan:diff(moved)", "bounds: 0, 7, 10 -> 0, 8, 10", "Linear", "predicted: step")
    shows(screen, "plan:memory()", "weights", "gradients", "optimizer", "activations", "buffers")
    shows(screen, "plan:schedule():gantt()", "rank 0 |F0F1", "bubble")
    shows(screen, "plan:schedule():gantt(plan:costs())", "rank 1 |")
    shows(screen, "plan:advice()", "computing", "the slowest", "the cheapest first", "partition={")
    shows(screen, "moved:save('moved.plan')")
    shows(screen, "saved = strata.plan('mov\t')")
    shows(screen, "job:plan(saved).bounds", "{0, 8, 10}")
    shows(screen, "plan:diff(saved).moved[1].layer", "\n7")
    shows(screen, "moved:save('here.lua')", "must end in .plan or .json")
    strata.write("other.json", "{}")
    shows(screen, "moved:save('other.json')", "is no saved plan, so it is not replaced")
    screen.leave()


if __name__ == "__main__":
    program.main(globals())
