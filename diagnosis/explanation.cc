#include "diagnosis/explanation.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "diagnosis/last_events.h"
#include "diagnosis/silence.h"
#include "diagnosis/suspect.h"

namespace poseidon {
namespace {

constexpr double kMebibyte = 1 << 20;
// A machine with less than this has none left for anybody.
constexpr int64_t kLittleMemory = int64_t{256} << 20;

bool Has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

// What a node's own last words say.
Cause CauseOfMessage(const std::string& message) {
  if (Has(message, std::strerror(ENOSPC)) || Has(message, std::strerror(EDQUOT))) {
    return Cause::kFullDisk;
  }
  if (Has(message, " is nan") || Has(message, " is inf") || Has(message, " is -nan") ||
      Has(message, " is -inf") || Has(message, "are no numbers")) {
    return Cause::kDiverged;
  }
  if (Has(message, "not enough memory") || Has(message, "std::bad_alloc") ||
      Has(message, std::strerror(ENOMEM)) || Has(message, "out of memory") ||
      Has(message, "memory left")) {
    return Cause::kOutOfMemory;
  }
  if (Has(message, "interrupted by a signal")) return Cause::kInterrupted;
  return Cause::kFailed;
}

// What its launcher has seen of a process's end.
Cause CauseOfDeath(const std::string& how) {
  if (Has(how, "by signal 9 ") || Has(how, "by signal 15 ")) return Cause::kKilled;
  if (Has(how, "by signal ")) return Cause::kCrashed;
  // The remote shell gives its host up earlier than the heartbeat does.
  if (Has(how, "has lost its connection")) return Cause::kNetworkCut;
  return Cause::kFailed;
}

Judgment JudgeStall(const JobFiles& job, const NodeId& node) {
  const std::string name = node.ToString();
  Judgment judgment{Cause::kSlowWorker,
                    {"The heartbeat of " + name +
                     " still arrived, so its machine, its network and its process were there."}};
  const std::optional<size_t> file = FindFile(job, node);
  if (!file) {
    judgment.evidence.push_back("It was ended before it could write what it was doing.");
    return judgment;
  }
  const auto activity = FindLastActivity(job.events[*file]);
  if (!activity) {
    judgment.evidence.push_back(WaitOf(job, *file));
    return judgment;
  }
  const bool writes = activity->event.kind == static_cast<int>(Activity::kSnapshot);
  if (writes) judgment.cause = Cause::kSlowDisk;
  judgment.evidence.push_back("It had been " + ActivityName(activity->event.kind) +
                              " in iteration " + std::to_string(activity->event.iteration) +
                              " for " + DurationText(activity->lasted) +
                              (writes ? ": its disk did not take it." : "."));
  return judgment;
}

// Whether the machine of a node that was killed had no memory left, as others there have seen.
void LookForMemory(const JobFiles& job, const Suspect& suspect, Judgment& judgment) {
  for (const EventFile& file : job.events) {
    const bool there = file.node == suspect.node || file.host == suspect.host;
    if (!there) continue;
    if (file.out_of_memory_kills > 0) {
      judgment.cause = Cause::kOutOfMemory;
      judgment.evidence.push_back("While the job ran the kernel of its machine has killed " +
                                  std::to_string(file.out_of_memory_kills) +
                                  " process(es) for lack of memory.");
      return;
    }
    if (file.available_memory < kLittleMemory) {
      judgment.evidence.push_back(
          "Its machine had " +
          std::to_string(std::lround(static_cast<double>(file.available_memory) / kMebibyte)) +
          " MiB of memory left.");
      return;
    }
  }
}

Judgment Judge(const JobFiles& job, const Suspect& suspect) {
  switch (suspect.kind) {
    case Suspect::Kind::kFailed:
      return {CauseOfMessage(suspect.detail), {"Its own last words: \"" + suspect.detail + "\"."}};
    case Suspect::Kind::kSeenToDie: {
      Judgment judgment{CauseOfDeath(suspect.detail), {"Its process " + suspect.detail + "."}};
      if (judgment.cause == Cause::kKilled) LookForMemory(job, suspect, judgment);
      return judgment;
    }
    case Suspect::Kind::kSilent: {
      Judgment judgment = JudgeSilence(job, suspect.node);
      if (judgment.cause == Cause::kKilled) LookForMemory(job, suspect, judgment);
      return judgment;
    }
    case Suspect::Kind::kStalled:
      return JudgeStall(job, suspect.node);
    case Suspect::Kind::kMissing:
      return {Cause::kNeverJoined, {}};
  }
  return {};
}

// By summary.json, or where the scheduler has not lived to write it, by a node.
void TakeAccount(const JobFiles& job, Explanation& why) {
  if (job.summary) {
    why.exit_code = job.summary->exit_code;
    why.reason = job.summary->reason;
    return;
  }
  for (const EventFile& file : job.events) {
    if (file.reason.empty() || !TellsOfTheEnd(file)) continue;
    why.exit_code = file.exit_code;
    why.reason = file.reason;
    return;
  }
}

// The name of the log of its last process: those that took a dead one's place are numbered.
std::string LastLogOf(const JobFiles& job, const NodeId& node) {
  const std::string file = EventFileName(node);
  std::string last = file.substr(0, file.find('.'));
  const std::string numbered = last + ".restart-";
  int restarts = 0;
  for (const auto& [name, lines] : job.logs) {
    if (!name.starts_with(numbered)) continue;
    const int number = std::atoi(name.c_str() + numbered.size());
    if (number <= restarts) continue;
    restarts = number;
    last = name;
  }
  return last;
}

// The last lines of its log, where the job's own account has not been found. False if there are
// none.
bool QuoteLog(const JobFiles& job, const NodeId& node, Explanation& why) {
  const auto log = job.logs.find(LastLogOf(job, node));
  if (log == job.logs.end() || log->second.empty()) return false;
  why.evidence.push_back("The log of " + node.ToString() + ", logs/" + log->first +
                         ".log, ends with: " + log->second.substr(0, log->second.size() - 1));
  return true;
}

// Who has not joined has told nobody why.
void ExplainAbsence(const JobFiles& job, const NodeId& node, Explanation& why) {
  const std::string log = LastLogOf(job, node);
  if (!job.logs.contains(log)) {
    why.evidence.push_back("There is no log of " + node.ToString() +
                           " here: it was not started, or its log is elsewhere.");
  } else if (!QuoteLog(job, node, why)) {
    why.evidence.push_back("Its log, logs/" + log +
                           ".log, is empty: it was started and has said nothing.");
  }
  why.evidence.emplace_back(
      "Where it runs and gets no answer, the network keeps it from the scheduler: `poseidon "
      "doctor` looks at that, with --hosts of other machines.");
}

}  // namespace

const char* NameOf(Cause cause) {
  switch (cause) {
    case Cause::kEndedWell:
      return "ended well";
    case Cause::kKilled:
      return "killed";
    case Cause::kCrashed:
      return "crashed";
    case Cause::kOutOfMemory:
      return "out of memory";
    case Cause::kNetworkCut:
      return "network cut";
    case Cause::kStopped:
      return "stopped process";
    case Cause::kSlowDisk:
      return "slow disk";
    case Cause::kFullDisk:
      return "full disk";
    case Cause::kDiverged:
      return "diverged";
    case Cause::kSlowWorker:
      return "slow worker";
    case Cause::kNeverJoined:
      return "never joined";
    case Cause::kInterrupted:
      return "interrupted";
    case Cause::kFailed:
      return "failed";
    case Cause::kUnknown:
      return "unknown";
  }
  return "unknown";
}

Explanation Explain(const JobFiles& job) {
  Explanation why;
  why.unreadable = job.unreadable;
  TakeAccount(job, why);
  if (job.summary && why.exit_code == 0) {
    why.cause = Cause::kEndedWell;
    return why;
  }
  const std::optional<Suspect> suspect = FindSuspect(job);
  if (suspect) {
    Judgment judgment = Judge(job, *suspect);
    why.cause = judgment.cause;
    why.first = suspect->node;
    why.evidence = std::move(judgment.evidence);
    why.last_message = LastMessageFrom(job, suspect->node);
    if (why.cause == Cause::kCrashed || why.cause == Cause::kUnknown) {
      QuoteLog(job, suspect->node, why);
    } else if (why.cause == Cause::kNeverJoined) {
      ExplainAbsence(job, suspect->node, why);
    }
  } else if (why.exit_code == static_cast<int>(ExitCode::kInterrupted)) {
    why.cause = Cause::kInterrupted;
  } else if (!why.reason.empty()) {
    why.cause = CauseOfMessage(why.reason);
  } else {
    QuoteLog(job, {Role::kScheduler, 0}, why);
  }
  if (!job.summary && !job.monitor.empty()) {
    why.evidence.insert(why.evidence.begin(), "It may run still: its monitor is to be found at " +
                                                  job.monitor + " (`poseidon status`).");
  }
  for (size_t node = 0; node < job.events.size(); ++node) {
    const NodeId id = job.events[node].node;
    if (id == why.first || id.role == Role::kScheduler) continue;
    if (!TellsOfTheEnd(job.events[node])) continue;
    why.waits.push_back(WaitOf(job, node));
  }
  return why;
}

std::string ExplanationText(const Explanation& why) {
  if (why.cause == Cause::kEndedWell) return "The job ended well.\n";
  const std::string was = why.cause == Cause::kNeverJoined ? "" : " was first";
  std::string text = "Likely cause: " + std::string(NameOf(why.cause)) +
                     (why.first ? " (" + why.first->ToString() + was + ")" : "") + ".\n";
  if (why.exit_code && !why.reason.empty()) {
    text += "The job ended with code " + std::to_string(*why.exit_code) + ": " + why.reason + "\n";
  }
  if (!why.evidence.empty()) text += "Evidence:\n";
  for (const std::string& sentence : why.evidence) text += "  " + sentence + "\n";
  if (!why.last_message.empty()) text += why.last_message + "\n";
  if (!why.waits.empty()) text += "The others when they were told of the end:\n";
  for (const std::string& sentence : why.waits) text += "  " + sentence + "\n";
  for (const std::string& file : why.unreadable) text += "Left out: " + file + "\n";
  return text;
}

std::string ExplanationJson(const Explanation& why) {
  nlohmann::ordered_json json;
  json["cause"] = NameOf(why.cause);
  json["first"] =
      why.first ? nlohmann::ordered_json(why.first->ToString()) : nlohmann::ordered_json();
  json["exit_code"] =
      why.exit_code ? nlohmann::ordered_json(*why.exit_code) : nlohmann::ordered_json();
  json["reason"] = why.reason;
  json["evidence"] = why.evidence;
  json["last_message"] = why.last_message;
  json["waits"] = why.waits;
  json["unreadable"] = why.unreadable;
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace poseidon
