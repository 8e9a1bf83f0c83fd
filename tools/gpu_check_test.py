#!/usr/bin/python3
"""Tests of what tools/gpu_check does with programs that pass, fail and hang, by stand-ins for them."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
tempfile.tempdir = os.environ.get("TEST_TMPDIR")
TOOLS = pathlib.Path(__file__).absolute().parent

# A stand-in for Strata's command line. The file `breaks` beside it says which commands misbehave, and how.
FAKE_STRATA = r"""#!/usr/bin/python3
import json, os, pathlib, subprocess, sys, time
here = pathlib.Path(__file__).parent
line = " ".join(sys.argv[1:])
flags = dict(a[2:].split("=", 1) for a in sys.argv[2:] if "=" in a)
for rule in (here / "breaks").read_text().splitlines():
    does, where = rule.split(" ", 1)
    if all(word in line for word in where.split()):
        if does == "hang":
            child = subprocess.Popen(["sleep", "1000"])
            (here / "child").write_text(str(child.pid))
            time.sleep(1000)
        if does == "fail":
            sys.exit("it broke")
        if does == "other":
            flags["other"] = "1"
if sys.argv[1] == "doctor":
    print("GPUs         1, of a test")
elif sys.argv[1] == "verify":
    print("DIFFERENT" if "other" in flags else "equal bit for bit: a and b")
else:
    first = 3 if "resume" in flags else 0
    if int(os.environ.get("RANK", 0)) == 0:
        steps = int(flags["steps"])
        if steps > 1000:  # until another rank dies
            print("step      1/100000\nstep      2/100000", flush=True)
            time.sleep(0.1)
            sys.exit("rank 1 is gone")
        print("ranks on cuda")
        with open(flags.get("log", os.devnull), "w") as log:
            for step in range(first, steps):
                loss = 2 - step / 10 + ("other" in flags)
                print(json.dumps({"loss": loss, "grad_norm": 1, "seconds": 0.5, "peak_memory": 2 << 20}), file=log)
        if "trace" in flags:
            event = {"cat": "forward", "dur": 70, "args": {"step": 1}}
            pathlib.Path(flags["trace"]).write_text(json.dumps({"traceEvents": [event]}))
    elif int(flags["steps"]) > 1000:
        time.sleep(1000)
