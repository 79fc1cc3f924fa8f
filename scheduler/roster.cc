#include "scheduler/roster.h"

#include <algorithm>
#include <limits>

#include "core/net/ip_networks.h"
#include "core/text/utf8.h"
#include "scheduler/agreement/config_difference.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

// What of a build is shown: it is a node's word.
constexpr size_t kMostOfABuild = 80;

std::string MissingRanks(const char* role, const std::vector<int>& ranks) {
  if (ranks.empty()) return "";
  if (ranks.size() == 1) return std::string(role) + " " + std::to_string(ranks[0]);
  std::string text = std::to_string(ranks.size()) + " " + role + "s (ranks";
  for (const int rank : ranks) text += (rank == ranks[0] ? " " : ", ") + std::to_string(rank);
  return text + ")";
}

Roster::Answer Refused(std::string reason) {
  return {.admitted = std::nullopt, .has_rank = false, .refusal = std::move(reason), .news = false};
}

}  // namespace

Roster::Roster(Job job, uint64_t job_fingerprint, std::string build, int least_endpoints)
    : job_(std::move(job)),
      job_fingerprint_(job_fingerprint),
      build_(std::move(build)),
      least_endpoints_(least_endpoints),
      workers_(job_.cluster().workers()) {}

void Roster::OpenTo(int workers) {
  open_ = true;
  for (; workers_ < workers; ++workers_) {
    const NodeId id{Role::kWorker, workers_};
    if (!entries_.contains(id)) Vacate(id);
  }
}

bool Roster::IsFree(const NodeId& id) const {
  const bool vacant = vacated_.contains(id) && !(open_ && id.role == Role::kWorker);
  return id.rank < Limit(id.role) && !entries_.contains(id) && !vacant;
}

std::optional<int> Roster::FreeRank(Role role, int wanted) const {
  if (wanted >= 0) return IsFree({role, wanted}) ? std::optional(wanted) : std::nullopt;
  for (int rank = 0; rank < Limit(role); ++rank) {
    if (IsFree({role, rank})) return rank;
  }
  return std::nullopt;
}

Roster::Answer Roster::Register(const wire::Register& request, Time now) {
  const Role role = static_cast<Role>(request.node().role());
  if (role != Role::kWorker && role != Role::kServer) {
    return Refused("only servers and workers can join a job");
  }
  const auto known = by_incarnation_.find({role, request.incarnation()});
  if (known != by_incarnation_.end()) {
    Entry& entry = entries_.at(known->second);
    entry.last_heard = now;
    return {.admitted = entry.node, .has_rank = entry.has_rank, .refusal = "", .news = false};
  }
  if (std::string difference = DifferenceFromJob(request); !difference.empty()) {
    return Refused(std::move(difference));
  }
  const int wanted = request.node().rank();
  const std::optional<int> rank = FreeRank(role, wanted);
  if (!rank) return Refused(WhyNoRank(role, wanted));
  return {.admitted = Admit(request, {role, *rank}, now),
          .has_rank = wanted >= 0,
          .refusal = "",
          .news = true};
}

std::vector<Roster::Entry> Roster::TakeEntries(Role role) {
  std::vector<Entry> taken;
  for (int place = 0; place < Limit(role); ++place) {
    taken.push_back(std::move(entries_.extract({role, place}).mapped()));
  }
  return taken;
}

std::vector<wire::Node> Roster::AssignRanks() {
  if (!complete()) return {};
  opened_.clear();
  if (!vacated_.empty()) return ConfirmPlaces();
  std::vector<Entry> worker_entries = TakeEntries(Role::kWorker);
  std::vector<Entry> server_entries = TakeEntries(Role::kServer);
  const AssignedRanks ranks =
      poseidon::AssignRanks(WishesOf(worker_entries), WishesOf(server_entries));
  std::vector<wire::Node> assigned;
  PutBack(worker_entries, ranks.workers, assigned);
  PutBack(server_entries, ranks.servers, assigned);
  return assigned;
}

std::vector<wire::Node> Roster::ConfirmPlaces() {
  std::vector<wire::Node> assigned;
  for (auto& [id, entry] : entries_) {
    if (!entry.has_rank) assigned.push_back(entry.node);
    entry.has_rank = true;
  }
  return assigned;
}

