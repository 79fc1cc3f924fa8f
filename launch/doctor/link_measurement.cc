#include "launch/doctor/link_measurement.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/files/log_lines.h"
#include "core/files/regular_file.h"
#include "core/text/utf8.h"
#include "launch/job_cluster.h"
#include "launch/scratch_directory.h"

namespace poseidon {
namespace {

// Those of a job are for starting many; these nodes are there at once, or something is wrong.
constexpr double kJoinDeadlineSeconds = 15;
// Measuring a link takes up to half a second, but a few seconds each way where it is one of a
// megabit per second; the deadline is for that, too.
constexpr double kDeadlineSecondsPerLink = 4;
// Beyond that measuring them one after the other would take more than half a minute, and nobody
// would read what was found.
constexpr int kMostHostsInPairs = 64;

nlohmann::json ReadSummary(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return {};
  return nlohmann::json::parse(ReadRegularFile(path, ExitCode::kFailure), nullptr,
                               /*allow_exceptions=*/false);
}

std::vector<wire::LinkReport> ReportsIn(const nlohmann::json& summary, int workers) {
  constexpr double kMilliseconds = 1000;
  std::vector<wire::LinkReport> reports(static_cast<size_t>(workers));
  for (int rank = 0; rank < workers; ++rank) reports[static_cast<size_t>(rank)].set_rank(rank);
  if (!summary.is_object() || !summary.contains("links")) return reports;
  for (const auto& link : summary["links"]) {
    const int from = link.value("from", 0);
    wire::LinkMeasurement* const measured = reports.at(static_cast<size_t>(from)).add_links();
    measured->set_distance((link.value("to", 0) - from + workers) % workers);
    measured->set_latency_seconds(link.value("latency_ms", 0.0) / kMilliseconds);
    measured->set_goodput_bytes_per_second(link.value("goodput_bytes_per_second", 0.0));
  }
  return reports;
}

// What the scheduler, or whoever failed first, says; and which host has which rank.
std::string FailureText(const nlohmann::json& summary, const std::string& directory,
                        const std::vector<Host>& hosts) {
  std::string reason = summary.is_object() ? summary.value("reason", "") : "";
  if (reason.empty()) reason = Printable(LastLines(directory + "/logs/scheduler.log", 1));
  while (!reason.empty() && reason.back() == '\n') reason.pop_back();
  std::string ranks;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    ranks += (rank == 0 ? "" : ", ") + std::string("worker ") + std::to_string(rank) + " is " +
             hosts[rank].name;
  }
  return reason + " (" + ranks + ")";
}

}  // namespace

Job ProbeJob(Job job, int workers) {
  job.set_name("doctor");
  job.clear_recovery();
  job.clear_elastic();
  job.clear_monitor();  // whose ports are taken while the job runs
  job.clear_training();
  job.clear_communication();
  Cluster& cluster = *job.mutable_cluster();
  cluster.clear_network();
  cluster.clear_deviation();
  cluster.clear_devices_per_worker();
  cluster.set_workers(workers);
  cluster.set_servers(1);
  cluster.set_link_probe(workers <= kMostHostsInPairs ? Cluster::EVERY_PAIR
                                                      : Cluster::POWERS_OF_TWO);
  cluster.set_join_deadline_seconds(kJoinDeadlineSeconds +
                                    kDeadlineSecondsPerLink * std::min(workers, kMostHostsInPairs));
  job.mutable_communication()->set_policy(Communication::TIME);
  job.mutable_communication()->set_stall_deadline_seconds(kJoinDeadlineSeconds);
  Training& training = *job.mutable_training();
  training.set_engine(Training::REPLAY);
  training.set_threads(1);
  Replay& replay = *training.mutable_replay();
  replay.set_iterations(1);
  ReplayLayer& layer = *replay.add_layers();
  layer.set_name("layer");
  layer.set_parameters(1000);
  return job;
}

LinkMeasurements MeasureLinks(const Job& job, const std::vector<Host>& hosts,
                              const RemoteShell& shell, Interruption& interruption) {
  const ScratchDirectory directory;
  const int workers = static_cast<int>(hosts.size());
  JobClusterOptions options;
  options.config.job = ProbeJob(job, workers);
  options.config.path = "doctor";
  options.hosts = JobHosts{{hosts, {hosts.front()}}, shell};
  options.scheduler_port_set = job.cluster().has_scheduler_port();
  options.silent = true;
  options.out = directory.path();
  const ExitCode code = JobCluster(std::move(options)).Wait(interruption);
  if (interruption.Pending()) throw Interrupted();
  const nlohmann::json summary = ReadSummary(directory.path() + "/summary.json");
  LinkMeasurements measured;
  measured.reports = ReportsIn(summary, workers);
  if (code != ExitCode::kSuccess) {
    measured.failure = FailureText(summary, directory.path(), hosts);
    measured.is_silence = code == ExitCode::kDeadlineExceeded || code == ExitCode::kPeerLost;
  }
  return measured;
}

}  // namespace poseidon