"""
FAKE_TEST = "#!/bin/bash\necho '[  PASSED  ] 3 tests.'\n"
FAKE_PEER = "print('[0.5, 1048576]')\n"
FAKE_CASES = """import os, sys
assert os.environ["DEVICE"] == "cuda" and os.environ["PYTORCH"].endswith("/site"), os.environ
print(sys.argv[3].replace("=", ": "), "cases")
"""
FAKE_NVIDIA = "#!/bin/bash\necho A GPU of a test\n"


def module():
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(TOOLS / "gpu_check"))
    checker = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(checker)
    return checker


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        for name, text in {"strata": FAKE_STRATA, "tests/nccl_test": FAKE_TEST, "tests/cuda_test": FAKE_TEST,
                           "bin/nvidia-smi": FAKE_NVIDIA, "peers/on_gpu.py": FAKE_PEER, "breaks": "",
                           "differential/main.py": FAKE_CASES, "site/torch/__init__.py": "",
                           "models/digits.lua": "", "cache/data/digits.csv": ""}.items():
            file = self.folder / name
            file.parent.mkdir(exist_ok=True, parents=True)
            file.write_text(text)
            file.chmod(0o755)

    def run_check(self, *flags):
        environment = dict(os.environ, PATH=f"{self.folder}/bin:{os.environ['PATH']}", PYTHONPATH=f"{self.folder}/site")
        return subprocess.run([sys.executable, TOOLS / "gpu_check", f"--programs={self.folder}",
                               f"--report={self.folder}/report.json", *flags], env=environment, capture_output=True,
                              text=True, check=False)

    def check(self, *flags, breaks=""):
        """Exit code, parts by name, and what was printed."""
        (self.folder / "breaks").write_text(breaks)
        done = self.run_check(*flags)
        report = self.folder / "report.json"
        self.assertTrue(report.exists(), done.stderr)
        self.report = json.loads(report.read_text())
        return done.returncode, {line["part"]: line for line in self.report["parts"]}, done.stdout

    def test_every_part_has_its_line_and_figures(self):
        code, parts, shown = self.check()
        self.assertEqual([name for name, line in parts.items() if line["result"] != "passed"], [], parts)
        self.assertEqual(code, 0)
        self.assertEqual(len(parts), len(list(module().parts())))
        self.assertEqual(self.report["gpus"], ["A GPU of a test"])
        self.assertEqual(parts["nccl_test"]["passed"], 3)
        self.assertEqual(parts["random layers"]["says"], "layers: 500 cases")
        self.assertEqual(parts["speed: gpt2 bf16"]["tokens or images/s"], 8 * 1024 * 2)
        self.assertEqual(parts["speed: gpt2 bf16"]["host us per action"], 70)
        self.assertEqual(parts["pytorch: alexnet tf32 eager"]["tokens or images/s"], 256)
        for name in ("llama bf16 compiled", "gpt2_32 bf16 eager", "resnet bf16 compiled_channels_last"):
            self.assertIn(f"pytorch: {name}", parts)
        order = list(parts)
        self.assertLess(order.index("pytorch: compile"), min(i for i, part in enumerate(order) if "speed" in part))
        self.assertEqual(parts["pytorch: compile"]["failed"], {})
        self.assertIn("0 failed", shown.splitlines()[-1])

    def test_a_part_that_fails_says_why_and_the_others_run(self):
        code, parts, _ = self.check("--only=doctor,nccl: 1f1b,nccl: gpipe,ties,losses: digits",
                                    breaks="fail gpipe\nother verify gpt2\nother digits cuda")
        self.assertEqual(code, 1)
        self.assertIn("it broke", parts["nccl: gpipe"]["why"])
        self.assertIn("equal bits in: DIFFERENT", parts["ties"]["why"])
        self.assertIn("loss of cpu and cuda", parts["losses: digits"]["why"])
        for name in ("doctor", "nccl: 1f1b"):
            self.assertEqual(parts[name]["result"], "passed", parts[name])

    def test_what_hangs_is_ended_with_all_its_processes_and_the_whole_has_an_end(self):
        code, parts, shown = self.check("--only=doctor,ties,one connection", "--seconds=15", breaks="hang verify gpt2")
        self.assertEqual(code, 0)
        self.assertEqual(parts["doctor"]["result"], "passed")
        for name in ("ties", "one connection"):
            self.assertEqual(parts[name]["result"], "skipped")
            self.assertIn("seconds are over", parts[name]["why"])
        self.assertIn("did not end in time", parts["ties"]["why"])
        self.assertIn("1 passed, 0 failed, 2 skipped", shown.splitlines()[-1])
        child = int((self.folder / "child").read_text())
        stat = pathlib.Path(f"/proc/{child}/stat")
        self.assertTrue(not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z")

    def test_a_part_fails_that_does_not_end_in_its_own_time(self):
        (self.folder / "breaks").write_text("hang verify gpt2")
        checker = module()
        hangs = checker.verify("gpt2.lua")
        with mock.patch.object(checker, "parts", lambda: [("ties", 1, hangs)]), \
                tempfile.TemporaryDirectory() as folder:
            machine = checker.Machine(self.folder, folder)
            line = checker.check(machine, [], 540, self.folder / "report.json")["parts"][0]
        self.assertEqual(line["result"], "failed")
        self.assertIn("did not end in time", line["why"])

    def test_a_part_that_fails_in_the_last_seconds_fails(self):
        code, parts, _ = self.check("--only=ties", "--seconds=20", breaks="fail verify gpt2")
        self.assertEqual(code, 1)
        self.assertEqual(parts["ties"]["result"], "failed")

    def test_the_parts_fit_into_their_limits(self):
        limits = [limit for _, limit, _ in module().parts()]
        self.assertLessEqual(max(limits), 180)
        self.assertEqual(len({name for name, _, _ in module().parts()}), len(limits))

    def test_a_machine_without_a_gpu_is_told_at_once(self):
        (self.folder / "bin/nvidia-smi").write_text("#!/bin/bash\nexit 9\n")
        done = self.run_check()
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no GPU here; nothing was checked", done.stderr)

    def test_too_much_to_carry_is_refused(self):
        checker = module()
        with mock.patch.object(checker, "MOST_BYTES", 10), self.assertRaises(SystemExit) as refused:
            checker.require_small(self.folder)
        self.assertIn("more than the 10 that may be carried", str(refused.exception))


if __name__ == "__main__":
    unittest.main()
