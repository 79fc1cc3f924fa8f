#include "launch/slurm_script.h"

#include <google/protobuf/text_format.h>

#include <algorithm>

#include "launch/handed_key.h"
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

// As it is, where Slurm replaces what stands behind a %.
std::string WithoutPatterns(const std::string& path) {
  std::string verbatim;
  for (const char letter : path) verbatim += letter == '%' ? "%%" : std::string(1, letter);
  return verbatim;
}

// What training starts from: fields of `training`.
std::string StartOf(const Training& training) {
  Training start;
  *start.mutable_weights() = training.weights();
  if (training.has_snapshot()) start.set_snapshot(training.snapshot());
  return TextOf(start);
}

// Where a job that was queued again goes on: from its own newest snapshot, or else as it was
// submitted. What an earlier job has left under the prefix is none of its own.
// A training that has come to its end is not begun once more, as by `poseidon run --restarts`.
std::string OwnSnapshot(const SlurmJob& slurm) {
  const std::string any = ShellQuoted(slurm.snapshot_prefix) + "_iter_*.solverstate";
  return "own=\nmost=-1\n"
         "began=$(cat \"$out/began\" 2>/dev/null)\n"
         "if [ \"$restarts\" -eq 0 ] || [ \"$began\" != \"$SLURM_JOB_ID\" ]; then\n"
         "  mkdir -p \"$out\" && echo \"$SLURM_JOB_ID\" > \"$out/began\"\n"
         "else\n"
         "  for snapshot in " +
         any + " " + any +
         ".h5; do\n"
         "    [ \"$snapshot\" -nt \"$out/began\" ] || continue\n"
         "    number=${snapshot##*_iter_}\n    number=${number%%.*}\n"
         "    case $number in '' | *[!0-9]*) continue ;; esac\n"
         "    [ \"$number\" -le \"$most\" ] || { most=$number; own=$snapshot; }\n"
         "  done\n"
         "fi\n"
         "if [ -n \"$own\" ]; then\n"
         "  if [ \"$most\" -ge " +
         std::to_string(slurm.iterations) +
         " ]; then\n"
         "    echo \"nothing is left to do: $own is of the last iteration. The job failed after "
         "that, so its last test may be missing, and $out/summary.json tells of the failure\"\n"
         "    exit 0\n  fi\n"
         "  case $own in /*) ;; *) own=$PWD/$own ;; esac\n"
         "  own=${own//\\\\/\\\\\\\\}\n  own=${own//\\\"/\\\\\\\"}\n"
         "  start=\"snapshot: \\\"$own\\\"\"\n"
         "fi\n";
}

// The job's file, in which the shell's variables stand for what is known on the nodes only.
std::string JobFile(const SlurmJob& slurm) {
  Job job = slurm.job;
  Cluster cluster = job.cluster();
  Training training = job.training();
  if (!job.has_security()) job.mutable_security()->set_key_file(MadeKeyFile(slurm.out));
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
         Verbatim(TextOf(training)) + "}\n";
}

// A daemon for each of `tasks`; `again`: another one when it is killed, or the job has gone on
// without it, as long as there is a scheduler.
std::string Tasks(const std::string& role, int tasks, int nodes, bool again) {
  const std::string daemon =
      "\"$0\" --config=\"$1\" --out=\"$2\" --rank=\"$SLURM_PROCID\" 2>>\"$2/logs/" + role +
      "-$SLURM_PROCID.log\"";
  std::string command = "exec " + daemon;
  if (again) {
    command = "until " + daemon +
              "; do code=$?; [ $code -eq 8 ] || { [ $code -gt 128 ] && [ $code -ne 130 ]; } || "
              "exit $code; sleep 1; [ ! -e \"$2/ended\" ] || exit $code; done";
  }
  return "srun --overlap --nodes=" + std::to_string(std::min(tasks, nodes)) +
         " --ntasks=" + std::to_string(tasks) +
         " --distribution=block --kill-on-bad-exit=0 --wait=0 --input=none \\\n    sh -c " +
         ShellQuoted(command) + " \"$programs/poseidon_" + role + "\" \"$job\" \"$out\" &\n";
}

