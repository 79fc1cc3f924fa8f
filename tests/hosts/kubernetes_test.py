"""deploy/kubernetes: that its objects fit each other, the job config and the published schemas, what its
script makes of exit codes, and that the job which they describe trains."""

import base64
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

from remote import cluster

try:
    import yaml
except ImportError:
    yaml = None
try:
    from kubernetes import client as kubernetes
except ImportError:
    kubernetes = None

FOLDER = os.path.join(cluster.REPOSITORY, "deploy/kubernetes")
RESULTS = os.path.join(FOLDER, "results.yaml")
USER = 10001
# Until Kubernetes takes a claim from a machine that does not answer: its attach-detach controller's
# maxWaitForUnmountDuration.
DETACH_SECONDS = 360
KILLED = 128 + signal.SIGKILL


def read(name):
    with open(os.path.join(cluster.REPOSITORY, name), encoding="utf-8") as file:
        return file.read()


def find(text, field):
    """A number or string of a config in text format."""
    return re.search(rf'\b{field}: "?([^"\s]+)', text)[1]


def load(path):
    """The objects of a file."""
    with open(path, encoding="utf-8") as file:
        return list(yaml.safe_load_all(file))


class Manifests:
    """What the folder describes, as `kubectl kustomize` makes it of `folder`."""

    def __init__(self, folder):
        self.kustomization = self._load(folder, "kustomization.yaml")[0]
        self.files = {}
        for generator in ("configMapGenerator", "secretGenerator"):
            for entry in self.kustomization[generator]:
                self.files[entry["name"]] = [os.path.basename(path) for path in entry["files"]]
        objects = [o for name in self.kustomization["resources"] for o in self._load(folder, name)]
        counts = {entry["name"]: entry["count"] for entry in self.kustomization["replicas"]}
        for found in objects:
            if found["kind"] == "StatefulSet":
                found["spec"]["replicas"] = counts.pop(found["metadata"]["name"])
        assert not counts, counts
        self.objects = {(o["kind"], o["metadata"]["name"]): o for o in objects}
        assert len(self.objects) == len(objects)

    @staticmethod
    def _load(folder, name):
        return load(os.path.join(folder, name))

    def of(self, *kinds):
        return [found for (kind, _), found in self.objects.items() if kind in kinds]

    def programs(self):
        """All that start pods."""
        return self.of("Job", "StatefulSet")


def containers_of(pod):
    return [*pod.get("initContainers", []), *pod["containers"]]


