#!/usr/bin/python3
"""Tests of the set-up: tools/strata never runs a stale binary, tools/test counts right, pins hold.

The scripts run in a scratch checkout with a stand-in for Bazel and for the set-up.
"""

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock
from xml.etree import ElementTree

sys.dont_write_bytecode = True
tempfile.tempdir = os.environ.get("TEST_TMPDIR")  # Bazel's folder, not the machine's
TOOLS = pathlib.Path(__file__).absolute().parent
sys.path.insert(0, str(TOOLS))
import wheels

# Builds a launcher that prints launcher/main.cc and its arguments, and counts its runs; or prints the file .fake/says
# if there is one. (Hidden folders are not inputs of the build.)
FAKE_BAZEL = r"""#!/bin/bash
root=$(dirname "$0")/.. fake=$(dirname "$0")/../.fake
[[ $1 == query ]] && exec cat "$fake/$(grep -o -E 'gpu|browser' <<<"$2" | head -1)"
echo "$*" >>"$fake/runs"
if [[ -f $fake/says ]]; then
  cat "$fake/says"
  exit "$(<"$fake/status")"
fi
mkdir -p "$root/bazel-bin/launcher"
rm -f "$root/bazel-bin/launcher/strata"
printf '#!/bin/bash\necho "%s:$*"\n' "$(cat "$root"/launcher/*)" >"$root/bazel-bin/launcher/strata"
chmod +x "$root/bazel-bin/launcher/strata"
"""


class Checkout(unittest.TestCase):
    """A scratch checkout with the tools in it."""

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        for name in ("lib.sh", "strata", "test"):
            self.write(f"tools/{name}", (TOOLS / name).read_text(), 0o755)
        self.write("tools/setup", "#!/bin/bash\nmkdir -p $(dirname $0)/../.cache\n", 0o755)
        self.write("tools/bazel", FAKE_BAZEL, 0o755)
        self.write(".fake/runs", "")
        self.write("launcher/main.cc", "one")
        (self.root / "output/external/libtorch/torch").mkdir(parents=True)
        (self.root / "output/execroot/strata/bazel-out").mkdir(parents=True)
        (self.root / "bazel-out").symlink_to("output/execroot/strata/bazel-out")

    def write(self, path, text, mode=0o644):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        return file

    def run_tool(self, *command, **variables):
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.root), **variables}
        return subprocess.run([self.root / "tools" / command[0], *command[1:]], env=environment,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)


