#include "poseidon/communicator.h"

#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <type_traits>
#include <utility>

#include "client/communicator/collective_lane.h"
#include "client/communicator/communicator_peers.h"
#include "client/program_error.h"
#include "core/error.h"
#include "core/net/host_address.h"
#include "core/net/ip_networks.h"
#include "core/own_process.h"
#include "core/process/resource_limits.h"
#include "core/steady_now.h"
#include "core/units.h"
#include "proto/wire.pb.h"
#include "transport/membership/node_setup.h"
#include "transport/security/job_key.h"
#include "transport/zmq/zmq_runtime.h"

namespace poseidon {
namespace {

// How long a rank that ends keeps trying to send what others still need, or why it failed.
constexpr Duration kLinger = std::chrono::seconds(1);

// What more of a time limit comes to. More nanoseconds might not be counted from now on.
constexpr Duration kLongestWait = std::chrono::hours(24 * 365);

void SetSecurity(const CommunicatorOptions& options, ZmqOptions& sockets) {
  sockets.allowed = options.allow;
  if (!options.key_file.empty()) {
    sockets.key = JobKey::Read(options.key_file);
    return;
  }
  for (const std::string& endpoint : options.endpoints) {
    sockets.allowed.push_back(ResolveHost(ParseEndpoint(endpoint).host));
  }
}

ZmqOptions SocketOptions(const CommunicatorOptions& options) {
  const HostAndPort self = ParseEndpoint(options.endpoints.at(options.rank));
  ZmqOptions sockets;
  const std::string address = ResolveHost(self.host);
  sockets.ipv6 = IsIpv6Address(address);
  if (!options.bind_host.empty()) {
    sockets.bind_host = options.bind_host;
  } else if (IsLoopbackName(self.host)) {
    sockets.bind_host = address;
  }
  sockets.public_host = self.host;
  SetSecurity(options, sockets);
  sockets.control_port = self.port;
  sockets.data_lanes = options.lanes;
  sockets.linger = kLinger;
  // Through as long a failure of the network as a call may outlive.
  sockets.silent_connection += options.silence;
  return sockets;
}

// The process may be of other groups, too, and have files of its own open.
void ClaimFilesOf(int ranks, int lanes) {
  const uint64_t needed = CountOpenFiles() + static_cast<uint64_t>(OpenFilesOf(ranks, lanes));
  const auto shortage = ClaimOpenFiles(needed, "a rank of this communicator may need");
  if (shortage) LOG(WARNING) << *shortage;
}

// How often a call that has received all looks whether others have given up, or somebody has
// interrupted it.
constexpr Duration kReleaseTick = std::chrono::milliseconds(100);

// Floats that frames refer to: `released` is ready when the last of the lease's copies is gone.
struct Lease {
  std::shared_ptr<const void> holder;
  std::future<void> released;

  static Lease Make() {
    auto promise = std::make_shared<std::promise<void>>();
    std::future<void> released = promise->get_future();
    const void* const token = promise.get();
    return {{token, [promise](const void*) { promise->set_value(); }}, std::move(released)};
  }
};

}  // namespace

class Communicator::Implementation {
 public:
  explicit Implementation(const CommunicatorOptions& options)
      : options_(Checked(options)),
        runtime_({Role::kWorker, options_.rank}, SocketOptions(options_)),
        peers_(options_, runtime_) {
    for (int lane = 0; lane < options_.lanes; ++lane) {
      runtime_.Attach(kFirstDataLane + lane, std::make_unique<CollectiveLane>(
                                                 call_, rank(), workers(), lane, options_.lanes));
    }
    runtime_.Start();
    const std::optional<Envelope> failed = Telling([this] { return peers_.Meet(); });
    if (failed) TakeFailure(CommunicatorPeers::SenderOf(*failed), *failed);
  }
  // Who has failed has said so.
  ~Implementation() {
    if (!failure_) peers_.SayLeaving(call_.number);
  }
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  bool IsOurs() const { return process_.IsThis(); }

  int rank() const { return options_.rank; }
  int workers() const { return static_cast<int>(options_.endpoints.size()); }
  bool on_one_machine() const { return peers_.on_one_machine(); }

