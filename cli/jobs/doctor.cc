#include "cli/jobs/doctor.h"

#include <algorithm>
#include <iostream>
#include <optional>

#include "cli/doctor/doctor_output.h"
#include "cli/doctor/job_needs.h"
#include "cli/doctor/network_checks.h"
#include "cli/input/flags.h"
#include "cli/input/input_file.h"
#include "cli/jobs/run_hosts.h"
#include "cli/planning/plan.h"
#include "core/process/program_directory.h"
#include "core/program.h"
#include "launch/doctor/link_measurement.h"
#include "launch/host_query.h"
#include "launch/port_pair.h"
#include "launch/scratch_directory.h"
#include "scheduler/link_reports.h"

namespace poseidon {
namespace {

// Several times what the slowest of the questions takes, and looking up a host.
constexpr Duration kAnswerDeadline = Seconds(30);
constexpr Duration kLookUpDeadline = std::chrono::milliseconds(50);

constexpr const char* kThisMachine = "this machine";

void Append(Findings more, Findings& findings) {
  findings.insert(findings.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
}

// The job's hosts, each once, in the order in which they get ranks: those with workers first.
CheckedHosts HostsOf(const HostRanks& ranks) {
  CheckedHosts hosts;
  const auto find = [&](const Host& host) -> CheckedHost& {
    const auto found = std::find_if(hosts.begin(), hosts.end(),
                                    [&](const auto& one) { return one.name == host.name; });
    if (found != hosts.end()) return *found;
    hosts.emplace_back().name = host.name;
    hosts.back().address = host.address;
    return hosts.back();
  };
  for (const Host& host : ranks.workers) ++find(host).workers;
  for (const Host& host : ranks.servers) ++find(host).servers;
  return hosts;
}

double SecondsSince1970(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

class Doctor {
 public:
  explicit Doctor(Interruption& interruption) : interruption_(interruption) {
    if (!FLAGS_config.empty()) {
      config_ = JobConfigFromFlags();
      requirements_ = RequirementsOf(config_);
    }
    if (HostsGiven()) {
      shell_ = ShellFromFlags();
      SetNodesFromHosts();
      ranks_ = RanksFromFlags(config_.job.cluster());
      hosts_ = HostsOf(ranks_);
    } else {
      CheckedHost& here = hosts_.emplace_back();
      here.name = kThisMachine;
      here.workers = config_.job.cluster().workers();
      here.servers = config_.job.cluster().servers();
    }
  }

  // Once: fills in the two below.
  void Examine() {
    AskThisMachine();
    if (!findings_.empty()) return;
    if (HostsGiven()) AskAll();
    if (hosts_.empty()) return;
    CheckMachines();
    if (!HostsGiven()) return;
    if (CountOf(FindingLevel::kError, findings_) > 0) {
      findings_.push_back({FindingLevel::kWarning, "links",
                           "have not been measured, as no job can start yet",
                           "mend the errors and look again"});
    } else {
      CheckNetwork();
    }
  }
  const Findings& findings() const { return findings_; }
  const std::vector<HostLink>& links() const { return links_; }

 private:
  // Without a config there is a worker in every slot that takes one, and likewise servers.
  void SetNodesFromHosts() {
    if (!FLAGS_config.empty()) return;
    int workers = 0;
    int servers = 0;
    for (const Host& slot : BySlot(ReadHosts(CheckInputFile(FLAGS_hosts)))) {
      workers += slot.takes_workers ? 1 : 0;
      servers += slot.takes_servers ? 1 : 0;
    }
    config_.job.mutable_cluster()->set_workers(std::max(1, workers));
    config_.job.mutable_cluster()->set_servers(std::max(1, servers));
    SetNodesFromFlags(*config_.job.mutable_cluster());
    requirements_.needs.nodes = config_.job.cluster().workers() + config_.job.cluster().servers();
  }

  HostQuestions QuestionsFor(size_t index, const std::string& programs) const {
    HostQuestions questions;
    questions.programs = programs;
    questions.working_directory = NamedWorkingDirectory();
    questions.files = requirements_.files;
    questions.data = requirements_.data;
    if (index == 0) {
      for (const auto& more : {requirements_.test_data, requirements_.start}) {
        questions.data.insert(questions.data.end(), more.begin(), more.end());
      }
    }
    questions.directories = {TemporaryDirectory()};
    const std::string& snapshots = requirements_.needs.snapshot_directory;
    if (!snapshots.empty()) questions.directories.push_back(snapshots);
    return questions;
  }

  std::string TemporaryDirectory() const {
    return HostsGiven() ? shell_.directory : SystemTemporaryDirectory();
  }

  Duration AnswerDeadline() const {
    return kAnswerDeadline + static_cast<int64_t>(hosts_.size()) * kLookUpDeadline;
  }

  void AskThisMachine() {
    const HostAnswer answer =
        AskHere(FactsScript(QuestionsFor(0, ProgramDirectory())), AnswerDeadline(), &interruption_);
    if (!answer.failure.empty()) {
      findings_.push_back({FindingLevel::kError, "reach",
                           std::string(kThisMachine) + " can't be asked: " + answer.failure,
                           "see that /bin/sh runs here, and look again"});
      return;
    }
    here_ = ParseFacts(answer.text);
    if (HostsGiven()) return;
    hosts_.front().facts = here_;
    hosts_.front().asked = SecondsSince1970(answer.asked);
    hosts_.front().answered = SecondsSince1970(answer.answered);
  }

  // Those that do not answer are told of, and looked at no more.
  void AskAll() {
    std::vector<std::string> addresses;
    for (const CheckedHost& host : hosts_) addresses.push_back(host.address);
    std::vector<HostQuestion> questions;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      HostQuestions host = QuestionsFor(i, shell_.programs);
      host.addresses = addresses;
      if (hosts_.size() > 1) host.next = addresses[(i + 1) % addresses.size()];
      questions.push_back({hosts_[i].name, FactsScript(host)});
    }
    const std::vector<HostAnswer> answers =
        AskHosts(shell_, questions, AnswerDeadline(), &interruption_);
    CheckedHosts reached;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (!answers[i].failure.empty()) {
        findings_.push_back({FindingLevel::kError, "reach",
                             hosts_[i].name + " can't be reached: " + answers[i].failure,
                             HowToReach(hosts_[i].name, answers[i].failure)});
        continue;
      }
      hosts_[i].facts = ParseFacts(answers[i].text);
      hosts_[i].asked = SecondsSince1970(answers[i].asked);
      hosts_[i].answered = SecondsSince1970(answers[i].answered);
      reached.push_back(hosts_[i]);
    }
    if (findings_.empty()) {
      findings_.push_back(
          {FindingLevel::kGood, "reach", std::to_string(reached.size()) + " host(s) answer"});
    }
    hosts_ = std::move(reached);
  }

  void CheckMachines() {
    const JobNeeds& needs = requirements_.needs;
    Append(CheckVersions(here_, hosts_), findings_);
    if (!requirements_.files.empty()) Append(CheckFiles(here_, hosts_), findings_);
    if (HostsGiven()) {
      Append(CheckNames(hosts_), findings_);
      Append(CheckClocks(hosts_), findings_);
    }
    Append(CheckLimits(hosts_, needs), findings_);
    if (requirements_.model) Append(CheckMemory(hosts_, needs), findings_);
    Append(CheckDisks(hosts_, hosts_.front(), needs, TemporaryDirectory()), findings_);
    Append(CheckData(hosts_), findings_);
    Append(CheckGpus(hosts_, needs), findings_);
    Append(CheckQueues(hosts_), findings_);
    if (HostsGiven()) Append(CheckMtu(hosts_), findings_);
  }

  // By a job of one worker a host.
  void CheckNetwork() {
    std::vector<Host> hosts;
    std::vector<std::string> names;
    for (const CheckedHost& host : hosts_) {
      Host& one = hosts.emplace_back();
      one.name = host.name;
      one.address = host.address;
      names.push_back(host.name);
    }
    Job job = config_.job;
    try {
      job.mutable_cluster()->set_scheduler_host(SchedulerHost(config_, hosts));
    } catch (const ConfigError& error) {
      findings_.push_back({FindingLevel::kError, "ports", error.what(), "as it says"});
      return;
    }
    const Cluster cluster = job.cluster();
    const bool is_taken = cluster.has_scheduler_port() && IsPairTaken(cluster.scheduler_port());
    if (is_taken) job.mutable_cluster()->clear_scheduler_port();
    const LinkMeasurements measured = MeasureLinks(job, hosts, shell_, interruption_);
    Append(CheckPorts(cluster, is_taken, measured), findings_);
    std::optional<Network> claimed;
    if (config_.job.cluster().has_network()) claimed = config_.job.cluster().network();
    links_ = LinksBetween(measured.reports, names);
    Append(CheckLinks(links_, claimed), findings_);
    if (!requirements_.model || !measured.failure.empty() || hosts.size() < 2) return;
    // Plans may take seconds, and nothing runs any more that is to be ended in an orderly way.
    EndOnSignals();
    if (interruption_.Pending()) throw Interrupted();
    Append(ComparePlans(config_.job, *requirements_.model,
                        NetworkOf(measured.reports, config_.job.cluster().network())),
           findings_);
  }

  Interruption& interruption_;
  JobConfig config_;
  JobRequirements requirements_;
  RemoteShell shell_;
  HostRanks ranks_;
  CheckedHosts hosts_;
  HostFacts here_;
  Findings findings_;
  std::vector<HostLink> links_;
};

}  // namespace

ExitCode DoctorVerb() {
  const bool json = JsonFromFlags();
  Interruption interruption;
  Doctor doctor(interruption);
  doctor.Examine();
  const Findings& findings = doctor.findings();
  std::cout << (json ? FindingsJson(findings, doctor.links()) : FindingsText(findings))
            << std::flush;
  return CountOf(FindingLevel::kError, findings) > 0 ? ExitCode::kConfigError : ExitCode::kSuccess;
}

}  // namespace poseidon