class StrataTest(Checkout):
    def runs_bazel(self, says, **variables):
        """Runs tools/strata, which must print `says`; whether it started Bazel."""
        before = self.bazel_runs()
        result = self.run_tool("strata", "plan", "a b", **variables)
        self.assertEqual((result.stdout, result.returncode), (f"{says}:plan a b\n", 0), result.stderr)
        return self.bazel_runs() > before

    def bazel_runs(self):
        return len((self.root / ".fake/runs").read_text().splitlines())

    def built(self):
        self.assertTrue(self.runs_bazel("one"))
        self.assertFalse(self.runs_bazel("one"))

    def test_builds_once(self):
        self.built()

    def test_sees_an_edit_that_keeps_size_and_time(self):
        self.built()
        file = self.root / "launcher/main.cc"
        times = file.stat()
        file.write_text("two")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        self.assertTrue(self.runs_bazel("two"))

    def test_sees_files_that_come_go_and_swap(self):
        self.built()
        self.write("launcher/more.cc", "two")
        self.assertTrue(self.runs_bazel("onetwo"))
        (self.root / "launcher/main.cc").unlink()
        self.assertTrue(self.runs_bazel("two"))
        self.write("other.cc", "six").rename(self.root / "launcher/more.cc")
        self.assertTrue(self.runs_bazel("six"))

    def test_sees_a_file_put_back(self):
        self.built()
        shutil.copy2(self.root / "launcher/main.cc", self.root / "kept")
        self.write("launcher/main.cc", "two")
        self.assertTrue(self.runs_bazel("two"))
        (self.root / "kept").rename(self.root / "launcher/main.cc")
        self.assertTrue(self.runs_bazel("one"))

    def test_sees_that_the_outputs_changed(self):
        self.built()
        (self.root / "bazel-bin/launcher/strata").unlink()
        self.assertTrue(self.runs_bazel("one"))
        self.write("bazel-bin/launcher/strata", "#!/bin/bash\necho of another build\n", 0o755)
        self.assertTrue(self.runs_bazel("one"))
        self.write("bazel-bin/lua/libstrata_engine.so", "")
        self.assertTrue(self.runs_bazel("one"))

    def test_sees_another_libtorch(self):
        self.built()
        self.assertTrue(self.runs_bazel("one", LIBTORCH="/elsewhere"))
        self.assertTrue(self.runs_bazel("one"))
        shutil.rmtree(self.root / "output/external/libtorch")
        self.assertTrue(self.runs_bazel("one"))

    def test_does_not_care_for_what_is_not_built(self):
        self.built()
        for path in ("docs/a.md", "models/a.lua", "tests/a.cc", ".git/index", "launcher/.main.cc.swp"):
            self.write(path, "new")
        self.assertFalse(self.runs_bazel("one"))

    def test_a_failed_build_runs_nothing_and_shows_the_error(self):
        self.built()
        self.write("launcher/main.cc", "two")
        self.write(".fake/says", "INFO: noise\n[1 / 2] noise\nERROR: main.cc:1: oh\n")
        self.write(".fake/status", "1")
        for _ in range(2):
            result = self.run_tool("strata", "plan")
            self.assertEqual((result.stdout, result.returncode), ("", 1))
            self.assertIn("ERROR: main.cc:1: oh\n", result.stderr)
            self.assertNotIn("noise", result.stderr)