  // A call of the program's begins; returns when it must end. Before the call is built: that
  // depends on what the ranks' processes are.
  Time Begin() {
    process_.Check("this communicator");
    if (failure_) ThrowAs(failure_->exit_code(), failure_->what());
    Telling([this] { peers_.TakeRestarts(); });
    return SteadyNow() + options_.deadline;
  }

  // Carries `call` out on `floats`.
  void Run(CollectiveCall call, std::span<float> floats, Time deadline) {
    deadline_ = deadline;
    call.number = call_.number + 1;
    call.floats = floats;
    Lease lease = Lease::Make();
    call.lease = std::move(lease.holder);
    call_ = std::move(call);
    peers_.BeginCall(call_.number);
    for (int lane = 0; lane < options_.lanes; ++lane) {
      Envelope begin;
      begin.kind = MessageKind::kGradientReady;
      begin.to = Here(kFirstDataLane + lane);
      runtime_.Post(std::move(begin));
    }
    AwaitLanes();
    call_.lease.reset();
    AwaitRelease(lease.released);
  }

  // A call of these terms that has nothing to move: returns when all ranks have made it.
  void RunWithoutFloats(const CallTerms& terms, Time deadline) {
    float nothing = 0;
    CollectiveCall call =
        AllReduceCall(1, {.scheme = CollectiveScheme::kHalvingDoubling}, rank(), workers(), false);
    call.terms = terms;
    Run(std::move(call), {&nothing, 1}, deadline);
  }

 private:
  // Endpoints are read before the runtime is made of them.
  static CommunicatorOptions Checked(CommunicatorOptions options) {
    CheckOptions(options);
    ClaimFilesOf(static_cast<int>(options.endpoints.size()), options.lanes);
    options.deadline = std::min(options.deadline, kLongestWait);
    options.silence = std::min(options.silence, kLongestWait);
    return options;
  }

  // Who is interrupted, misses a rank, or meets one that does not fit, leaves what the others are
  // in: they hear of it.
  template <typename Part>
  std::invoke_result_t<const Part&> Telling(const Part& part) {
    try {
      return part();
    } catch (...) {
      const Error error = HandledError();
      GiveUp(error.exit_code(), error.what(), true);
      throw;
    }
  }

  std::optional<Envelope> Next(Time deadline) {
    return Telling([&] { return peers_.Next(deadline); });
  }

  void AwaitLanes() {
    for (int waiting = options_.lanes; waiting > 0;) {
      const std::optional<Envelope> envelope = Next(deadline_);
      if (!envelope) FailMissing();
      if (Take(*envelope)) --waiting;
    }
  }

  // All is received; what is still to be sent leaves as fast as the others take it.
  void AwaitRelease(const std::future<void>& released) {
    while (released.wait_for(kReleaseTick) != std::future_status::ready) {
      if (SteadyNow() >= deadline_) FailMissing();
      while (const std::optional<Envelope> envelope = Next(SteadyNow())) Take(*envelope);
    }
  }

  // Whether it says that a lane of this rank has received all of the call.
  bool Take(const Envelope& envelope) {
    const int sender = CommunicatorPeers::SenderOf(envelope);
    if (envelope.kind == MessageKind::kFailed) {
      TakeFailure(sender, envelope);
    } else if (envelope.kind == MessageKind::kStalled) {
      if (envelope.iteration <= call_.number) peers_.SayPresent(sender, envelope.iteration);
    } else if (sender >= 0 && peers_.IsNewProcess(envelope)) {
      Fail(ExitCode::kPeerLost,
           peers_.Names({sender}) + " was started again, and its earlier process is missing in " +
               call_.terms.ToString() + " (call " + std::to_string(call_.number) +
               " of this communicator): start all ranks again",
           true);
    }
    return envelope.kind == MessageKind::kBucketFresh && sender < 0;
  }

  [[noreturn]] void TakeFailure(int sender, const Envelope& envelope) {
    wire::End end;
    const std::span<const std::byte> bytes = envelope.body.bytes();
    if (!end.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) end.set_exit_code(1);
    const auto exit_code = static_cast<ExitCode>(end.exit_code());
    // This rank's own failure the others have to hear of; another's they have heard, unless it
    // could not reach them.
    if (sender < 0) {
      Fail(exit_code, end.reason(), true);
    } else {
      Fail(exit_code, peers_.Names({sender}) + " gave up: " + end.reason(), !peers_.AllHaveMet());
    }
  }