class ManifestTest(unittest.TestCase):
    def setUp(self):
        if yaml is None:
            raise unittest.SkipTest("there is no PyYAML; Debian's package is python3-yaml")
        self.manifests = Manifests(FOLDER)
        self.job = read("deploy/kubernetes/job.prototxt")
        self.pods = [found["spec"]["template"] for found in self.manifests.programs()]

    def test_there_are_as_many_pods_as_nodes(self):
        for role in ("server", "worker"):
            found = self.manifests.objects["StatefulSet", f"poseidon-{role}"]["spec"]
            self.assertEqual(found["replicas"], int(find(self.job, f"{role}s")))
            self.assertEqual(found["podManagementPolicy"], "Parallel")
        self.assertNotIn("parallelism", self.manifests.of("Job")[0]["spec"])

    def test_no_pod_of_a_running_job_is_replaced_by_one_of_another_image(self):
        """Nor does one that is started again get it: its number is below the partition."""
        sets = self.manifests.of("StatefulSet")
        self.assertEqual(len(sets), 2)
        for found in sets:
            strategy = found["spec"].get("updateStrategy", {})
            self.assertEqual(strategy.get("type"), "RollingUpdate")
            self.assertGreater(strategy["rollingUpdate"]["partition"], 100_000)

    def test_every_volume_is_there_and_every_mount_has_one(self):
        for found in self.manifests.programs():
            pod = found["spec"]["template"]["spec"]
            claims = [c["metadata"]["name"] for c in found["spec"].get("volumeClaimTemplates", [])]
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            for volume in volumes.values():
                if "configMap" in volume:
                    self.assertIn(volume["configMap"]["name"], self.manifests.files)
                elif "secret" in volume:
                    self.assertIn(volume["secret"]["secretName"], self.manifests.files)
                    self.assertEqual(volume["secret"]["defaultMode"], 0o400)
                elif "persistentVolumeClaim" in volume:
                    claim = volume["persistentVolumeClaim"]["claimName"]
                    self.assertIn(("PersistentVolumeClaim", claim), self.manifests.objects)
                else:
                    self.assertIn("emptyDir", volume)
            mounted = set()
            for container in containers_of(pod):
                mounted |= {mount["name"] for mount in container["volumeMounts"]}
            self.assertEqual(mounted, {*volumes, *claims})

    def test_every_file_that_is_named_is_there(self):
        job_files, keys = (
            self.manifests.files["poseidon-job"],
            self.manifests.files["poseidon-keys"],
        )
        self.assertIn(find(self.job, "solver"), job_files)
        for field in ("key_file", "token_file"):
            self.assertIn(find(self.job, field), [f"/run/poseidon/{key}" for key in keys])
        for name in job_files:
            self.assertTrue(os.path.exists(os.path.join(FOLDER, name)), name)
        for pod in self.pods:
            init, main = pod["spec"]["initContainers"][0], pod["spec"]["containers"][0]
            words = [*init["command"], *main["command"], *main["args"]]
            named = re.findall(r"/(etc/poseidon|secrets)/(\S+)", " ".join(words))
            self.assertEqual(
                sorted(named),
                sorted(
                    [("etc/poseidon", "job.prototxt"), ("etc/poseidon", "node.sh")]
                    + [("secrets", key) for key in keys]
                ),
            )
        net = find(read("deploy/kubernetes/solver.prototxt"), "net")
        self.assertTrue(net.startswith("/usr/share/poseidon/configs/"), net)
        read(net.removeprefix("/usr/share/poseidon/"))

    def test_keys_are_copied_with_a_mode_that_daemons_take(self):
        for pod in self.pods:
            init = pod["spec"]["initContainers"][0]
            self.assertEqual(init["command"][:5], ["install", "-m", "0400", "-t", "/run/poseidon"])
            # The Secret itself is the group's, too, and not for the daemon.
            mounts = [mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]
            self.assertNotIn("/secrets", mounts)

    def test_every_daemon_has_an_output_directory_that_no_later_job_finds_full(self):
        for pod in self.pods:
            (container,) = pod["spec"]["containers"]
            self.assertIn("--out=results", container["args"])
            out = os.path.join(container["workingDir"], "results")
            mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
            mount = mounts.get(out) or mounts[container["workingDir"]]
            self.assertNotIn("readOnly", mount)
            volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
            # The scheduler's claim goes with the job.
            wanted = "persistentVolumeClaim" if container["name"] == "scheduler" else "emptyDir"
            self.assertIn(wanted, volumes.get(mount["name"], {}), container["name"])

    def test_the_pod_for_results_has_the_schedulers_claim_where_the_scheduler_has_it(self):
        (pod,) = load(RESULTS)
        scheduler = self.manifests.of("Job")[0]["spec"]["template"]["spec"]
        for spec in (pod["spec"], scheduler):
            (volume,) = [v for v in spec["volumes"] if "persistentVolumeClaim" in v]
            claim = volume["persistentVolumeClaim"]["claimName"]
            self.assertIn(("PersistentVolumeClaim", claim), self.manifests.objects)
            (container,) = spec["containers"]
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            self.assertEqual(mounts[volume["name"]], scheduler["containers"][0]["workingDir"])
        self.assertNotIn(os.path.basename(RESULTS), self.manifests.kustomization["resources"])

    def test_ports_are_those_of_the_job_config(self):
        scheduler, monitor = int(find(self.job, "scheduler_port")), int(find(self.job, "port"))
        node = int(find(self.job, "node_port"))
        wanted = {"control": scheduler, "heartbeat": scheduler + 1, "monitor": monitor}
        self.assertEqual(find(self.job, "address"), "0.0.0.0")
        for pod in self.pods:
            (container,) = pod["spec"]["containers"]
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            is_scheduler = container["name"] == "scheduler"
            self.assertEqual(ports, wanted if is_scheduler else {"metrics": node})
            self.assertIn("readinessProbe", container)
            probes = [container[name]["httpGet"] for name in container if name.endswith("Probe")]
            for probe in probes:
                self.assertEqual(probe["path"], "/healthz")
                self.assertEqual(probe["port"], "monitor" if is_scheduler else "metrics")
        services = {
            service["metadata"]["name"]: service for service in self.manifests.of("Service")
        }
        self.assertIn(find(self.job, "scheduler_host"), services)
        served = services["poseidon-scheduler"]["spec"]["ports"]
        self.assertEqual({port["targetPort"]: port["port"] for port in served}, wanted)

    def test_services_and_sets_select_their_pods(self):
        def selected(selector):
            return [
                pod["spec"]["containers"][0]["name"]
                for pod in self.pods
                if selector.items() <= pod["metadata"]["labels"].items()
            ]

        chosen = {
            service["metadata"]["name"]: selected(service["spec"]["selector"])
            for service in self.manifests.of("Service")
        }
        self.assertEqual(
            chosen,
            {"poseidon-scheduler": ["scheduler"], "poseidon-nodes": ["server", "worker"]},
        )
        for found in self.manifests.of("StatefulSet"):
            self.assertEqual(len(selected(found["spec"]["selector"]["matchLabels"])), 1)
            service = self.manifests.objects["Service", found["spec"]["serviceName"]]
            self.assertEqual(service["spec"]["clusterIP"], "None")

    def test_the_job_waits_for_longer_than_a_pod_takes_to_leave_a_dead_machine(self):
        wanted = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
        longest = 0
        for pod in self.pods:
            tolerations = pod["spec"]["tolerations"]
            self.assertEqual({toleration["key"] for toleration in tolerations}, wanted)
            for toleration in tolerations:
                self.assertEqual(toleration["operator"], "Exists")
                self.assertEqual(toleration["effect"], "NoExecute")
                longest = max(longest, toleration["tolerationSeconds"])
        # The new one may be on a new machine, to which the image comes first.
        needed = longest + DETACH_SECONDS + float(find(self.job, "join_deadline_seconds"))
        for deadline in ("replacement_deadline_seconds", "scheduler_deadline_seconds"):
            self.assertGreater(float(find(self.job, deadline)), needed)

    def test_pods_have_no_rights(self):
        for pod in [*self.pods, *load(RESULTS)]:
            context = pod["spec"]["securityContext"]
            self.assertTrue(context["runAsNonRoot"])
            user = context["runAsUser"]
            self.assertEqual(user, USER)
            self.assertIn(f"USER {user}:", read("deploy/container/Containerfile"))
            for container in containers_of(pod["spec"]):
                rights = container["securityContext"]
                self.assertEqual(rights["capabilities"], {"drop": ["ALL"]})
                self.assertFalse(rights["allowPrivilegeEscalation"])
                self.assertTrue(rights["readOnlyRootFilesystem"])
                self.assertEqual(
                    container["image"], self.manifests.kustomization["images"][0]["name"]
                )

    def test_every_end_that_a_scheduler_has_told_of_is_the_jobs(self):
        codes = [int(code) for code in re.findall(r"(?m)^\| (\d+) \|", read("docs/errors.md"))]
        # And the shell's codes for a program that is not there, or does not run.
        failing = sorted({*codes, 126, 127, cluster.INTERRUPTED} - {0})
        (found,) = self.manifests.of("Job")
        rules = found["spec"]["podFailurePolicy"]["rules"]
        self.assertEqual(rules[0]["action"], "FailJob")
        self.assertEqual(sorted(rules[0]["onExitCodes"]["values"]), failing)
        pod = found["spec"]["template"]["spec"]
        self.assertEqual(rules[0]["onExitCodes"]["containerName"], pod["containers"][0]["name"])
        self.assertEqual(pod["restartPolicy"], "Never")
        # Kubernetes' own 6 are for programs that fail by themselves.
        self.assertGreaterEqual(found["spec"]["backoffLimit"], 100)

    def test_a_scheduler_without_its_keys_is_not_tried_again(self):
        """But one whose pod had to leave its machine, or was killed, meanwhile."""
        (found,) = self.manifests.of("Job")
        rules = found["spec"]["podFailurePolicy"]["rules"]
        pod = found["spec"]["template"]["spec"]
        keys = pod["initContainers"][0]["name"]
        self.assertEqual([rule["action"] for rule in rules], ["FailJob", "Ignore", "FailJob"])
        self.assertEqual(
            rules[2]["onExitCodes"],
            {"containerName": keys, "operator": "In", "values": [1, 126, 127]},
        )
        # So the API demands it.
        for rule in (rules[0], rules[2]):
            values = rule["onExitCodes"]["values"]
            self.assertEqual(values, sorted(set(values)))
            self.assertLessEqual(len(values), 255)