// What a signal does, whenever it comes.
std::string Traps(const SlurmJob& slurm) {
  // Not SIGINT, which what a script starts with & ignores.
  const std::string signal = CanStop(slurm) ? "-HUP " : "";
  return "stopping=\nlimit=\nscheduler=\ntold=\nsignals=0\n"
         "stop_scheduler() { [ -z \"$scheduler\" ] || { told=1; kill " +
         signal +
         "$scheduler; }; }\n"
         "trap 'stopping=1; signals=$((signals + 1)); stop_scheduler' TERM INT\n" +
         (slurm.notice_seconds > 0
              ? "trap 'limit=1; signals=$((signals + 1)); stop_scheduler' USR1\n"
              : "");
}

// What the job ended with, and whether Slurm is to queue it again.
std::string Outcome(const SlurmJob& slurm) {
  std::string script =
      "await $workers; workers_code=$?\nwait\n[ $code -eq 0 ] || tail -n 1 "
      "\"$out/logs/scheduler.log\"\n"
      "# The node's code that failed.\n"
      "cause=$code\n"
      "if [ $code -eq 3 ] && [ -e \"$out/summary.json\" ]; then\n"
      "  cause=$(sed -n 's/^ *\"exit_code\": \\([0-9]*\\).*/\\1/p' \"$out/summary.json\" | "
      "head -n 1)\n"
      "  cause=${cause:-$code}\n"
      "fi\n";
  if (slurm.notice_seconds > 0) {
    // Without a snapshot it would get no further the next time.
    script +=
        "if [ -n \"$limit\" ] && [ -z \"$stopping\" ] && [ $code -eq 130 ]; then\n"
        "  newest=\n"
        "  for snapshot in " +
        ShellQuoted(slurm.snapshot_prefix) +
        "_iter_*.solverstate*; do\n"
        "    [ \"$snapshot\" -nt \"$job\" ] && newest=$snapshot\n"
        "  done\n"
        "  if [ -n \"$newest\" ]; then\n"
        "    echo \"its time is over: the job is queued again and goes on from its snapshot\"\n"
        "    scontrol requeue \"$SLURM_JOB_ID\"\n"
        "  else\n"
        "    echo \"its time is over before it has written a snapshot; give it more by --time\"\n"
        "  fi\nfi\n";
  }
  if (slurm.restarts > 0) {
    // Our own codes that may pass, and those of a scheduler that has crashed or was killed: SIGILL,
    // SIGABRT, SIGBUS, SIGFPE, SIGKILL and SIGSEGV.
    script +=
        "case $cause in\n  1|3|4|7|8|132|134|135|136|137|139)\n"
        "    if [ $workers_code -eq 0 ]; then\n"
        "      echo \"its workers have ended well, so the job is not queued again\"\n"
        "    elif [ -z \"$stopping\" ] && [ \"$failures\" -lt " +
        std::to_string(slurm.restarts) +
        " ]; then\n      echo $((failures + 1)) > \"$out/failures\"\n"
        "      echo \"the job is queued again\"\n      scontrol requeue \"$SLURM_JOB_ID\"\n"
        "    fi ;;\nesac\n";
  }
  return script + "exit $cause\n";
}

}  // namespace

bool CanStop(const SlurmJob& slurm) {
  return slurm.snapshot_at_end && slurm.job.communication().staleness() == 0;
}

