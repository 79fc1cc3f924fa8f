"""`poseidon launch slurm`: with commands that stand for Slurm's, and with a Slurm of the test's own that has
four nodes on this machine."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest

from remote import cluster

# What the batch script calls, on one node that is this machine.
SCONTROL = """#!/bin/sh
case "$1 $2" in
  "show hostnames") echo node0 ;;
  "show node") echo "   NodeAddr=127.0.0.1 NodeHostName=node0" ;;
esac
"""
SRUN = """#!/bin/sh
while :; do
  case $1 in --ntasks=*) tasks=${1#--ntasks=} ;; --*) ;; *) break ;; esac
  shift
done
rank=0
while [ $rank -lt $tasks ]; do SLURM_PROCID=$rank "$@" & rank=$((rank + 1)); done
wait
"""
SBATCH = """#!/bin/sh
export SLURM_JOB_ID={number} SLURM_JOB_NODELIST=node0 SLURM_RESTART_COUNT=0
exec bash "$1"
"""


class LaunchTest(cluster.ClusterTest):
    def set_environment(self, name, value):
        before = os.environ.get(name)
        os.environ[name] = value
        if before is None:
            self.addCleanup(os.environ.pop, name)
        else:
            self.addCleanup(os.environ.__setitem__, name, before)

    def launch(self, config, *arguments, out="out"):
        path = self.write("config.prototxt", config)
        return self.start(
            *("poseidon", "launch", "slurm", f"--config={path}", f"--out={self.path(out)}"),
            *arguments,
        )


class StandInTest(LaunchTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("bin"))
        number = os.getpid() % 6000
        for name, text in (("scontrol", SCONTROL), ("srun", SRUN), ("sbatch", SBATCH)):
            self.write(f"bin/{name}", text.replace("{number}", str(number)))
            os.chmod(self.path(f"bin/{name}"), 0o755)
        self.set_environment("PATH", self.path("bin") + ":" + os.environ["PATH"])

    def test_trains(self):
        name = 'name: "$(touch /none) `x` \\\\\\\\"'
        config = cluster.replay_config(servers=1, iterations=5).replace('name: "test"', name)
        job = self.launch(config)
        self.assertEqual(job.wait(), cluster.SUCCESS, job.output())
        self.assertIn("iteration 5/5 ", job.output())
        summary = self.read_json("out/summary.json")
        self.assertEqual(summary["job"], "$(touch /none) `x` \\\\")
        self.assert_same_parameters(summary, 2)
        self.assertTrue(os.path.exists(self.path("out/logs/worker-1.log")))
        self.assert_nothing_left(cluster.ENDING)

    def test_only_writes_the_script(self):
        job = self.launch(cluster.replay_config(), "--nosubmit", "--restarts=2")
        self.assertEqual(job.wait(), cluster.SUCCESS, job.output())
        with open(self.path("out/job.sbatch"), encoding="utf-8") as file:
            script = file.read()
        self.assertIn("#SBATCH --requeue\n", script)
        self.assertIn("scontrol requeue", script)
        subprocess.run(["bash", "-n", self.path("out/job.sbatch")], check=True)

    def test_a_key_in_the_config_is_not_in_the_script(self):
        keys = self.start("poseidon", "keys", f"--out={self.path('keys')}")
        self.assertEqual(keys.wait(), cluster.SUCCESS)
        with open(self.path("keys/job.key"), encoding="ascii") as file:
            key = file.read().strip()
        job = self.launch(cluster.replay_config(security=f'key: "{key}\\n"'), "--nosubmit")
        self.assertEqual(job.wait(), cluster.SUCCESS, job.output())
        with open(self.path("out/job.sbatch"), encoding="utf-8") as file:
            script = file.read()
        self.assertNotIn(key, script)
        self.assertIn(f'key_file: "{self.path("out/config.key")}"', script)
        with open(self.path("out/config.key"), encoding="ascii") as file:
            self.assertEqual(file.read().strip(), key)

    def test_a_submission_that_nobody_reads_is_one(self):
        self.write("bin/sbatch", '#!/bin/sh\nsleep 1; echo submitted; touch "$0.submitted"\n')
        path = self.write("config.prototxt", cluster.replay_config())
        poseidon = os.path.join(cluster.programs(), "poseidon")
        launched = subprocess.run(
            f"{poseidon} launch slurm --config={path} --out={self.path('out')} | true;"
            ' exit "${PIPESTATUS[0]}"',
            shell=True,
            executable="/bin/bash",
            capture_output=True,
            text=True,
            check=False,
            timeout=cluster.scaled(cluster.PATIENCE),
        )
        self.assertEqual(launched.returncode, cluster.SUCCESS, launched.stderr)
        self.assertTrue(os.path.exists(self.path("bin/sbatch.submitted")))

    def test_a_directory_that_slurm_would_not_find_is_refused(self):
        job = self.launch(cluster.replay_config(), out="a\\b")
        self.assertEqual(job.wait(), cluster.CONFIG_ERROR)
        self.assertIn("has a backslash in its name, which Slurm takes out", job.output())
        self.assertFalse(os.path.exists(self.path("a\\b")))

    def test_servers_on_machines_of_their_own_are_refused(self):
        job = self.launch(cluster.replay_config(cluster="network { colocated: false }"))
        self.assertEqual(job.wait(), cluster.CONFIG_ERROR)
        self.assertIn("cluster.network.colocated is false, but Slurm's tasks", job.output())
        self.assertFalse(os.path.exists(self.path("out")))


NODES = 4


class SlurmTest(LaunchTest):
    """A Slurm of the test's own, whose nodes are this machine."""

    def setUp(self):
        for program in ("slurmctld", "slurmd", "sbatch"):
            if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin") is None:
                raise unittest.SkipTest(
                    f"there is no {program}; Debian's packages are slurmctld, slurmd, slurm-client"
                )
        if os.geteuid() != 0:
            raise unittest.SkipTest("Slurm's daemons need root")
        super().setUp()
        host = socket.gethostname()
        ports = [port for _ in range(NODES) for port in (cluster.free_port_pair(),)]
        nodes = "".join(
            f"NodeName=node{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs="
            f"{os.cpu_count()} State=UNKNOWN\n"
            for number, port in enumerate(ports)
        )
        config = self.write(
            "slurm.conf",
            f"""ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={cluster.free_port_pair()}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
SlurmUser=root
StateSaveLocation={self.path("state")}
SlurmdSpoolDir={self.path("spool")}-%n
SlurmctldPidFile={self.path("slurmctld.pid")}
SlurmdPidFile={self.path("slurmd")}-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
ReturnToService=2
MpiDefault=none
SchedulerParameters=sched_interval=1
{nodes}PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""",
        )
        self.set_environment("SLURM_CONF", config)
        os.mkdir(self.path("state"))
        self.spawn("slurmctld", ["/usr/sbin/slurmctld", "-D"])
        for number in range(NODES):
            os.mkdir(self.path(f"spool-node{number}"))
            # What it has started ends with it, as a node's processes do.
            command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
            command += ["/usr/sbin/slurmd", "-D", "-N", f"node{number}"]
            self.spawn(f"slurmd-{number}", command)
        self.until(lambda: self.ask("sinfo", "-h", "-o", "%T %D").strip() == f"idle {NODES}")

    def ask(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def until(self, condition):
        deadline = time.monotonic() + cluster.scaled(cluster.PATIENCE)
        while not condition():
            self.assertLess(time.monotonic(), deadline, self.ask("squeue"))
            time.sleep(0.1)

    def progress(self):
        """What the job has said."""
        names = [name for name in os.listdir(self.path("out")) if name.startswith("slurm-")]
        if not names:
            return ""
        with open(self.path(f"out/{names[0]}"), encoding="utf-8") as file:
            return file.read()

    def number_of(self, job):
        return job.await_output(r"Submitted batch job (\d+)").group(1)

    @cluster.slow
    def test_trains_on_four_nodes(self):
        config = cluster.replay_config(workers=NODES, servers=NODES)
        job = self.launch(config, "--sbatch_flags=--wait")
        self.assertEqual(job.wait(), cluster.SUCCESS, job.output() + self.progress())
        self.assert_same_parameters(self.read_json("out/summary.json"), NODES)

    @cluster.slow
    def test_is_queued_again_when_a_worker_is_killed(self):
        config = cluster.replay_config(iterations=1000)
        self.number_of(self.launch(config, "--restarts=1"))
        self.until(lambda: "iteration " in self.progress())
        os.kill(self.pid_of("worker", 1), signal.SIGKILL)
        self.until(lambda: "the job is queued again" in self.progress())
        self.until(lambda: self.progress().count("all 4 nodes have joined") == 2)
        self.until(lambda: "iteration 1000/1000" in self.progress())

    @cluster.slow
    def test_a_killed_worker_comes_back_with_recovery(self):
        config = cluster.replay_config(iterations=1000) + "recovery { mode: REPLACE }"
        self.number_of(self.launch(config))
        self.until(lambda: "iteration " in self.progress())
        os.kill(self.pid_of("worker", 1), signal.SIGKILL)
        self.until(lambda: "lost worker 1" in self.progress())
        self.until(lambda: "iteration 1000/1000" in self.progress())
        self.assertEqual(self.progress().count("all 4 nodes have joined"), 1)

    @cluster.slow
    def test_goes_on_from_the_newest_snapshot(self):
        if not cluster.has_torch():
            self.skipTest("this build can't train nets")
        self.write_lenet()
        number = self.number_of(self.launch(self.lenet))
        self.until(lambda: os.path.exists(self.path("lenet_iter_20.solverstate")))
        self.ask("scontrol", "requeue", number)
        going_on = r"going on from iteration [1-9]\d*, .*lenet_iter_"
        self.until(lambda: re.search(going_on, self.progress()))
        self.until(lambda: "iteration 400/400" in self.progress())

    def write_lenet(self, snapshot=20, iterations=400):
        """The demo's job, with a snapshot every so many iterations, on data of its own."""
        configs = os.path.join(cluster.REPOSITORY, "configs")
        made = self.start(
            *("poseidon", "convert", "csv", f"--source={configs}/data/digits.csv"),
            *(f"--out={self.path('digits')}", "--max_value=16", "--scale_height=28"),
            *("--scale_width=28", "--train_records=1500"),
        )
        self.assertEqual(made.wait(), cluster.SUCCESS, made.output())
        with open(f"{configs}/models/lenet/net.prototxt", encoding="utf-8") as file:
            net = self.write("net.prototxt", file.read().replace("out/digits", self.path("digits")))
        with open(f"{configs}/models/lenet/solver.prototxt", encoding="utf-8") as file:
            text = re.sub('net: ".*"', f'net: "{net}"', file.read())
        text += f'\nsnapshot: {snapshot}\nsnapshot_prefix: "{self.path("lenet")}"\n'
        solver = self.write("solver.prototxt", text)
        self.lenet = f"""cluster {{ workers: 2 servers: 2 }}
            training {{ solver: "{solver}" iterations: {iterations} threads: 1 seed: 1 }}"""

    @cluster.slow
    def test_stops_with_a_snapshot_when_its_time_is_over(self):
        """Slurm says so by SIGUSR1; a SIGTERM ends the job for good."""
        if not cluster.has_torch():
            self.skipTest("this build can't train nets")
        self.write_lenet(snapshot=0, iterations=cluster.ENDLESS)
        number = self.number_of(self.launch(self.lenet))
        self.until(lambda: "iteration " in self.progress())
        self.ask("scancel", "--batch", "--signal=USR1", number)
        self.until(lambda: "its time is over: the job is queued again" in self.progress())
        self.until(lambda: re.search(r"going on from iteration [1-9]\d*, ", self.progress()))
        started = self.progress().count("\niteration ")
        self.until(lambda: self.progress().count("\niteration ") > started)
        self.ask("scancel", "--batch", "--signal=TERM", number)
        self.until(lambda: self.ask("squeue", "-h", "-j", number).strip() in ("", "Invalid job id"))
        self.assertEqual(self.progress().count("queued again"), 1)
        summary = self.read_json("out/summary.json")
        self.assertEqual(summary["exit_code"], cluster.INTERRUPTED)
        last = int(re.search(r"before iteration (\d+)", summary["reason"]).group(1))
        self.assertTrue(os.path.exists(self.path(f"lenet_iter_{last}.solverstate")), summary)


if __name__ == "__main__":
    cluster.main()