class SchemaTest(cluster.ClusterTest):
    """The objects that kubectl makes, by the published schemas."""

    def setUp(self):
        if shutil.which("kubectl") is None:
            raise unittest.SkipTest("there is no kubectl; Debian's package is kubernetes-client")
        if yaml is None:
            raise unittest.SkipTest("there is no PyYAML; Debian's package is python3-yaml")
        super().setUp()

    def render(self):
        folder = self.path("kubernetes")
        shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("keys"))
        os.mkdir(os.path.join(folder, "keys"))
        for name in ("job.key", "monitor.token"):
            with open(os.path.join(folder, "keys", name), "w", encoding="utf-8") as file:
                file.write(f"the {name}\n")
        command = ["kubectl", "kustomize", folder]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
        return list(yaml.safe_load_all(made.stdout))

    def test_kustomize_makes_what_the_folder_says(self):
        objects = {(o["kind"], o["metadata"]["name"]): o for o in self.render()}
        manifests = Manifests(FOLDER)
        generated = {("ConfigMap", "poseidon-job"), ("Secret", "poseidon-keys")}
        self.assertEqual(objects.keys(), manifests.objects.keys() | generated)
        secret = objects["Secret", "poseidon-keys"]["data"]
        self.assertEqual(base64.b64decode(secret["job.key"]), b"the job.key\n")
        config = objects["ConfigMap", "poseidon-job"]["data"]
        self.assertEqual(config["job.prototxt"], read("deploy/kubernetes/job.prototxt"))
        for key, found in objects.items():
            self.assertEqual(found["metadata"]["labels"]["app.kubernetes.io/name"], "poseidon", key)

    def check(self, found):
        """By the client's model of the object, which is made of the published schema."""
        getattr(kubernetes, f"V1{found['kind']}").model_validate(found)

    def skip_without_schemas(self):
        if not hasattr(getattr(kubernetes, "V1Job", None), "model_validate"):
            raise unittest.SkipTest(
                "there is no Kubernetes client that checks objects; PyPI's is kubernetes, of 2026"
            )

    def test_all_objects_are_as_the_schemas_say(self):
        self.skip_without_schemas()
        for found in [*self.render(), *load(RESULTS)]:
            with self.subTest(found["kind"], name=found["metadata"]["name"]):
                self.check(found)

    def test_a_wrong_object_is_found(self):
        self.skip_without_schemas()
        pod = {"containers": [{"nam": "x"}]}
        wrong = {"kind": "Job", "spec": {"template": {"spec": pod}, "backoffLimit": "6"}}
        with self.assertRaises(ValueError) as caught:
            self.check(wrong)
        for words in ("backoffLimit\n  Input should be a valid integer", "name\n  Field required"):
            self.assertIn(words, str(caught.exception))