std::string SlurmScript(const SlurmJob& slurm) {
  const Job& job = slurm.job;
  const bool again = job.recovery().mode() == Recovery::REPLACE;
  const int tasks = std::max(job.cluster().workers(), job.cluster().servers());
  std::string script = "#!/bin/bash\n";
  script += "#SBATCH --job-name=" + ShellQuoted(job.name()) + "\n";
  script += "#SBATCH --nodes=" + std::to_string(slurm.nodes) + "\n";
  script += "#SBATCH --ntasks=" + std::to_string(tasks) + "\n";
  script += "#SBATCH --requeue\n#SBATCH --open-mode=append\n";
  if (slurm.notice_seconds > 0) {
    script += "#SBATCH --signal=B:USR1@" + std::to_string(slurm.notice_seconds) + "\n";
  }
  script +=
      "#SBATCH --output=" + ShellQuoted(WithoutPatterns(slurm.out) + "/slurm-%j.log") + "\n\n";
  script += "out=" + ShellQuoted(slurm.out) + "\n";
  script += "programs=" + ShellQuoted(slurm.programs) + "\n";
  script += "job=$out/job.prototxt\n";
  script += Traps(slurm);
  script += "restarts=${SLURM_RESTART_COUNT:-0}\n";
  if (slurm.restarts > 0) {
    script +=
        "# Those of a node or of the time limit do not count.\n"
        "[ \"$restarts\" -gt 0 ] || rm -f \"$out/failures\"\n"
        "failures=$(cat \"$out/failures\" 2>/dev/null)\n"
        "case $failures in '' | *[!0-9]*) failures=0 ;; esac\n";
  }
  script += "first=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n";
  script +=
      "address=$(scontrol show node \"$first\" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')\n";
  script +=
      "# Two ports below those of outgoing connections; other jobs on the node have others.\n";
  script += "port=$((20000 + 2 * (SLURM_JOB_ID % 6000)))\n";
  script += "run=$((SLURM_JOB_ID * 64 % 4294967232 + restarts % 64))\n";
  script += "start=" + ShellQuoted(StartOf(job.training())) + "\n";
  if (!slurm.snapshot_prefix.empty()) {
    script += OwnSnapshot(slurm);
  }
  script +=
      "mkdir -p \"$out/logs\"\nrm -f \"$out/summary.json\" \"$out/scheduler.journal\" "
      "\"$out/ended\"\n";
  if (!slurm.job.has_security()) {
    script +=
        "# A key of this run's own, which every node reads there.\n"
        "made=$(mktemp -d \"$out/key-XXXXXXXXXX\") &&\n"
        "  \"$programs/poseidon\" keys --out=\"$made\" >/dev/null &&\n"
        "  mv -f \"$made/job.key\" \"$out/run.key\" && rmdir \"$made\" || exit\n";
  }
  script += "cat > \"$job\" <<END\n" + JobFile(slurm) + "END\n\n";
  const std::string scheduler =
      std::string("\"$programs/poseidon_scheduler\" --config=\"$job\" --out=\"$out\" ") +
      (CanStop(slurm) ? "--sighup_effect=stop " : "") + "2>>\"$out/logs/scheduler.log\"";
  script += scheduler + " &\nscheduler=$!\n";
  script += Tasks("server", job.cluster().servers(), slurm.nodes, again);
  script += Tasks("worker", job.cluster().workers(), slurm.nodes, again) + "workers=$!\n";
  // A signal ends the waiting, but not yet what is waited for; its code is remembered.
  script +=
      "await() {\n"
      "  while :; do\n"
      "    heard=$signals\n"
      "    wait $1; ended=$?\n"
      "    [ $heard -ne $signals ] || return $ended\n"
      "  done\n"
      "}\n"
      "# A signal that came before there was one; a second would end training at once.\n"
      "[ -z \"$stopping$limit\" ] || [ -n \"$told\" ] || stop_scheduler\n"
      "await $scheduler; code=$?\n";
  if (job.recovery().mode() != Recovery::NONE) {
    script +=
        "# One that was killed goes on by its journal; once where nobody waits for it any more.\n"
        "while [ $code -gt 128 ] && [ $code -ne 130 ] && sleep 1 && [ -z \"$stopping$limit\" ]; "
        "do\n  tasks=$(jobs -rp)\n  " +
        scheduler +
        " &\n  scheduler=$!\n  await $scheduler; code=$?\n  [ -n \"$tasks\" ] || break\ndone\n"
        "touch \"$out/ended\"\n";
  }
  return script + Outcome(slurm);
}

}  // namespace poseidon
