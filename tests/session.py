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


class Session:
    """A screen on which `strata repl ARGUMENTS` has begun."""

    arguments = ()

    def __init__(self, strata):
        self.strata = strata
        self._begin()

    def _begin(self):
        self.screen = Screen(self.strata, "repl", *(os.path.join(self.strata.models, name) for name in self.arguments))
        self.screen.read_until("\n> ")

    def _type(self, keys, until):
        self.screen.keys(keys)
        self.screen.read_until(until)

    def _shows(self, *rows, lacks=()):
        """Types the first text of each row; all others of the row must be in what it shows."""
        for typed, *expected in rows:
            self.screen.keys(typed + "\n")
            program.require_texts(self.screen.read_until("\n> "), expected, lacks, " after %r" % typed)


class prompt(Session):
    """Of a job: values, help, completion, history."""

    arguments = ["digits.lua"]

    def greets_without_libtorch(self):
        program.require_texts(self.screen.transcript, "help(x)")
        require(not self.screen.loads("libtorch"), "a start without LibTorch", self.screen.transcript)

    def shows_values(self):
        self._shows(["1 + 1", "\n2"])
        self._shows(["1 + 1;"], lacks="\n2")
        self._shows(["= _ * 21", "\n42"], ["{1, {a = 'b'}}", '{1, {a="b"}}'], [":time 1 + 1", "\n2", "\ntime "])

    def names_what_is_misspelt(self):
        self._shows(["jbo", 'there is no global "jbo"; did you mean "job"?'],
                    ["job.optimzer", 'did you mean "optimizer"?'],
                    ["help('partitoin')", 'did you mean "partition"?'])

    def takes_several_lines(self):
        self._type("for i = 1, 2 do\n", "\n>> ")
        self._shows(["print('line', i) end", "line\t1\nline\t2"])

    def leaves_the_middle_of_a_line_with_ctrl_c(self):
        self._type("function f(\n", "\n>> ")
        self._type("\x03", "^C\n> ")
        self._type("half a line\x03", "^C\n> ")

    def interrupts_what_runs_with_ctrl_c(self):
        self._type("print('runs') while true do end\n", "runs\n")
        self._type("\x03", "interrupted")
        self.screen.read_until("\n> ")

    def says_the_line_of_an_error_within_several(self):
        for line in ("strata.job{", "  layers = {nn.ReLU{}},", "  schedul = '1f1b',", "  seed = 3,"):
            self._type(line + "\n", "\n>> ")
        self._shows(["}", ']:3: the job has no key "schedul"'])

    def helps_from_the_tables_of_the_checks(self):
        self._shows(["job:plan", "job:plan{key=value"],  # a method alone shows its help
                    ["nn.Conv2d?", "shapes: (N, in_channels, H, W)", "kernel_size", "dilation"],
                    ["help('schedule')", "job.schedule: ", "zb_h1"],
                    ["job?", "job:plan{", "job:summary(", "job.optimizer: "])

    def completes_members_methods_keys_texts_and_files(self):
        self.strata.write("here.lua", "return require('strata').job{layers={require('strata').nn.ReLU{}}, "
                          "input={shape={2}}, batch={micro_batches=1, micro_batch_size=1}, name='found'}")
        self._shows(["nn.Embed\t{10, 4}", "Embedding(10, 4)"],
                    ["nn.Conv2d{3, 64, ker\t5}", "kernel_size=(5, 5)"],
                    ["job:plan{pi\t2}.bounds", "{0, 3, 10}"],
                    ['strata.schedule("zb_h1\t", {ra\t2, micro\t4}):check()', "true"],
                    ["strata.load('her\t').name", '"found"'])

    def completes_behind_calls_without_running_them(self):
        self._shows(["job:plan{pipe=2}:forec\t()", "predicted: step"],
                    ["strata.load('here.lua'):pl\t{pi\t1}.bou\t", "{0, 1}"],
                    ["job:plan{pipe=2}:sched\t():gan\t{comm=1, wid\t40}", "rank 1 |"],
                    ["strata.job{layers={nn.Dropout{inpl\ttrue}}}", "Dropout(inplace=true)"],
                    ["job.pl\t?", "job:plan{key=value"])

    def knows_the_lines_of_the_last_session(self):
        """Of several lines, all."""
        self.screen.leave()
        self._begin()
        self._shows(["\x1b[A", "job:plan{key=value"])
        self._type("for i = 1, 2 do\n", "\n>> ")
        self._shows(["print('again', i) end", "again\t2"], ["\x1b[A", "again\t1\nagain\t2"])
        self.screen.leave()
        self._begin()
        self._shows(["\x1b[A", "again\t1\nagain\t2"])
        self.screen.leave()

    def is_silent_where_lines_are_piped(self):
        shown = self.strata.run("repl", "digits.lua", stdin="1 + 1\njob:plan{pipe=2}.bounds\n_[2];\n_ + 1\n")
        require(shown == "2\n{0, 3, 10}\n4\n", "three answers", shown)


