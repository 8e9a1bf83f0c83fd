"""Random jobs on random plans with ranks that are processes over Gloo: `strata verify` compares losses,
gradients and parameters with those of one stage, bit for bit."""

import shutil

import plans
import runner
import training
import values
from compare import Verdict, explanation


def generate(chance):
    case = plans.generate(chance)
    return {"job": case["job"], "plan": case["plans"][1]}


def script(case):
    keys = {name: values.lua(value) for name, value in case["plan"].items()}
    return runner.HEAD + training.RUN + "return " + training.job_text(case["job"], **keys)[0]


def texts(case, number):
    yield number, script(case)


def verdicts(strata, cases):
    shutil.copy(runner.DRIVER, strata.path("driver.lua"))
    return {number: verdict(strata, case) for number, case in cases.items()}


def verdict(strata, case):
    job = strata.start("verify", strata.write("one.lua", script(case)), "--transport=gloo",
                       before=["timeout", "--signal=KILL", "120"])
    code, out, errors = job.end()
    if code == 0:
        return Verdict("equal")
    if code == 2:
        reason = explanation(errors, plans.REASONS)
        return Verdict("explained", reason) if reason else Verdict("refused", errors)
    return Verdict({137: "hang", 1: "wrong"}.get(code, "crash"), "exit code %d: %s%s" % (code, out[-600:], errors[-600:]))
