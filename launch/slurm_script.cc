#include "launch/slurm_script.h"

#include <google/protobuf/text_format.h>

#include <algorithm>

#include "launch/remote_shell.h"

namespace poseidon {
namespace {

std::string TextOf(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

// As it is, where a shell replaces variables.
std::string Verbatim(const std::string& text) {
  std::string verbatim;
  for (const char letter : text) {
    if (letter == '$' || letter == '`' || letter == '\\') verbatim += '\\';
    verbatim += letter;
  }
  return verbatim;
}

// What training starts from: fields of `training`.
std::string StartOf(const Training& training) {
  Training start;
  *start.mutable_weights() = training.weights();
  if (training.has_snapshot()) start.set_snapshot(training.snapshot());
  return TextOf(start);
}

// The job's file, in which the shell's variables stand for what is known on the nodes only.
std::string JobFile(const SlurmJob& slurm) {
  Job job = slurm.job;
  Cluster cluster = job.cluster();
  Training training = job.training();
  job.clear_run();
  job.clear_cluster();
  job.clear_training();
  cluster.clear_scheduler_host();
  training.clear_weights();
  training.clear_snapshot();
  std::string port = "$port";
  if (slurm.scheduler_port_set) port = std::to_string(cluster.scheduler_port());
  cluster.clear_scheduler_port();
  return Verbatim(TextOf(job)) + "run: $run\ncluster {\nscheduler_host: \"$address\"\n" +
         "scheduler_port: " + port + "\n" + Verbatim(TextOf(cluster)) + "}\ntraining {\n$start\n" +
         Verbatim(TextOf(training)) + "}\n" +
         (job.has_security() ? "" : "security { key_file: \"$out/job.key\" }\n");
}

// A daemon for each of `tasks`; `again`: another one when it is killed, or the job has gone on
// without it.
std::string Tasks(const std::string& role, int tasks, int nodes, bool again) {
  const std::string daemon =
      "\"$0\" --config=\"$1\" --out=\"$2\" --rank=\"$SLURM_PROCID\" 2>>\"$2/logs/" + role +
      "-$SLURM_PROCID.log\"";
  std::string command = "exec " + daemon;
  if (again) {
    command = "until " + daemon +
              "; do code=$?; [ $code -eq 8 ] || { [ $code -gt 128 ] && [ $code -ne 130 ]; } || "
              "exit $code; sleep 1; done";
  }
  return "srun --overlap --nodes=" + std::to_string(std::min(tasks, nodes)) +
         " --ntasks=" + std::to_string(tasks) +
         " --distribution=block --kill-on-bad-exit=0 --wait=0 --input=none \\\n    sh -c " +
         ShellQuoted(command) + " \"$programs/poseidon_" + role + "\" \"$job\" \"$out\" &\n";
}

}  // namespace

std::string SlurmScript(const SlurmJob& slurm) {
  const Job& job = slurm.job;
  const bool again = job.recovery().mode() == Recovery::REPLACE;
  const int tasks = std::max(job.cluster().workers(), job.cluster().servers());
  std::string script = "#!/bin/bash\n";
  script += "#SBATCH --job-name=" + ShellQuoted(job.name()) + "\n";
  script += "#SBATCH --nodes=" + std::to_string(slurm.nodes) + "\n";
  script += "#SBATCH --ntasks=" + std::to_string(tasks) + "\n";
  script += "#SBATCH --requeue\n#SBATCH --open-mode=append\n";
  script += "#SBATCH --output=" + ShellQuoted(slurm.out + "/slurm-%j.log") + "\n\n";
  script += "out=" + ShellQuoted(slurm.out) + "\n";
  script += "programs=" + ShellQuoted(slurm.programs) + "\n";
  script += "job=$out/job.prototxt\n";
  script += "restarts=${SLURM_RESTART_COUNT:-0}\n";
  script += "first=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n";
  script +=
      "address=$(scontrol show node \"$first\" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')\n";
  script +=
      "# Two ports below those of outgoing connections; other jobs on the node have others.\n";
  script += "port=$((20000 + 2 * (SLURM_JOB_ID % 6000)))\n";
  script += "run=$((SLURM_JOB_ID * 64 % 4294967232 + restarts % 64))\n";
  script += "start=" + ShellQuoted(StartOf(job.training())) + "\n";
  if (slurm.has_snapshots) {
    script += "[ \"$restarts\" -eq 0 ] || start='snapshot: \"latest\"'\n";
  }
  script += "mkdir -p \"$out/logs\"\nrm -f \"$out/summary.json\" \"$out/scheduler.journal\"\n";
  if (!slurm.job.has_security()) {
    script +=
        "# A key of this run's own, which every node reads there.\n"
        "rm -f \"$out/job.key\"\n\"$programs/poseidon\" keys --out=\"$out\" >/dev/null || exit\n";
  }
  script += "cat > \"$job\" <<END\n" + JobFile(slurm) + "END\n\n";
  const std::string scheduler =
      "\"$programs/poseidon_scheduler\" --config=\"$job\" --out=\"$out\" "
      "2>>\"$out/logs/scheduler.log\"";
  script += scheduler + " &\nscheduler=$!\n";
  script += Tasks("server", job.cluster().servers(), slurm.nodes, again);
  script += Tasks("worker", job.cluster().workers(), slurm.nodes, again);
  // A signal ends the waiting, but not yet the scheduler.
  script +=
      "stopping=\n"
      "trap 'stopping=1; kill $scheduler' TERM INT\n"
      "await_scheduler() {\n"
      "  wait $scheduler; code=$?\n"
      "  while kill -0 $scheduler 2>/dev/null; do wait $scheduler; code=$?; done\n"
      "}\n"
      "await_scheduler\n";
  if (job.recovery().mode() != Recovery::NONE) {
    script +=
        "# One that was killed goes on by its journal.\n"
        "while [ -z \"$stopping\" ] && [ $code -gt 128 ] && [ $code -ne 130 ]; do\n  " +
        scheduler + " &\n  scheduler=$!\n  await_scheduler\ndone\n";
  }
  script += "wait\n[ $code -eq 0 ] || tail -n 1 \"$out/logs/scheduler.log\"\n";
  if (slurm.restarts > 0) {
    // Our own codes that may pass, and those of a scheduler that has crashed or was killed: SIGILL,
    // SIGABRT, SIGBUS, SIGFPE, SIGKILL and SIGSEGV.
    script +=
        "case $code in\n  1|3|4|7|8|132|134|135|136|137|139)\n"
        "    if [ -z \"$stopping\" ] && [ \"$restarts\" -lt " +
        std::to_string(slurm.restarts) +
        " ]; then\n      echo \"the job is queued again\"\n      scontrol requeue "
        "\"$SLURM_JOB_ID\"\n    fi ;;\nesac\n";
  }
  return script + "exit $code\n";
}

}  // namespace poseidon
