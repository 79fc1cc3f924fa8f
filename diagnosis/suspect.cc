#include "diagnosis/suspect.h"

#include <algorithm>
#include <regex>
#include <vector>

#include "core/error.h"

namespace poseidon {
namespace {

// "worker 1 (node1, process 4711)", of which the part in parentheses may be missing.
constexpr const char* kNode = R"((worker|server) (\d{1,6})\b(?: \(([^,()]+), process \d+\))?)";

// Who failed is said first; what it had to say may be of any length, and std::regex needs 100 bytes
// of the stack for each byte that it looks at.
constexpr size_t kMostSearched = 4096;

Suspect SuspectOf(const std::smatch& match, Suspect::Kind kind, const std::string& detail) {
  const Role role = match[1] == "worker" ? Role::kWorker : Role::kServer;
  return {{role, std::stoi(match[2])}, kind, detail, match[3]};
}

// Whether the code says that another node was the cause.
bool BlamesOthers(int code) {
  return code == static_cast<int>(ExitCode::kSuccess) ||
         code == static_cast<int>(ExitCode::kPeerLost) ||
         code == static_cast<int>(ExitCode::kDeadlineExceeded) ||
         code == static_cast<int>(ExitCode::kGivenUp);
}

// Whoever has lost the scheduler may have been asked to end by a signal.
bool HasNoAccountOfTheScheduler(const JobFiles& job) {
  return !job.summary && std::ranges::any_of(job.events, TellsOfTheEnd) &&
         std::ranges::none_of(
             job.events, [](const EventFile& file) { return file.node.role == Role::kScheduler; });
}

// Whether a node's reason is the scheduler's account of the end, which is told to all: who fails
// has words of its own.
bool WasTold(const JobFiles& job, const EventFile& file) {
  if (job.summary && job.summary->reason == file.reason) return true;
  return std::ranges::any_of(job.events, [&](const EventFile& other) {
    return other.node.role == Role::kScheduler && other.reason == file.reason;
  });
}

std::optional<Suspect> FirstThatFailed(const JobFiles& job) {
  const bool orphaned = HasNoAccountOfTheScheduler(job);
  std::optional<size_t> first;
  for (size_t i = 0; i < job.events.size(); ++i) {
    const int code = job.events[i].exit_code;
    if (BlamesOthers(code)) continue;
    if (orphaned && code == static_cast<int>(ExitCode::kInterrupted)) continue;
    // The scheduler says what it was told.
    if (job.events[i].node.role == Role::kScheduler || WasTold(job, job.events[i])) continue;
    const bool earlier = !first || job.Common(i, job.events[i].written) <
                                       job.Common(*first, job.events[*first].written);
    if (earlier) first = i;
  }
  if (!first) return std::nullopt;
  const EventFile& file = job.events[*first];
  return Suspect{file.node, Suspect::Kind::kFailed, file.reason, file.host};
}

}  // namespace

bool TellsOfTheEnd(const EventFile& file) {
  return file.exit_code != static_cast<int>(ExitCode::kGivenUp);
}

std::optional<Suspect> FindSuspect(const std::string& reason) {
  static const std::regex stalled(std::string("from ") + kNode +
                                  "(?:, .*)?, whose heartbeat still arrives");
  static const std::regex failed(std::string(kNode) + " failed: ");
  static const std::regex died(std::string("lost ") + kNode + ": (?:it|its process) ");
  // recovery.give_up_after.
  const std::string again = std::string(kNode) + R"( was lost \d+ times in a row [^:]*: )";
  static const std::regex died_again(again + "(?:it|its process) ");
  static const std::regex lost_again(again);
  static const std::regex lost(std::string("lost ") + kNode);
  // "still missing 2 workers (ranks 1, 3) and server 0 after 60 s".
  static const std::regex missing(
      R"(still missing (?:\d+ )?(worker|server)s?(?: \(ranks)? (\d{1,6})\b())");
  // What `poseidon run` quotes of the log of a node that had not joined.
  static const std::regex log(R"(^(worker|server)-(\d{1,6})\b()\: )");
  const std::string begin = reason.substr(0, kMostSearched);
  std::smatch match;
  const auto rest = [&] { return reason.substr(match.position() + match.length()); };
  if (std::regex_search(begin, match, stalled)) {
    return SuspectOf(match, Suspect::Kind::kStalled, "");
  }
  if (std::regex_search(begin, match, failed)) {
    return SuspectOf(match, Suspect::Kind::kFailed, rest());
  }
  if (std::regex_search(begin, match, died) || std::regex_search(begin, match, died_again)) {
    return SuspectOf(match, Suspect::Kind::kSeenToDie, rest());
  }
  if (std::regex_search(begin, match, log)) {
    return SuspectOf(match, Suspect::Kind::kFailed, rest());
  }
  if (std::regex_search(begin, match, lost) || std::regex_search(begin, match, lost_again)) {
    return SuspectOf(match, Suspect::Kind::kSilent, "");
  }
  if (std::regex_search(begin, match, missing)) {
    return SuspectOf(match, Suspect::Kind::kMissing, "");
  }
  if (begin.find("lost the scheduler") != std::string::npos) {
    return Suspect{{Role::kScheduler, 0}, Suspect::Kind::kSilent, "", ""};
  }
  return std::nullopt;
}

std::optional<Suspect> FindSuspect(const JobFiles& job) {
  if (job.summary) {
    if (auto suspect = FindSuspect(job.summary->reason)) return suspect;
  }
  if (auto suspect = FirstThatFailed(job)) return suspect;
  for (const EventFile& file : job.events) {
    if (!TellsOfTheEnd(file)) continue;
    if (auto suspect = FindSuspect(file.reason)) return suspect;
  }
  if (HasNoAccountOfTheScheduler(job)) {
    return Suspect{{Role::kScheduler, 0}, Suspect::Kind::kSilent, "", ""};
  }
  return std::nullopt;
}

}  // namespace poseidon
