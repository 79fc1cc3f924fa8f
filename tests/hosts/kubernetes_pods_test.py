"""The job of deploy/kubernetes, on pods that are made of its objects as a kubelet makes them: each with a
network namespace, a root of its own that can't be written to, its volumes, and no rights."""

import os
import shutil
import signal
import subprocess
import sys
import unittest

from kubernetes_test import FOLDER, USER, Manifests, yaml
from remote import NamespacesTest, cluster

# Makes the root in $1 of the machine's, with the mounts that follow as SOURCE TARGET MODE, and
# enters it as the pods' user.
ENTER = """
set -e
root=$1; work=$2; shift 2
mount --make-rprivate /
mount -t tmpfs tmpfs "$root"
mkdir "$root/upper" "$root/temporary" "$root/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/temporary" "$root/root"
root=$root/root
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do
  mkdir -p "$root$2"
  mount --bind "$1" "$root$2"
  [ "$3" = rw ] || mount -o remount,bind,ro "$root$2"
  shift 3
done
shift
cp "$HOSTS" "$root/etc/hosts.new" && rm "$root/etc/hosts" && mv "$root/etc/hosts.new" "$root/etc/hosts"
mount -o remount,ro "$root"
exec chroot "$root" setpriv --reuid=%d --regid=%d --groups=%d --bounding-set=-all --no-new-privs \
  env -i PATH=/opt/poseidon:/usr/bin:/bin sh -c 'cd "$1" && shift && exec "$@"' sh "$work" "$@"
""" % (
    USER,
    USER,
    USER,
)

# Prints the status and the body of an answer.
ASK = """
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + sys.argv[2]})
try:
    answer = urllib.request.urlopen(request, timeout=10)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode(), end="")
"""


