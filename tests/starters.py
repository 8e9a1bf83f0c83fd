#!/usr/bin/env python3
"""`strata train` as one rank of a job that another program started: what each starter leaves in the
environment, simulated, and the true starters where they are installed.

usage: starters.py STRATA MODELS TEST...
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile

STEPS = 3


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def require(condition, what, shown):
    if not condition:
        raise AssertionError("expected %s in:\n%s" % (what, shown))


class Program:
    def __init__(self, binary, models):
        self.train = [os.path.abspath(binary), "train",
                      os.path.join(os.path.abspath(models), "digits.lua"), "--steps=%d" % STEPS]
        self.folder = tempfile.mkdtemp()

    def start(self, *flags, environment=None, before=()):
        return subprocess.Popen(list(before) + self.train + list(flags), cwd=self.folder, text=True,
                                env=dict(os.environ, **(environment or {})),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ranks(self, environments, *flags):
        """Runs a process for each environment; (exit code, stdout, stderr) of each."""
        processes = [self.start(*flags, environment=one) for one in environments]
        return [(*process.communicate(), process.returncode) for process in processes]

    def losses(self, log):
        with open(os.path.join(self.folder, log)) as file:
            return [json.loads(line)["loss"] for line in file if "grad_norm" in line]

    def local_losses(self):
        process = self.start("--log=local.jsonl")
        _, errors = process.communicate()
        require(process.returncode == 0, "a local training", errors)
        return self.losses("local.jsonl")


def expect_training(strata, environments, *flags):
    """Two ranks train as a local job does, and only rank 0 speaks."""
    done = strata.ranks(environments, "--log=log.jsonl", *flags)
    for out, errors, code in done:
        require(code == 0, "exit code 0", (code, out, errors))
    require("step 3/3" in done[0][0] and "2 ranks on cpu, over gloo" in done[0][0],
            "rank 0's steps", done)
    require(done[1][0] == "" and done[1][1] == "", "nothing from rank 1", done)
    losses = strata.losses("log.jsonl")
    require(len(losses) == STEPS and losses == strata.local_losses(), "the losses of a local job",
            losses)


def torchrun(strata):
    port = free_port()
    expect_training(strata, [
        {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
         "MASTER_ADDR": "localhost", "MASTER_PORT": port} for rank in range(2)])


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
        for rank in range(2)], "--master_port=" + free_port())


def two_machines(strata):
    """Each machine starts its own rank; here both are this one."""
    address = ["--nnodes=2", "--nproc-per-node=1", "--master_addr=127.0.0.1",
               "--master-port=" + free_port(), "-p", "2"]
    processes = [strata.start("--node_rank=%d" % node, *address,
                              environment={"GLOO_SOCKET_IFNAME": "lo"}) for node in range(2)]
    done = [(*process.communicate(), process.returncode) for process in processes]
    require([code for _, _, code in done] == [0, 0], "both machines train", done)
    require("step 3/3" in done[0][0], "rank 0's steps", done)


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
        [(out, errors, code)] = strata.ranks([environment], *flags)
        require(code == 2 and out == "" and all(word in errors for word in words),
                "exit code 2 and %s" % words, (code, out, errors))


def a_rank_twice(strata):
    """Two processes believe to be rank 1 of 2, and rank 0 has nothing to wait for."""
    port = free_port()
    environments = [
        {"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "3",
         "MASTER_ADDR": "localhost", "MASTER_PORT": port} for rank in [0, 1, 1]]
    done = strata.ranks(environments, "--pipe=3")
    require(all(code != 0 for _, _, code in done), "all end", done)
    require(any("rank 1 is there twice: on " in errors and code == 2 for _, errors, code in done),
            "the rank that is there twice", done)


def log_folder(strata):
    process = strata.start("--log_dir=logs", "--verbose")
    out, errors = process.communicate()
    require(process.returncode == 0, "a training", errors)
    require(all(name.startswith("rank_") for name in os.listdir(strata.folder + "/logs")),
            "files of ranks", os.listdir(strata.folder + "/logs"))


def config(strata):
    """DeepSpeed's words in a file; flags hold over it."""
    with open(os.path.join(strata.folder, "ds.json"), "w") as file:
        json.dump({"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2,
                   "optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "gradient_clipping": 1,
                   "fp16": {"enabled": False}, "steps": 2}, file)
    process = strata.start("--config=ds.json", "--log=config.jsonl")
    out, errors = process.communicate()
    require(process.returncode == 0 and "batch 16 = 2 micro-batches of 8" in out, "the batch",
            out + errors)
    require(len(strata.losses("config.jsonl")) == STEPS, "the flag's steps", out)


def true_torchrun(strata):
    run_true_starter(strata, "torchrun", ["--nproc_per_node", "2", "--no-python"])


def true_mpirun(strata):
    run_true_starter(strata, "mpirun", ["--allow-run-as-root", "--oversubscribe", "-n", "2"])


def run_true_starter(strata, name, flags):
    if not shutil.which(name):
        print("skipped: there is no", name, "here")
        return
    process = strata.start(before=[name] + flags)  # mpirun takes its own folder for a prefix
    out, errors = process.communicate()
    require(process.returncode == 0 and out.count("step 3/3") == 1, "one training", out + errors)


def main():
    for name in [name for name in os.environ
                 if name.startswith(("OMPI_", "PMIX_", "PMI_", "SLURM_", "SM_", "TORCHELASTIC_"))]:
        del os.environ[name]
    strata = Program(sys.argv[1], sys.argv[2])
    for name in sys.argv[3:]:
        globals()[name](strata)
        print("ok", name)


if __name__ == "__main__":
    main()