std::vector<RankWish> Roster::WishesOf(const std::vector<Entry>& entries) {
  std::vector<RankWish> wishes;
  for (const Entry& entry : entries) {
    wishes.push_back({entry.node.host(), entry.has_rank ? entry.node.rank() : -1});
  }
  return wishes;
}

void Roster::PutBack(std::vector<Entry>& entries, const std::vector<int>& ranks,
                     std::vector<wire::Node>& assigned) {
  for (size_t place = 0; place < entries.size(); ++place) {
    Entry& entry = entries[place];
    entry.node.set_rank(ranks[place]);
    if (!entry.has_rank) assigned.push_back(entry.node);
    entry.has_rank = true;
    const NodeId id = IdOf(entry.node);
    by_incarnation_[{id.role, entry.incarnation}] = id;
    entries_.emplace(id, std::move(entry));
  }
}

int Roster::LeastEndpoints() const {
  int least = std::numeric_limits<int>::max();
  for (const auto& [id, entry] : entries_) least = std::min(least, entry.node.endpoints_size());
  return least;
}

std::string Roster::DifferenceOfBuild(const wire::Register& request) const {
  const std::string& build = request.build();
  if (build.empty() || build_.empty() || build == build_) return "";
  return "it is of build " + Printable(build.substr(0, kMostOfABuild)) + ", the scheduler of " +
         build_ + "; install the same build on every machine, and start this process again";
}

std::string Roster::DifferenceFromJob(const wire::Register& request) const {
  // Whoever belongs to another run has another port to ask, whatever it is of.
  const bool same_run = !request.has_job() || request.job().run() == job_.run();
  if (std::string difference = DifferenceOfBuild(request); same_run && !difference.empty()) {
    return difference;
  }
  if (request.job_fingerprint() != job_fingerprint_) {
    return DescribeDifference(job_, request.has_job() ? &request.job() : nullptr);
  }
  if (request.node().endpoints_size() < least_endpoints_) {
    const std::string needed = std::to_string(least_endpoints_ - kFirstDataLane);
    return "it offers " + std::to_string(request.node().endpoints_size() - kFirstDataLane) +
           " data lane(s), and the job's plan has " + needed +
           "; its machine has fewer cores than the others, so name the number in the job config: "
           "communication { lanes: " +
           needed + " }";
  }
  return "";
}

std::string Roster::WhyNoRank(Role role, int wanted) const {
  const std::string name = RoleName(role);
  const auto rival = entries_.find({role, wanted});
  if (rival != entries_.end()) {
    return "rank " + std::to_string(wanted) + " is already taken by " +
           Describe(rival->second.node) + "; give each " + name + " a rank of its own";
  }
  if (vacated_.contains({role, wanted})) {
    return "the job has lost " + NodeId{role, wanted}.ToString() +
           " and goes on without (recovery: SHRINK)";
  }
  if (wanted >= Limit(role)) {
    return "there is no " + name + " rank " + std::to_string(wanted) + ": the config has " +
           std::to_string(Limit(role)) + " " + name + "(s), ranks count from 0";
  }
  return "the config has " + std::to_string(Limit(role)) + " " + name +
         "(s) and all of them are here already";
}

const wire::Node& Roster::Admit(const wire::Register& request, const NodeId& id, Time now) {
  if (vacated_.erase(id) != 0) opened_.insert(id);
  Entry& entry = entries_[id];
  entry.node = request.node();
  entry.node.set_rank(id.rank);
  entry.incarnation = request.incarnation();
  entry.last_heard = now;
  entry.has_rank = request.node().rank() >= 0;
  by_incarnation_[{id.role, request.incarnation()}] = id;
  asked_.erase(request.incarnation());
  return entry.node;
}

void Roster::Restore(const wire::Node& node, uint64_t incarnation, Time now) {
  const NodeId id = IdOf(node);
  entries_[id] = {.node = node, .incarnation = incarnation, .last_heard = now, .has_rank = true};
  by_incarnation_[{id.role, incarnation}] = id;
}