class tensors(Session):
    """LibTorch is there once a tensor is needed."""

    def load_libtorch_once_they_are_needed(self):
        require(not self.screen.loads("libtorch"), "a start without LibTorch", self.screen.transcript)
        self._shows(["F.ones(2, 3)", "tensor([[1., 1., 1.],\n        [1., 1., 1.]])"])
        require(self.screen.loads("libtorch"), "LibTorch", self.screen.transcript)

    def are_shown_in_short(self):
        self._shows(["F.zeros(100, 100)", "[0., 0., 0., ..., 0., 0., 0.]", "size=(100, 100)"])

    def have_operators_with_help_and_completion(self):
        self._shows(["F.softmax?", "softmax(Tensor input, int? dim=nil, int _stacklevel=3"], ["x = F.ones(2, 3)"],
                    ["x:log_soft\t(1).shape", "{2, 3}"], ["x:softmax?", "F.softmax: "])
        self.screen.leave()


class job(Session):
    """What a person asks of a job."""

    arguments = ["digits.lua"]

    def has_a_summary(self):
        self._shows(["job:summary()", "forward", "activations", "(16, 32, 8, 8)", "65,600", "MFLOP", "85,066"])

    def has_plans(self):
        self._shows(["plan = job:plan{pipe=2, partition='parameters', schedule='1f1b'}"],
                    ["plan", "cuts 0, 7, 10", "bubble", "balance", "memory of the fullest rank"])

    def has_plans_side_by_side(self):
        """Of which the cuts of two stages are none of three."""
        self._shows(["plan:compare{methods={'uniform', 'parameters', {0, 6, 10}}, stages={2, 3}}", "uniform", "0,7,10",
                     "slowest stage", "balance", "bubble", "memory", "step", "0,6,10, 3, 1f1b, 4: "])

    def has_plans_whose_layers_move(self):
        self._shows(["moved = plan:move(7, 0)"], ["moved.bounds", "{0, 8, 10}"],
                    ["plan:move(7, 1)", "is on stage 1 already"], ["plan:move(0, 1)", "stage 0 would be empty"],
                    ["plan:diff(moved)", "bounds: 0, 7, 10 -> 0, 8, 10", "Linear", "predicted: step"])

    def has_plans_that_tell_memory_times_and_advice(self):
        self._shows(["plan:memory()", "weights", "gradients", "optimizer", "activations", "buffers"],
                    ["plan:schedule():gantt()", "rank 0 |F0F1", "bubble"],
                    ["plan:schedule():gantt(plan:costs())", "rank 1 |"],
                    ["plan:advice()", "computing", "the slowest", "the cheapest first", "partition={"])

    def has_plans_in_files(self):
        self.strata.write("other.json", "{}")
        self._shows(["moved:save('moved.plan')"], ["saved = strata.plan('mov\t')"],
                    ["job:plan(saved).bounds", "{0, 8, 10}"], ["plan:diff(saved).moved[1].layer", "\n7"],
                    ["moved:save('here.lua')", "must end in .plan or .json"],
                    ["moved:save('other.json')", "is no saved plan, so it is not replaced"])
        self.screen.leave()


if __name__ == "__main__":
    program.main(globals())