class PodsTest(NamespacesTest):
    HOSTS = 5
    PODS = ["scheduler-0", "server-0", "server-1", "worker-0", "worker-1"]

    def setUp(self):
        if yaml is None:
            raise unittest.SkipTest("there is no PyYAML; Debian's package is python3-yaml")
        super().setUp()
        os.chmod(self.directory, 0o755)
        self.manifests = Manifests(FOLDER)
        self.networks = dict(zip(self.PODS, self.names[1:]))
        self.hosts = dict(zip(self.PODS, self.addresses))
        hosts = f"127.0.0.1 localhost\n{self.hosts['scheduler-0']} poseidon-scheduler\n"
        self.write("etc_hosts", hosts)
        self.make_secret()
        self.make_config()

    def make_volume(self, name, mode=0o2777):
        """A folder of root's and the pods' group, as fsGroup has it."""
        path = self.path(name)
        os.makedirs(path, exist_ok=True)
        os.chown(path, 0, USER)
        os.chmod(path, mode)
        return path

    def make_secret(self):
        folder = self.make_volume("secret", 0o755)
        made = self.start("poseidon", "keys", f"--out={folder}")
        self.assertEqual(made.wait(), cluster.SUCCESS)
        with open(os.path.join(folder, "monitor.token"), "w", encoding="utf-8") as file:
            file.write("0123456789abcdef0123456789abcdef\n")
        for name in os.listdir(folder):
            # What defaultMode 0400 becomes with an fsGroup.
            os.chown(os.path.join(folder, name), 0, USER)
            os.chmod(os.path.join(folder, name), 0o440)

    def make_config(self):
        folder = self.make_volume("config", 0o755)
        for name in self.manifests.files["poseidon-job"]:
            shutil.copy(os.path.join(FOLDER, name), folder)
            os.chmod(os.path.join(folder, name), 0o644)

    def find(self, role):
        kind = "Job" if role == "scheduler" else "StatefulSet"
        return self.manifests.objects[kind, f"poseidon-{role}"]["spec"]["template"]["spec"]

    def source_of(self, pod, name, volumes):
        volume = volumes.get(name, {})
        if "configMap" in volume:
            return self.path("config")
        if "secret" in volume:
            return self.path("secret")
        return self.make_volume(f"volume-{pod}-{name}")

    def start_container(self, pod, container, volumes):
        role, rank = pod.split("-")
        mounts = []
        for mount in container["volumeMounts"]:
            source = self.source_of(pod, mount["name"], volumes)
            mode = "ro" if mount.get("readOnly") else "rw"
            mounts += [source, mount["mountPath"], mode]
        programs = os.path.join(self.path("image"), "programs")
        if not os.path.isdir(programs):
            shutil.copytree(cluster.programs(), programs)
        configs = os.path.join(cluster.REPOSITORY, "configs")
        mounts += [programs, "/opt/poseidon", "ro", configs, "/usr/share/poseidon/configs", "ro"]
        words = [*container["command"], *container.get("args", [])]
        words = [word.replace("$(RANK)", rank) for word in words]
        root = self.path(f"root-{pod}-{len(self.processes)}")
        os.mkdir(root)
        command = [
            *("ip", "netns", "exec", self.networks[pod]),
            *("env", f"HOSTS={self.path('etc_hosts')}"),
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh"),
            *(root, container.get("workingDir", "/"), *mounts, "--", *words),
        ]
        return self.spawn(f"{pod}-{container['name']}-{len(self.processes)}", command)

    def start_pod(self, pod):
        """Its containers, the last of which runs on."""
        spec = self.find(pod.split("-")[0])
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for container in spec["initContainers"]:
            self.assertEqual(self.start_container(pod, container, volumes).wait(), cluster.SUCCESS)
        return self.start_container(pod, spec["containers"][0], volumes)

    def ask(self, pod, port, path, token=""):
        """Status and body, as a probe or Prometheus asks from another pod."""
        url = f"http://{self.hosts[pod]}:{port}{path}"
        command = [*self.enter_home(), sys.executable, "-c", ASK, url, token]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        status, _, text = said.partition(" ")
        return int(status), text

    def daemon_of(self, worker):
        """The process of a worker's pod that trains."""
        inside = subprocess.run(
            ["ip", "netns", "pids", self.networks[worker]],
            capture_output=True,
            text=True,
            check=True,
        )
        (daemon,) = [
            int(pid)
            for pid in inside.stdout.split()
            # With engine TORCH it has become the second.
            if os.readlink(f"/proc/{pid}/exe").endswith(
                ("/poseidon_worker", "/poseidon_torch_worker")
            )
        ]
        return daemon

    @cluster.slow
    def test_trains_and_replaces_a_pod_that_was_killed(self):
        pods = {pod: self.start_pod(pod) for pod in self.PODS}
        pods["scheduler-0"].await_output(r"iteration [1-9]\d*/400")
        self.assertEqual(self.ask("scheduler-0", 9780, "/healthz"), (200, "ok\n"))
        self.assertEqual(self.ask("server-1", 9781, "/healthz"), (200, "ok\n"))
        self.assertEqual(self.ask("worker-0", 9781, "/metrics")[0], 401)
        status, metrics = self.ask("worker-1", 9781, "/metrics", "0123456789abcdef" * 2)
        self.assertEqual(status, 200)
        self.assertRegex(metrics, r'poseidon_node_sent_bytes_total\{role="worker",rank="1"\} [1-9]')

        metrics = self.ask("server-0", 9781, "/metrics", "0123456789abcdef" * 2)[1]
        for name in ("iteration", "received_bytes_total"):
            labels = 'role="server",rank="0"'
            self.assertRegex(metrics, rf"poseidon_node_{name}\{{{labels}\}} [1-9]")

        # As when its memory is at an end; the StatefulSet starts another.
        os.kill(self.daemon_of("worker-1"), signal.SIGKILL)
        self.assertEqual(pods["worker-1"].wait(), 128 + signal.SIGKILL)
        pods["worker-1"] = self.start_pod("worker-1")

        self.assertEqual(pods["scheduler-0"].wait(), cluster.SUCCESS)
        summary = self.read_json("volume-scheduler-0-work/results/summary.json")
        self.assertEqual(summary["exit_code"], 0)
        self.assertEqual(len(summary["recoveries"]), 1)
        self.assertGreater(summary["test_accuracy"], 0.95)
        self.assert_same_parameters(summary, 2)
        snapshots = os.listdir(self.path("volume-worker-0-work/snapshots"))
        self.assertIn("lenet_iter_400.solverstate", snapshots)
        for pod in self.PODS[1:]:
            pods[pod].await_output("the daemon has ended with code 0; the pod stays")

    @cluster.slow
    def test_every_node_of_a_job_that_ends_badly_writes_its_events(self):
        pods = {pod: self.start_pod(pod) for pod in self.PODS}
        pods["scheduler-0"].await_output(r"iteration [1-9]\d*/400")
        os.kill(self.daemon_of("worker-1"), signal.SIGINT)
        self.assertEqual(pods["scheduler-0"].wait(), cluster.PEER_LOST)
        for pod in self.PODS[1:]:
            pods[pod].await_output("the pod stays")
        # As docs/deploy.md brings them together.
        os.mkdir(self.path("together"))
        for pod in self.PODS:
            volume = "results" if pod.startswith("worker") else "work/results"
            shutil.copytree(
                self.path(f"volume-{pod}-{volume}"), self.path("together"), dirs_exist_ok=True
            )
        events = [name for name in os.listdir(self.path("together")) if ".events." in name]
        nodes = ["scheduler", *self.PODS[1:]]
        self.assertEqual(sorted(events), sorted(f"{node}.events.json" for node in nodes))
        self.assert_explained("interrupted", "worker-1", "together")


if __name__ == "__main__":
    cluster.main()