std::vector<wire::Node> Roster::DropSilent(Time now, Duration allowed_silence,
                                           const std::set<NodeId>& members) {
  // Within the first of these a holder is heard or dropped; the second is for the answer.
  std::erase_if(asked_, [&](const auto& ask) { return now - ask.second > 2 * allowed_silence; });
  std::vector<wire::Node> dropped;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (!members.contains(entry->first) && now - entry->second.last_heard > allowed_silence) {
      dropped.push_back(entry->second.node);
      by_incarnation_.erase({entry->first.role, entry->second.incarnation});
      if (opened_.erase(entry->first) != 0) Vacate(entry->first);
      entry = entries_.erase(entry);
    } else {
      ++entry;
    }
  }
  return dropped;
}

void Roster::Forget(const NodeId& id) {
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return;
  forgotten_.insert(entry->second.incarnation);
  by_incarnation_.erase({id.role, entry->second.incarnation});
  entries_.erase(entry);
  if (opened_.erase(id) != 0) Vacate(id);
}

std::optional<NodeId> Roster::Find(uint64_t incarnation) const {
  for (const Role role : {Role::kServer, Role::kWorker}) {
    const auto found = by_incarnation_.find({role, incarnation});
    if (found != by_incarnation_.end()) return found->second;
  }
  return std::nullopt;
}

bool Roster::IsTaken(const wire::Register& request) const {
  const Role role = static_cast<Role>(request.node().role());
  const int wanted = request.node().rank();
  return DifferenceFromJob(request).empty() && wanted < Limit(role) &&
         !vacated_.contains({role, wanted}) && !FreeRank(role, wanted);
}

bool Roster::HolderMayBeGone(const wire::Register& request, Time now) {
  const uint64_t incarnation = request.incarnation();
  const auto ranks = static_cast<size_t>(Limit(Role::kWorker) + Limit(Role::kServer));
  const bool waits = asked_.contains(incarnation) || asked_.size() < ranks;
  if (Find(incarnation) || !IsTaken(request) || !waits) return false;
  const Time since = asked_.try_emplace(incarnation, now).first->second;
  const bool silent = std::ranges::any_of(entries_, [&](const auto& holder) {
    const bool could_follow =
        static_cast<uint32_t>(holder.first.role) == request.node().role() &&
        (request.node().rank() < 0 || request.node().rank() == holder.first.rank);
    return could_follow && holder.second.last_heard <= since;
  });
  if (!silent) asked_.erase(incarnation);
  return silent;
}

bool Roster::complete() const {
  return static_cast<int>(entries_.size() + vacated_.size()) ==
         Limit(Role::kWorker) + Limit(Role::kServer);
}

std::vector<wire::Node> Roster::nodes() const {
  std::vector<wire::Node> nodes;
  for (const auto& [id, entry] : entries_) nodes.push_back(entry.node);
  return nodes;
}

std::vector<NodeId> Roster::MissingNodes() const {
  std::vector<NodeId> missing;
  for (const Role role : {Role::kWorker, Role::kServer}) {
    for (int rank = 0; rank < Limit(role); ++rank) {
      const NodeId id{role, rank};
      if (!entries_.contains(id) && !vacated_.contains(id)) missing.push_back(id);
    }
  }
  return missing;
}

std::string Roster::Missing() const {
  std::vector<int> workers;
  std::vector<int> servers;
  for (const NodeId& id : MissingNodes()) {
    (id.role == Role::kWorker ? workers : servers).push_back(id.rank);
  }
  const std::string worker_text = MissingRanks("worker", workers);
  const std::string server_text = MissingRanks("server", servers);
  if (worker_text.empty() || server_text.empty()) return worker_text + server_text;
  return worker_text + " and " + server_text;
}

std::string Roster::Unreachable() const {
  std::string here;
  bool others = false;
  for (const auto& [id, entry] : entries_) {
    if (IsLoopbackName(entry.node.host())) {
      here += (here.empty() ? "" : ", ") + Describe(entry.node);
    } else {
      others = true;
    }
  }
  if (here.empty() || !others) return "";
  return "nodes on other machines do not reach " + here +
         " at a loopback address; start what is on that machine with --host=ADDRESS, which they "
         "reach, or remove its name from the loopback addresses in its /etc/hosts";
}

}  // namespace poseidon
