#!/usr/bin/env python3
"""`strata train` as one rank of a job that an outside launcher (torchrun, mpirun, ...) started: with
the environment that each of them sets, simulated, and with the real ones where they are installed.

usage: launchers.py STRATA MODELS TEST...
"""

import json
import os
import shutil
import signal

import program
from program import require, steps

STEPS = 3


def start(strata, *flags, **options):
    return strata.start("train", "digits.lua", "--steps=%d" % STEPS, *flags, **options)


def end_all(jobs):
    """(exit code, standard output, standard error) of each."""
    return [job.end() for job in jobs]


def run_ranks(strata, environments, *flags):
    """Runs a process for each environment."""
    return end_all([start(strata, *flags, environment=one) for one in environments])


def losses(strata, log):
    return [record["loss"] for record in steps(strata.path(log))]


def local_losses(strata):
    code, _, errors = start(strata, "--log=local.jsonl").end()
    require(code == 0, "a local training", errors)
    return losses(strata, "local.jsonl")


def expect_training(strata, environments, *flags):
    """Two ranks train as a local job does, and only rank 0 speaks."""
    done = run_ranks(strata, environments, "--log=log.jsonl", *flags)
    for code, out, errors in done:
        require(code == 0, "exit code 0", (code, out, errors))
    require("step 3/3" in done[0][1] and "2 ranks on cpu, over gloo" in done[0][1], "rank 0's steps", done)
    require(done[1][1:] == ("", ""), "nothing from rank 1", done)
    together = losses(strata, "log.jsonl")
    require(len(together) == STEPS and together == local_losses(strata), "the losses of a local job", together)


def torchrun(strata):
    expect_training(strata, program.torchrun_ranks(2))


def measured_machines(strata):
    """What one machine has measured of itself is not what the ranks on others go by: all have one plan."""
    caches = [strata.own_cache("cache_%d" % rank) for rank in range(2)]
    code, _, errors = start(strata, environment={"STRATA_CACHE": caches[0], "STRATA_RATES": ""}).end()
    require(code == 0 and os.listdir(os.path.join(caches[0], "profiles")), "rates of this machine", errors)
    expect_training(strata, [{**environment, "STRATA_CACHE": cache, "STRATA_RATES": ""}
                             for environment, cache in zip(program.torchrun_ranks(2), caches)])


def open_mpi(strata):
    job = "test-%d" % os.getpid()
    expect_training(strata, [
        {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2",
         "OMPI_COMM_WORLD_LOCAL_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
         "PMIX_RANK": str(rank), "PMIX_NAMESPACE": job} for rank in range(2)])


def slurm(strata):
    expect_training(strata, [
        {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_LOCALID": str(rank),
         "SLURM_STEP_ID": "0", "SLURM_JOB_ID": str(os.getpid()), "SLURM_NODEID": "0",
         "SLURM_STEP_NODELIST": "node07", "SLURM_STEP_TASKS_PER_NODE": "2"}
        for rank in range(2)], "--master_port=" + program.free_port())


def two_machines(strata):
    """Each machine starts its own rank; here both are this one."""
    address = ["--nnodes=2", "--nproc-per-node=1", "--master_addr=127.0.0.1",
               "--master-port=" + program.free_port(), "-p", "2"]
    done = end_all([start(strata, "--node_rank=%d" % node, *address,
                          environment={"GLOO_SOCKET_IFNAME": "lo"}) for node in range(2)])
    require([code for code, _, _ in done] == [0, 0], "both machines train", done)
    require("step 3/3" in done[0][1], "rank 0's steps", done)


def sigterm(strata):
    """One rank's SIGTERM: all save, and all end with 143."""
    jobs = [start(strata, "--steps=1000000", "--print_every=1", "--save.dir=saves", environment=environment)
            for environment in program.torchrun_ranks(2)]
    jobs[0].wait_for_steps()
    jobs[1].process.send_signal(signal.SIGTERM)
    done = end_all(jobs)
    require([code for code, _, _ in done] == [143, 143], "exit code 143 of both", done)
    require("saved step " in done[0][1], "a save", done)
    require(all("ended by signal 15 (SIGTERM)" in errors for _, _, errors in done), "why", done)


def contradictions(strata):
    cases = [
        ({"RANK": "2", "WORLD_SIZE": "2"}, [],
         ["RANK = 2 is beyond the last of WORLD_SIZE = 2", "\n  RANK       = 2\n"]),
        ({"RANK": "0"}, [], ["WORLD_SIZE is missing"]),
        ({"RANK": "0", "WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1",
          "OMPI_COMM_WORLD_SIZE": "2"}, [], ["disagree on the rank", "OMPI_COMM_WORLD_RANK = 1"]),
        ({"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "localhost"}, [],
         ["does not divide the 3 ranks"]),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, ["--nproc=4"],
         ["--nproc=4, but torchrun has 2 ranks"]),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, ["--transport=threads"],
         ["a process for each of the 2 ranks"]),
    ]
    for environment, flags, words in cases:
        code, out, errors = start(strata, *flags, environment=environment).end()
        require(code == 2 and out == "" and all(word in errors for word in words),
                "exit code 2 and %s" % words, (code, out, errors))


def a_rank_twice(strata):
    """Two processes believe to be rank 1 of 2, and rank 0 has nothing to wait for."""
    done = run_ranks(strata, program.torchrun_ranks(3, [0, 1, 1]), "--pipe=3")
    require(all(code != 0 for code, _, _ in done), "all end", done)
    require(any("rank 1 is there twice: on " in errors and code == 2 for code, _, errors in done),
            "the rank that is there twice", done)


def log_folder(strata):
    code, _, errors = start(strata, "--log_dir=logs", "--verbose").end()
    require(code == 0, "a training", errors)
    logs = os.listdir(strata.path("logs"))
    require(all(name.startswith("rank_") for name in logs), "files of ranks", logs)


def config(strata):
    """DeepSpeed's words in a file; flags hold over it."""
    strata.write("ds.json", json.dumps({
        "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2,
        "optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "gradient_clipping": 1,
        "fp16": {"enabled": False}, "steps": 2}))
    code, out, errors = start(strata, "--config=ds.json", "--log=config.jsonl").end()
    require(code == 0 and "batch 16 = 2 micro-batches of 8" in out, "the batch", out + errors)
    require(len(losses(strata, "config.jsonl")) == STEPS, "the flag's steps", out)


def true_torchrun(strata):
    with open(os.path.join(os.environ["TEST_SRCDIR"], "pytorch/folder.txt"), encoding="utf-8") as file:
        folder = file.read().strip()
    if not folder:
        return program.skipped("there is no PyTorch here (tools/pytorch says why)")
    torchrun = ["/usr/bin/python3", "-B", "-m", "torch.distributed.run"]
    return run_true_launcher(strata, [*torchrun, "--nproc_per_node", "2", "--no-python"],
                             {"PYTHONPATH": folder, "TMPDIR": strata.folder})


def true_mpirun(strata):
    if not shutil.which("mpirun"):
        return program.skipped("there is no mpirun here (apt-get install openmpi-bin)")
    # By its bare name: it takes its own folder for a prefix.
    return run_true_launcher(strata, ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"])


def run_true_launcher(strata, before, environment=None):
    code, out, errors = start(strata, before=before, environment=environment).end()
    require(code == 0 and out.count("step 3/3") == 1, "one training", out + errors)


if __name__ == "__main__":
    for name in [name for name in os.environ
                 if name.startswith(("OMPI_", "PMIX_", "PMI_", "SLURM_", "SM_", "TORCHELASTIC_"))]:
        del os.environ[name]
    program.main(globals())
