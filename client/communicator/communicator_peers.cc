#include "client/communicator/communicator_peers.h"

#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/program.h"
#include "core/steady_now.h"
#include "core/units.h"
#include "poseidon/communicator.h"
#include "proto/wire.pb.h"

namespace poseidon {
namespace {

// A rank that is in a call answers as soon as its program's thread gets the processor.
constexpr Duration kRollCall = std::chrono::seconds(1);

// How often a waiting call looks for an interruption.
constexpr Duration kTick = std::chrono::milliseconds(100);

// More would be a mistake: each takes two threads.
constexpr int kMaxLanes = 64;

// So many heartbeats a rank may leave unanswered. They are counted, and not the time, since a
// process that was stopped itself has not read yet what the others answered.
constexpr int kHeartbeatsOfSilence = 15;

Address ControlLaneOf(int rank) { return {{Role::kWorker, rank}, kControlLane}; }

// Of a kRegister that answers one, and is not answered.
constexpr uint32_t kAnsweringRegister = 1;

// Of a kFailed of a rank that has not met all others, and won't, or passes on that one has not.
constexpr uint32_t kFailedToMeet = 1;

bool ParseRegister(const Envelope& envelope, wire::Register& message) {
  const std::span<const std::byte> bytes = envelope.body.bytes();
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

// As the endpoints are written; a host may have several names.
bool AreOnOneMachine(const std::vector<std::string>& endpoints) {
  const std::string host = ParseEndpoint(endpoints.front()).host;
  return std::ranges::all_of(endpoints, [&host](const std::string& endpoint) {
    return ParseEndpoint(endpoint).host == host;
  });
}

// Answers heartbeats and registrations, and hands what else other ranks say, and the registrations,
// to the application, with the sender's rank as the chunk: the envelope's own sender will be this
// lane.
class ControlLane : public Actor {
 public:
  ControlLane(int rank, int workers, int lanes, Payload registration)
      : rank_(rank), workers_(workers), lanes_(lanes), registration_(std::move(registration)) {}

  void OnMessage(const Envelope& envelope, Outbox& outbox) override {
    const NodeId& node = envelope.from.node;
    if (node.role != Role::kWorker || node.rank < 0 || node.rank == rank_) return;
    if (node.rank >= workers_) return MeetSurplus(envelope, outbox);
    // What its next communicator says is for this rank's next, which will answer it.
    if (ended_.contains(node.rank)) return;
    if (envelope.kind == MessageKind::kLeave && envelope.iteration > 0 &&
        registered_.contains(node.rank)) {
      ended_.insert(node.rank);
    }
    if (envelope.kind == MessageKind::kRegister) Register(envelope, outbox);
    if (envelope.kind == MessageKind::kHeartbeat) {
      Envelope answer;
      answer.kind = MessageKind::kHeartbeatAck;
      answer.to = ControlLaneOf(node.rank);
      return outbox.Send(std::move(answer));
    }
    if (envelope.kind == MessageKind::kRegister && envelope.step != kAnsweringRegister) {
      // A process of this rank that was started again has not heard what this one said before.
      Answer(envelope, outbox);
    }
    Forward(envelope, outbox);
  }

 private:
  // What an earlier process of that rank has sent of the first call is not the sum's. It is dropped
  // before this one is answered, which sends nothing before.
  void Register(const Envelope& envelope, Outbox& outbox) {
    const int rank = envelope.from.node.rank;
    std::string process = envelope.body.ToString();
    const auto [known, is_first] = registered_.try_emplace(rank, process);
    if (is_first || known->second == process) return;
    known->second = std::move(process);
    for (int lane = 0; lane < lanes_; ++lane) {
      Envelope forget;
      forget.kind = MessageKind::kRegister;
      forget.to = Here(kFirstDataLane + lane);
      forget.chunk = static_cast<uint32_t>(rank);
      outbox.Send(std::move(forget));
    }
  }

  // A rank that was started with more of them than there are here, so that it throws. Whether this
  // one does is the application's to say.
  void MeetSurplus(const Envelope& envelope, Outbox& outbox) {
    wire::Register message;
    const bool parsed = envelope.kind == MessageKind::kRegister && ParseRegister(envelope, message);
    if (!parsed || message.node().endpoints().empty()) return;
    outbox.routes.push_back({ControlLaneOf(envelope.from.node.rank), message.node().endpoints(0)});
    Answer(envelope, outbox);
    Forward(envelope, outbox);
  }

  void Answer(const Envelope& registration, Outbox& outbox) const {
    Envelope answer;
    answer.kind = MessageKind::kRegister;
    answer.to = ControlLaneOf(registration.from.node.rank);
    answer.step = kAnsweringRegister;
    answer.body = registration_;
    outbox.Send(std::move(answer));
  }

  static void Forward(const Envelope& envelope, Outbox& outbox) {
    Envelope forwarded = envelope;
    forwarded.to = Here(kApplicationLane);
    forwarded.chunk = static_cast<uint32_t>(envelope.from.node.rank);
    outbox.Send(std::move(forwarded));
  }

  const int rank_;
  const int workers_;
  const int lanes_;
  const Payload registration_;
  // Those that this communicator is of, and what tells their processes apart. Who has not come yet
  // may have ended an earlier one, of the same endpoints.
  std::map<int, std::string> registered_;
  // Those that have made calls and ended theirs: what they say now is of another.
  std::set<int> ended_;
};

}  // namespace

void CheckOptions(const CommunicatorOptions& options) {
  const int workers = static_cast<int>(options.endpoints.size());
  if (options.rank < 0 || options.rank >= workers) {
    throw ConfigError("rank " + std::to_string(options.rank) + " is none of the " +
                      std::to_string(workers) + " endpoints', which count from 0");
  }
  if (options.lanes < 1 || options.lanes > kMaxLanes) {
    throw ConfigError(std::to_string(options.lanes) + " lanes, there must be 1 to " +
                      std::to_string(kMaxLanes));
  }
  if (options.deadline <= Duration::zero()) throw ConfigError("the deadline must be positive");
  if (options.silence <= Duration::zero()) throw ConfigError("the silence must be positive");
}

HostAndPort ParseEndpoint(const std::string& text) {
  if (const auto endpoint = HostAndPort::Parse(text)) return *endpoint;
  throw ConfigError("'" + text +
                    "' is no endpoint; write host:port, as in 10.0.0.1:5000 or [fd00::1]:5000");
}

CommunicatorPeers::CommunicatorPeers(const CommunicatorOptions& options, ZmqRuntime& runtime)
    : options_(options),
      runtime_(runtime),
      peers_(options.endpoints.size()),
      on_one_machine_(AreOnOneMachine(options.endpoints)),
      registration_(Payload::FromString(Registration())) {
  const int workers = static_cast<int>(options.endpoints.size());
  runtime.Attach(kControlLane, std::make_unique<ControlLane>(options.rank, workers, options.lanes,
                                                             registration_));
  for (const int rank : Others({})) {
    const HostAndPort endpoint = ParseEndpoint(options.endpoints[rank]);
    runtime.SetRoute(ControlLaneOf(rank), "tcp://" + endpoint.ToString());
  }
}

void CommunicatorPeers::BeginCall(int64_t number) {
  call_ = number;
  for (Peer& peer : peers_) peer.unanswered = 0;
  next_heartbeat_ = SteadyNow() + options_.silence / kHeartbeatsOfSilence;
}

std::optional<Envelope> CommunicatorPeers::Next(Time deadline) {
  while (true) {
    if (options_.interrupted && options_.interrupted()) throw Interrupted();
    LookAfterOthers(SteadyNow());
    const Duration left = deadline - SteadyNow();
    std::optional<Envelope> envelope = runtime_.mailbox().Take(std::min(left, kTick));
    if (!envelope && left <= kTick) return std::nullopt;
    if (!envelope) continue;
    if (IsSurplus(SenderOf(*envelope))) {
      TakeSurplus(*envelope);
      continue;
    }
    Note(*envelope);
    if (envelope->kind != MessageKind::kHeartbeatAck && envelope->kind != MessageKind::kLeave) {
      return envelope;
    }
  }
}

void CommunicatorPeers::Note(const Envelope& envelope) {
  const int rank = SenderOf(envelope);
  if (rank < 0 || IsSurplus(rank)) return;
  peers_[rank].unanswered = 0;
  if (envelope.kind == MessageKind::kLeave) peers_[rank].left = envelope.iteration;
  if (envelope.kind == MessageKind::kFailed && envelope.step == kFailedToMeet) {
    peers_[rank].failed_to_meet = true;
  }
}

void CommunicatorPeers::LookAfterOthers(Time now) {
  std::vector<int> left;
  std::vector<int> silent;
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (peer.left && *peer.left < call_) left.push_back(static_cast<int>(rank));
    if (!peer.left && peer.unanswered >= kHeartbeatsOfSilence) {
      silent.push_back(static_cast<int>(rank));
    }
  }
  if (!left.empty()) {
    throw PeerLost(Names(left) + " ended without call " + std::to_string(call_) +
                   " of this communicator. Has the program ended, and does it make the same calls "
                   "in the same order?");
  }
  if (now < next_heartbeat_) return;
  if (!silent.empty()) {
    throw PeerLost(Names(silent) + " said nothing for " + FormatDuration(options_.silence) +
                   ": the process has ended or is stopped, or the machine can't be reached");
  }
  next_heartbeat_ = now + options_.silence / kHeartbeatsOfSilence;
  for (const int rank : Others({})) ++peers_[rank].unanswered;
  Envelope heartbeat;
  heartbeat.kind = MessageKind::kHeartbeat;
  Tell(std::move(heartbeat));
}

std::string CommunicatorPeers::Registration() const {
  wire::Register message;
  wire::Node& node = *message.mutable_node();
  node.set_role(static_cast<uint32_t>(Role::kWorker));
  node.set_rank(options_.rank);
  node.set_pid(getpid());
  for (const std::string& endpoint : runtime_.endpoints()) node.add_endpoints(endpoint);
  message.set_job_fingerprint(Fingerprint() * 2 + (on_one_machine_ ? 1 : 0));
  return message.SerializeAsString();
}

std::optional<Envelope> CommunicatorPeers::Meet() {
  Envelope registration;
  registration.kind = MessageKind::kRegister;
  registration.body = registration_;
  Tell(std::move(registration));

  const Time end = SteadyNow() + options_.deadline;
  std::set<int> met;
  std::vector<Envelope> later;  // of ranks that have met all and are in their first call
  while (!Others(met).empty()) {
    std::optional<Envelope> envelope = Next(end);
    if (!envelope) {
      throw DeadlineExceeded("no word of " + Names(Others(met)) + " for " +
                             FormatDuration(options_.deadline) +
                             ": is it running, are the endpoints right" +
                             (options_.key_file.empty() ? "?" : ", and has it the same key?"));
    }
    const int sender = SenderOf(*envelope);
    // Of one that this rank has not met, the process that said it may be no more.
    if (envelope->kind == MessageKind::kFailed && envelope->step == kFailedToMeet &&
        met.contains(sender)) {
      return envelope;
    }
    TakeOrKeep(*envelope, later);
    if (envelope->kind == MessageKind::kRegister) met.insert(sender);
  }
  for (Envelope& envelope : later) runtime_.mailbox().Put(std::move(envelope));
  return std::nullopt;
}

void CommunicatorPeers::TakeRestarts() {
  if (call_ > 0) return;
  std::vector<Envelope> later;
  while (const std::optional<Envelope> envelope = runtime_.mailbox().Take({})) {
    Note(*envelope);
    TakeOrKeep(*envelope, later);
  }
  for (Envelope& envelope : later) runtime_.mailbox().Put(std::move(envelope));
}

void CommunicatorPeers::TakeOrKeep(const Envelope& envelope, std::vector<Envelope>& later) {
  if (envelope.kind != MessageKind::kRegister) return later.push_back(envelope);
  if (!IsNewProcess(envelope)) return;
  const int rank = SenderOf(envelope);
  // An earlier process of that rank said it, which is no more.
  std::erase_if(later, [rank](const Envelope& kept) { return SenderOf(kept) == rank; });
  TakeRegister(rank, envelope);
}

bool CommunicatorPeers::IsSurplus(int rank) const {
  return rank >= static_cast<int>(peers_.size());
}

bool CommunicatorPeers::IsNewProcess(const Envelope& envelope) const {
  const int rank = SenderOf(envelope);
  return envelope.kind == MessageKind::kRegister &&
         (IsSurplus(rank) || envelope.body.ToString() != peers_[rank].registration);
}

std::string CommunicatorPeers::UnlikeThis(int rank) const {
  return Names({rank}) +
         " was started with another number of ranks or lanes than this one, which has " +
         std::to_string(options_.endpoints.size()) + " ranks and " +
         std::to_string(options_.lanes) + " lanes";
}

void CommunicatorPeers::TakeSurplus(const Envelope& envelope) {
  const int rank = SenderOf(envelope);
  // A program may have computed for days; whoever is no part of it must not end it.
  if (call_ <= 1) throw ConfigError(UnlikeThis(rank));
  if (std::exchange(surplus_is_logged_, true)) return;
  LOG(WARNING) << UnlikeThis(rank)
               << ": it is told so, and this one goes on; is it of another program?";
}

void CommunicatorPeers::TakeRegister(int rank, const Envelope& envelope) {
  wire::Register message;
  if (IsSurplus(rank) || !ParseRegister(envelope, message) ||
      message.job_fingerprint() / 2 != Fingerprint() ||
      message.node().endpoints_size() != kFirstDataLane + options_.lanes) {
    throw ConfigError(UnlikeThis(rank));
  }
  peers_[rank] = {.registration = envelope.body.ToString()};
  if (rank == 0) on_one_machine_ = message.job_fingerprint() % 2 == 1;
  for (int lane = kFirstDataLane; lane < message.node().endpoints_size(); ++lane) {
    runtime_.SetRoute({{Role::kWorker, rank}, lane}, message.node().endpoints(lane));
  }
}

bool CommunicatorPeers::AllHaveMet() const {
  return std::ranges::all_of(Others({}), [this](int rank) {
    return !peers_[rank].registration.empty() && !peers_[rank].failed_to_meet;
  });
}

void CommunicatorPeers::SayFailed(ExitCode exit_code, const std::string& reason) {
  wire::End end;
  end.set_exit_code(static_cast<int>(exit_code));
  end.set_reason(reason);
  Envelope failed = MakeEnvelope(MessageKind::kFailed, {}, end);
  if (!AllHaveMet()) failed.step = kFailedToMeet;
  Tell(std::move(failed));
}

void CommunicatorPeers::SayLeaving(int64_t number) {
  // Who has ended takes no message, and one that nobody takes is waited for.
  while (const std::optional<Envelope> envelope = runtime_.mailbox().Take({})) Note(*envelope);
  Envelope leaving;
  leaving.kind = MessageKind::kLeave;
  leaving.iteration = number;
  Tell(std::move(leaving));
}

void CommunicatorPeers::SayPresent(int from, int64_t asked) {
  Envelope envelope;
  envelope.kind = MessageKind::kReady;
  envelope.to = ControlLaneOf(from);
  envelope.iteration = asked;
  runtime_.Post(std::move(envelope));
}

std::vector<int> CommunicatorPeers::AskForMissing(int64_t number) {
  Envelope question;
  question.kind = MessageKind::kStalled;
  question.iteration = number;
  Tell(question);
  const Time end = SteadyNow() + kRollCall;
  std::set<int> present;
  while (!Others(present).empty()) {
    const std::optional<Envelope> envelope = runtime_.mailbox().Take(end - SteadyNow());
    if (!envelope) break;
    const int rank = SenderOf(*envelope);
    if (rank < 0) continue;
    Note(*envelope);
    // Who asks about a call, or fails in it, is in it.
    if (envelope->kind == MessageKind::kStalled) SayPresent(rank, envelope->iteration);
    if (envelope->kind == MessageKind::kFailed || envelope->iteration >= number) {
      present.insert(rank);
    }
  }
  return Others(present);
}

int CommunicatorPeers::SenderOf(const Envelope& envelope) {
  return envelope.from.lane == kControlLane ? static_cast<int>(envelope.chunk) : -1;
}

std::string CommunicatorPeers::Names(const std::vector<int>& ranks) const {
  std::string names;
  for (const int rank : ranks) {
    if (!names.empty()) names += rank == ranks.back() ? " and " : ", ";
    names += "rank " + std::to_string(rank);
    if (!IsSurplus(rank)) names += " (" + options_.endpoints[rank] + ")";
  }
  return names;
}

void CommunicatorPeers::Tell(Envelope envelope) {
  for (const int rank : Others({})) {
    if (peers_[rank].left) continue;
    envelope.to = ControlLaneOf(rank);
    runtime_.Post(envelope);
  }
}

std::vector<int> CommunicatorPeers::Others(const std::set<int>& without) const {
  std::vector<int> others;
  for (int rank = 0; rank < static_cast<int>(options_.endpoints.size()); ++rank) {
    if (rank != options_.rank && !without.contains(rank)) others.push_back(rank);
  }
  return others;
}

uint64_t CommunicatorPeers::Fingerprint() const {
  return options_.endpoints.size() * (kMaxLanes + 1) + options_.lanes;
}

}  // namespace poseidon