class NodeScriptTest(cluster.ClusterTest):
    """node.sh, with shells that stand for daemons."""

    def run_script(self, after, command):
        script = os.path.join(FOLDER, "node.sh")
        # The last word marks what this test has started.
        words = ["sh", script, after, "sh", "-c", command, self.directory]
        return self.spawn(f"node-{len(self.processes)}", words)

    def test_where_nothing_is_to_follow_the_pod_stays(self):
        codes = (0, 1, 2, 3, 4, 5, 6, 7, 9, cluster.INTERRUPTED)
        pods = {code: self.run_script("stay", f"exit {code}") for code in codes}
        for code, pod in pods.items():
            pod.await_output(f"the daemon has ended with code {code}; the pod stays")
        for pod in pods.values():
            pod.signal(signal.SIGTERM)
            self.assertEqual(pod.wait(), 0)

    def test_where_another_is_to_take_its_place_the_pod_ends(self):
        self.assertEqual(
            self.run_script("stay", f"exit {cluster.GIVEN_UP}").wait(), cluster.GIVEN_UP
        )
        self.assertEqual(self.run_script("stay", "kill -KILL $$").wait(), KILLED)

    def test_a_schedulers_pod_ends_with_its_code(self):
        for code in (0, 3, cluster.INTERRUPTED):
            self.assertEqual(self.run_script("leave", f"exit {code}").wait(), code)
        self.assertEqual(self.run_script("leave", "kill -KILL $$").wait(), KILLED)

    def test_a_daemon_whose_pod_is_moved_is_lost_and_not_interrupted(self):
        command = "trap 'exit 130' TERM; echo runs; while :; do sleep 0.05; done"
        for after in ("stay", "leave"):
            pod = self.run_script(after, command)
            pod.await_output("runs")
            pod.signal(signal.SIGTERM)
            self.assertEqual(pod.wait(), KILLED)

    def test_an_interrupt_is_passed_on(self):
        # Not a shell: what runs in a shell's background ignores the signal unless it asks for it.
        daemon = (
            "import signal, sys, time\n"
            "signal.signal(signal.SIGINT, lambda *_: sys.exit(7))\n"
            "print('runs', flush=True)\n"
            "while True: time.sleep(0.05)\n"
        )
        pod = self.run_script("leave", f'exec {sys.executable} -c "{daemon}"')
        pod.await_output("runs")
        pod.signal(signal.SIGINT)
        self.assertEqual(pod.wait(), 7)


if __name__ == "__main__":
    cluster.main()