class TestTest(Checkout):
    def check(self, says, status, last_line, returncode, gpu_tests="", browser_tests="", **variables):
        self.write(".fake/says", says)
        self.write(".fake/status", str(status))
        self.write(".fake/gpu", gpu_tests)
        self.write(".fake/browser", browser_tests)
        result = self.run_tool("test", **variables)
        self.assertEqual(result.stdout.splitlines()[-1], last_line, result.stderr)
        self.assertEqual(result.returncode, returncode)

    def test_counts(self):
        self.check("//a:a_test  PASSED in 0.1s\n//b:b_test (cached) PASSED in 1.0s\n", 0, "2 passed, 0 failed", 0)
        self.check("//a:a_test  PASSED in 0.1s\n//b:b_test  FAILED in 1.0s\n//c:t  TIMEOUT in 1s\n"
                   "//d:t  FAILED TO BUILD\n//e:t  NO STATUS\n", 3, "1 passed, 4 failed", 1)

    def test_what_fails_outside_of_tests_counts_as_one(self):
        self.check("ERROR: no such package\n", 1, "0 passed, 1 failed", 1)
        self.check("//a:a_test  PASSED in 0.1s\nERROR: a library\n", 1, "1 passed, 1 failed", 1)

    def test_a_gpu_is_hidden_from_tests_that_are_not_tagged_so(self):
        self.write("nvidia0", "")
        self.check("//a:a_test  PASSED in 0.1s\n", 0, "2 passed, 0 failed", 0,
                   NVIDIA_DEVICES=str(self.root / "nvidia0"))
        hides = "--test_env=CUDA_VISIBLE_DEVICES="
        of_cpu, of_gpu = (self.root / ".fake/runs").read_text().splitlines()
        self.assertTrue("--test_tag_filters=-gpu" in of_cpu and hides in of_cpu, of_cpu)
        self.assertTrue("--test_tag_filters=gpu" in of_gpu and hides not in of_gpu, of_gpu)

    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "here is a GPU: nothing is left out")
    def test_counts_what_needs_a_gpu_as_skipped(self):
        self.check("//a:a_test  PASSED in 0.1s\n", 0, "1 passed, 0 failed, 2 skipped", 0,
                   gpu_tests="//a:gpu_test\n//b:gpu_test\n")

    @unittest.skipIf(any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
                     "here is a browser: nothing is left out")
    def test_counts_what_needs_a_browser_as_skipped(self):
        self.check("//a:a_test  PASSED in 0.1s\n", 0, "1 passed, 0 failed, 1 skipped", 0,
                   browser_tests="//a:browser_test\n")

    def test_counts_what_needs_cuda_as_skipped(self):
        self.check("//a:a_test  PASSED in 0.1s\n//b:b_test  SKIPPED\n", 0, "1 passed, 0 failed, 1 skipped", 0)

    def test_counts_what_needs_pytorch_as_skipped(self):
        log = "//a:a_test  PASSED in 0.1s\n//tests/differential:plans_test  SKIPPED\n"
        self.check(log, 0, "1 passed, 0 failed, 1 skipped", 0)
        self.assertIn("1 that compare with PyTorch", self.run_tool("test").stderr)

    def test_says_what_tests_left_out(self):
        self.write("bazel-testlogs/a/a_test/test.log", "a line\nskipped: there is no zsh here\n")
        self.write("bazel-testlogs/b/b_test/test.log", "b.cc:7: Skipped\nroot may do everything\nb.cc:9: Failure\n")
        self.write("bazel-testlogs/c/c_test/test.log", "skipped: a test that did not run today\n")
        self.check("//a:a_test (cached) PASSED in 0.1s\n//b:b_test  FAILED in 1.0s\n", 3, "1 passed, 1 failed", 1)
        said = [line for line in self.run_tool("test").stderr.splitlines() if "skipped" in line]
        self.assertEqual(said, ["  skipped    1 in a test that ran: root may do everything",
                                "  skipped    1 in a test that ran: there is no zsh here"])

    def test_a_failed_set_up_is_a_failure(self):
        self.write("tools/setup", "#!/bin/bash\nexit 1\n", 0o755)
        self.check("", 0, "0 passed, 1 failed", 1)


class SetupTest(Checkout):
    """tools/setup as root on a machine of ours: `packages` lists what dpkg-query says."""

    def setUp(self):
        super().setUp()
        self.write("tools/setup", (TOOLS / "setup").read_text(), 0o755)
        self.write("tools/pins/packages.txt", "one\ntwo\n")
        for tool in ("libtorch", "arrow", "digits"):
            self.write(f"tools/{tool}", "#!/bin/bash\n", 0o755)
        self.write("updates", "")
        self.write("bin/id", "#!/bin/bash\necho 0\n", 0o755)
        self.write("bin/dpkg-query", f"#!/bin/bash\ncat {self.root}/packages\n", 0o755)
        # As with the real one, an update during another one fails; after installing, all packages are there.
        self.write("bin/apt-get", f"""#!/bin/bash
case " $* " in
  *" update "*)
    echo update >>{self.root}/updates
    mkdir {self.root}/updating || exit 1
    until [[ -e {self.root}/both ]]; do sleep 0.01; done
    rmdir {self.root}/updating ;;
  *) printf 'ii one\\nii two\\n' >{self.root}/packages ;;
esac
""", 0o755)

    def start(self):
        return subprocess.Popen([self.root / "tools/setup"], stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env={"PATH": f"{self.root}/bin:/usr/bin:/bin", "HOME": str(self.root)})

    def updates(self):
        return len((self.root / "updates").read_text().splitlines())

    def test_a_held_package_is_there(self):
        self.write("packages", "hi one\nii two\n")
        said, _ = self.start().communicate()
        self.assertEqual(said, "")
        self.assertEqual(self.updates(), 0)

    def test_two_at_once_install_once(self):
        self.write("packages", "ii one\n")
        both = [self.start() for _ in range(2)]
        while not (self.updates() > 1 or any(has_child(one.pid, "flock") for one in both)):
            pass
        self.write("both", "")
        said = [one.communicate()[0] for one in both]
        self.assertEqual([one.returncode for one in both], [0, 0], said)
        self.assertEqual(self.updates(), 1)