  [[noreturn]] void FailMissing() {
    const std::vector<int> missing = peers_.AskForMissing(call_.number);
    const std::string what = call_.terms.ToString() + " (call " + std::to_string(call_.number) +
                             " of this communicator) is not done after " +
                             FormatDuration(options_.deadline) + ": ";
    Fail(ExitCode::kDeadlineExceeded,
         what + (missing.empty() ? "all ranks are in it; is the network too slow for the deadline?"
                                 : peers_.Names(missing) +
                                       " did not take part. Is it running, and does it make the "
                                       "same calls in the same order?"),
         true);
  }

  [[noreturn]] void Fail(ExitCode exit_code, const std::string& reason, bool tell) {
    GiveUp(exit_code, reason, tell);
    ThrowAs(exit_code, reason);
  }

  // The runtime is stopped, so nothing refers to the caller's floats any more.
  void GiveUp(ExitCode exit_code, const std::string& reason, bool tell) {
    failure_.emplace(exit_code, reason);
    if (tell) peers_.SayFailed(exit_code, reason);
    runtime_.Stop();
    call_.lease.reset();
  }

  const OwnProcess process_;
  const CommunicatorOptions options_;
  CollectiveCall call_;  // the last one; lanes read it
  Time deadline_{};
  std::optional<Error> failure_;
  ZmqRuntime runtime_;
  CommunicatorPeers peers_;
};

Communicator::Communicator(const CommunicatorOptions& options)
    : implementation_(std::make_unique<Implementation>(options)) {}

// In a forked child the threads behind it are not there, so nothing is destroyed.
Communicator::~Communicator() {
  if (!implementation_->IsOurs()) static_cast<void>(implementation_.release());
}

int Communicator::rank() const { return implementation_->rank(); }

int Communicator::workers() const { return implementation_->workers(); }

void Communicator::AllReduce(std::span<float> floats, const CollectiveOptions& options) {
  const Time deadline = implementation_->Begin();
  CollectiveCall call = AllReduceCall(static_cast<int64_t>(floats.size()), options, rank(),
                                      workers(), implementation_->on_one_machine());
  if (floats.empty()) {
    // The others must hear of it all the same, or an empty span by mistake would go unseen.
    implementation_->RunWithoutFloats(call.terms, deadline);
  } else {
    implementation_->Run(std::move(call), floats, deadline);
  }
}

void Communicator::AllGather(std::span<float> all, const std::vector<int64_t>& counts,
                             const CollectiveOptions& options) {
  if (static_cast<int>(counts.size()) != workers()) {
    throw ConfigError("all-gather has " + std::to_string(counts.size()) + " counts for " +
                      std::to_string(workers()) + " ranks");
  }
  std::vector<Range> blocks;
  int64_t offset = 0;
  for (const int64_t count : counts) {
    if (count < 0)
      throw ConfigError("a block of all-gather has " + std::to_string(count) + " floats");
    blocks.push_back({offset, count});
    offset += count;
  }
  if (offset != static_cast<int64_t>(all.size())) {
    throw ConfigError("the blocks of all-gather have " + std::to_string(offset) +
                      " floats together, not the " + std::to_string(all.size()) + " given");
  }
  CollectiveCall call = AllGatherCall(blocks, options, rank());
  const Time deadline = implementation_->Begin();
  if (all.empty()) {
    implementation_->RunWithoutFloats(call.terms, deadline);
  } else {
    implementation_->Run(std::move(call), all, deadline);
    // Nobody waits for a rank that has nothing to give. If it were slow, the frames of all later
    // calls would gather in its memory.
    if (std::ranges::find(counts, 0) != counts.end()) {
      implementation_->RunWithoutFloats({.collective = Collective::kBarrier}, deadline);
    }
  }
}

void Communicator::AllGather(std::span<float> all, const CollectiveOptions& options) {
  std::vector<int64_t> counts;
  const int64_t size = static_cast<int64_t>(all.size());
  for (int64_t r = 0; r < workers(); ++r) {
    counts.push_back(size * (r + 1) / workers() - size * r / workers());
  }
  AllGather(all, counts, options);
}

void Communicator::Barrier() {
  const Time deadline = implementation_->Begin();
  implementation_->RunWithoutFloats({.collective = Collective::kBarrier}, deadline);
}

}  // namespace poseidon