def has_child(pid, name):
    with contextlib.suppress(OSError):  # it may end meanwhile
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return any(pathlib.Path(f"/proc/{child}/comm").read_text().strip() == name for child in children)
    return False


class BazelTest(Checkout):
    def test_a_cache_may_have_a_space_in_its_path(self):
        self.write("tools/bazel", (TOOLS / "bazel").read_text(), 0o755)
        result = self.run_tool("bazel", "build", BAZEL_REAL="/bin/true", STRATA_CACHE="/a b")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = (self.root / "user.bazelrc").read_text().splitlines()
        self.assertIn(["build", "--disk_cache=/a b/bazel"], [shlex.split(line, comments=True) for line in lines])


class PinsTest(unittest.TestCase):
    def test_are_well_formed(self):
        for file, member in [("arrow", "pyarrow"), ("digits", "scikit-learn"), ("peft", "transformers"),
                             ("readers", "tensorboard"), ("wheels", "torch")]:
            names = [pin.split("==")[0] for pin in wheels.read_pins(TOOLS / f"pins/{file}.txt")]
            self.assertEqual(len(names), len(set(names)))
            self.assertIn(member, names)

    def test_refuses_a_line_without_a_hash(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("torch==2.11.0\n")
            file.flush()
            with self.assertRaisesRegex(wheels.SetupError, "torch==2.11.0"):
                wheels.read_pins(file.name)

    def test_the_digest_names_the_pins(self):
        self.assertNotEqual(wheels.digest(["a"]), wheels.digest(["b"]))
        self.assertEqual(wheels.digest(["a"]), wheels.digest(["a"]))


class MakeOnceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.target = pathlib.Path(folder.name) / "new/target"

    def test_an_interrupted_make_leaves_no_target_and_is_resumed(self):
        def interrupted(partial):
            partial.write_text("half")
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            wheels.make_once(self.target, interrupted)
        self.assertFalse(self.target.exists())
        wheels.make_once(self.target, lambda partial: partial.write_text(partial.read_text() + " whole"))
        self.assertEqual(self.target.read_text(), "half whole")

    def test_its_bytes_are_on_the_disk_before_its_name(self):
        synced = []

        def run(command, **_):
            synced.append((command, self.target.exists()))

        with mock.patch("subprocess.run", run):
            wheels.make_once(self.target, lambda partial: partial.write_text("x"))
        self.assertEqual(synced, [(["sync", "--file-system", mock.ANY], False)])
        self.assertTrue(self.target.exists())

    def test_two_at_once_make_it_once(self):
        made = []
        together = threading.Barrier(2)

        def make(partial):
            made.append(partial)
            partial.write_text("x")

        def one():
            together.wait()
            wheels.make_once(self.target, make)

        threads = [threading.Thread(target=one) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(made), 1)


def load_bench():
    """tools/bench as a module, with what it measures as its `workloads`."""
    loader = importlib.machinery.SourceFileLoader("bench", str(TOOLS / "bench"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench", loader))
    loader.exec_module(module)
    return module


class CurvesTest(unittest.TestCase):
    def test_draws_a_line_and_the_last_numbers_of_each_log(self):
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        for name, loss in ("a", 2.0), ("b", 3.0):
            records = [{"step": i, "loss": loss, "grad_norm": 1.0} for i in range(100)]
            records.append({"step": 99, "test_loss": loss + 0.5})
            (folder / name).write_text("\n".join(map(json.dumps, records)))
        drawing = folder / "out.svg"
        subprocess.run([TOOLS / "curves", drawing, f"one={folder / 'a'}", f"<2>={folder / 'b'}"], check=True)
        root = ElementTree.parse(drawing).getroot()
        kinds = [element.tag.split("}")[1] for element in root]
        self.assertEqual((kinds.count("polyline"), kinds.count("circle")), (2, 2))
        texts = [element.text for element in root if element.text]
        self.assertIn("one: 2.0000, test 2.5000", texts)
        self.assertIn("<2>: 3.0000, test 3.5000", texts)
        ended = subprocess.run([TOOLS / "curves", drawing], stderr=subprocess.PIPE, text=True)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("usage: tools/curves", ended.stderr)


class BenchTest(unittest.TestCase):
    bench = load_bench()

    class Entry:
        """Takes one more second each time."""

        group = ""

        def __init__(self, bench, title, seconds, memory, order):
            self.bench, self.title, self.next, self.memory = bench, title, seconds, memory
            self.order, self.kind = order, {"ours": "no flags", "theirs": "torch"}[title]

        def measure(self, steps):
            self.order.append(self.title)
            self.next += 1
            predicted = 2.7 if self.kind == "no flags" else None
            return self.bench.workloads.Measured([self.next] * steps, self.memory, predicted)

        def line(self):
            return f"run {self.title}"

    def rows(self):
        self.order = []
        ours = self.Entry(self.bench, "ours", 1, 2 << 20, self.order)
        theirs = self.Entry(self.bench, "theirs", 5, 3 << 20, self.order)
        return self.bench.compare([ours], [theirs], 2, rounds=3)

    def test_measures_in_turn_and_takes_medians(self):
        ours, theirs = self.rows()
        self.assertEqual(self.order, ["ours", "theirs"] * 3)
        self.assertEqual((ours.median(), theirs.median(), len(theirs.seconds)), (3, 7, 6))

    def test_reports_in_json_and_markdown(self):
        result = self.bench.as_json("empty", self.rows(), per_action=512)
        self.assertEqual(result["median"], 3)
        self.assertEqual([row["ratio"] for row in result["rows"]], [1, 7 / 3])
        self.assertEqual(result["rows"][1]["peak_memory"], 3 << 20)
        self.assertEqual(result["rows"][0]["per_action"], 3 / 512)
        json.dumps(result)
        text = self.bench.as_markdown(result)
        self.assertIn("| ours | 3.000 | 2.000 | 1.00 | 2 MiB | 2.700 (-10.0 %) | 5859 us |", text)
        self.assertIn("| theirs | 7.000 | 6.000 | 2.33 | 3 MiB |  | 13672 us |", text)
        self.assertEqual(len({line.count("|") for line in text.splitlines()[2:]}), 1)

    def test_a_ratio_is_to_the_first_row_of_the_same_work(self):
        rows = self.rows() + self.rows()
        for row in rows[2:]:
            row.entry.group = "other"
            row.seconds = [10 * second for second in row.seconds]
        result = self.bench.as_json("data", rows)
        self.assertEqual([row["ratio"] for row in result["rows"]], [1, 7 / 3, 1, 7 / 3])
        text = self.bench.ratios([result])
        self.assertEqual([line.split("|")[1:4] for line in text.splitlines()[4:]],
                         [[" data ", "  ", " 2.33 "], [" data other ", "  ", " 2.33 "]])

    def test_refuses_what_would_be_ignored(self):
        for flags, why in ((["--steps=0"], "--steps"), (["--rounds=0"], "--rounds"),
                           (["--workload=planner", "--ours"], "the planner has no peers")):
            ended = subprocess.run([TOOLS / "bench", *flags], stderr=subprocess.PIPE, text=True)
            self.assertEqual(ended.returncode, 2, flags)
            self.assertIn(why, ended.stderr)

    def test_sees_the_first_step_however_it_is_aligned(self):
        until = []
        self.bench.workloads.run, run = (lambda *_, until=None, **__: until_is(until)), self.bench.workloads.run
        self.addCleanup(setattr, self.bench.workloads, "run", run)

        def until_is(pattern):
            until.append(pattern)
            return 0, "", 1.5

        entry = self.bench.workloads.start().ours[0]
        self.assertEqual(entry.measure(10).seconds, [1.5])
        for line in "step 1/2  loss", "step  1/10  loss":
            self.assertRegex(line, until[0])
        self.assertNotRegex("step 11/20", until[0])

    def test_does_not_wait_for_what_is_left_running(self):
        self.bench.workloads._LAST_LINES, before = 0.1, self.bench.workloads._LAST_LINES
        self.addCleanup(setattr, self.bench.workloads, "_LAST_LINES", before)
        _, output, _ = self.bench.workloads.run(["bash", "-c", "echo $$; sleep 1000 & echo $!"])
        os.kill(int(output.split()[1]), signal.SIGKILL)

    def test_one_table_has_the_ratios_of_all_workloads(self):
        alone = self.bench.as_json("start", self.rows()[:1])
        text = self.bench.ratios([self.bench.as_json("empty", self.rows()), alone])
        self.assertIn("| empty |  | 2.33 |", text)
        self.assertNotIn("start", text)

    def test_reads_what_was_predicted(self):
        predicted = self.bench.workloads.predicted_seconds
        self.assertEqual(predicted("cuts 0,8,22; predicted step 19.5 ms\n"), 0.0195)
        self.assertEqual(predicted("predicted step 1.05 s"), 1.05)
        self.assertEqual(predicted("predicted step 1 min 05 s; more"), 65)
        self.assertIsNone(predicted("schedule 1f1b"))

    def test_the_first_step_of_a_log_warms_up(self):
        log = '{"step":0,"seconds":9}\n{"step":1,"seconds":2}\n{"step":2,"seconds":3}\n{"test_loss":1}\n'
        self.assertEqual(self.bench.workloads.step_seconds(log), [2, 3])
        with self.assertRaisesRegex(wheels.SetupError, "1 steps"):
            self.bench.workloads.step_seconds('{"step":0,"seconds":9}\n')

    def test_finds_a_peers_result_among_its_words(self):
        seconds = self.bench.workloads.peer_seconds
        self.assertEqual(seconds('{"first": 2}\n{"seconds": [1.5], "loss": 2.0}\nend\n'), [1.5])
        with self.assertRaisesRegex(wheels.SetupError, "no result:\nonly words"):
            seconds("only words")

    def test_sees_the_memory_of_descendants(self):
        grow = "x = bytearray(90 << 20)"
        memory, output, seen = self.bench.workloads.run(
            ["bash", "-c", f"echo said; {sys.executable} -c '{grow}'; true"], until="^sa")
        self.assertGreater(memory, 90 << 20)
        self.assertEqual(output, "said\n")
        self.assertGreater(seen, 0)

    def test_a_command_that_fails_is_an_error_with_its_words(self):
        with self.assertRaisesRegex(wheels.SetupError, "ended with 3:\nwhy"):
            self.bench.workloads.run(["bash", "-c", "echo why; exit 3"])
        with self.assertRaisesRegex(wheels.SetupError, "no line like step:\nwhy"):
            self.bench.workloads.run(["bash", "-c", "echo why"], until="step")

    def test_the_pins_of_the_peers_are_well_formed(self):
        names = [pin.split("==")[0] for pin in wheels.read_pins(TOOLS / "peers/requirements.txt")]
        self.assertEqual(len(names), len(set(names)))
        self.assertIn("deepspeed", names)

    def test_every_workload_names_ours_first(self):
        for name, make in self.bench.workloads.WORKLOADS.items():
            workload = make()
            self.assertTrue(workload.ours and workload.theirs, name)
            for entry in workload.ours:
                self.assertIn("tools/strata train", entry.line())
            self.assertIn("no flags", [entry.kind for entry in workload.ours], name)
            kinds = {entry.kind for entry in workload.ours + workload.theirs} - {"other", "no flags"}
            self.assertLessEqual(kinds, set(self.bench._KINDS), name)


if __name__ == "__main__":
    unittest.main()
