// How the ranks of a Communicator find each other: the rank's control lane, seen by its
// application.
//
// A rank tells every other where its lanes are (kRegister), which each answers with the same of its
// own, so that a rank that is started again meets those that have met it before; when it gives up
// it says why (kFailed), with step 1 if it, or the one whose reason it passes on, never met all,
// and when it ends, after which call (kLeave). Who has made calls and ended is answered no more:
// what it says then is for this rank's next communicator of the same endpoints, which tells it
// where its lanes are in turn. Where a call takes too long a rank asks who is in it (kStalled),
// which those that are answer (kReady). While it waits in a call it asks all others whether they
// are there (kHeartbeat), which their control lanes answer (kHeartbeatAck).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/net/host_address.h"
#include "transport/zmq/zmq_runtime.h"

namespace poseidon {

struct CommunicatorOptions;

// Throws ConfigError for what is no "host:port".
HostAndPort ParseEndpoint(const std::string& text);

// Throws ConfigError if rank, lanes or deadline make no sense.
void CheckOptions(const CommunicatorOptions& options);

// Not thread-safe: the application's.
class CommunicatorPeers {
 public:
  // Attaches the control lane's actor and makes the other ranks' control lanes reachable. The
  // runtime is not started yet and lives longer than this.
  CommunicatorPeers(const CommunicatorOptions& options, ZmqRuntime& runtime);

  // Tells all who and where this rank is and waits until all others have done so. If one that this
  // rank has met gives up in the same wait, returns its kFailed at once; nullopt: all have met.
  // Throws DeadlineExceeded, ConfigError, and Interrupted() as Next() does.
  std::optional<Envelope> Meet();
  // Takes the registrations of processes that were started since all met; until the first call
  // begins a rank may be started again. Throws ConfigError.
  void TakeRestarts();
  // Call `number` begins, in which Next() looks after the other ranks.
  void BeginCall(int64_t number);
  // The next envelope for the application, or nullopt at `deadline`. Throws Interrupted() when
  // options.interrupted says so, until the first call has ended ConfigError if there is a rank that
  // was started with more of them, and in a call PeerLost if ranks can't take part in it any more.
  std::optional<Envelope> Next(Time deadline);
  // Whether another process of the sender's rank has been started than the one that this rank met.
  bool IsNewProcess(const Envelope& envelope) const;
  // Whether all ranks are on one machine, as rank 0 has it, so that all agree, however each one's
  // endpoints are written. Once all have met.
  bool on_one_machine() const { return on_one_machine_; }
  // Whether this rank has met all others, and none of them has given up without that. Else what one
  // of them says may not have reached the rest.
  bool AllHaveMet() const;
  // Tells all others that this rank gives up.
  void SayFailed(ExitCode exit_code, const std::string& reason);
  // Tells all that are still there that this rank ends, and has made calls up to this one.
  void SayLeaving(int64_t number);
  // Answers kStalled from the rank `from`, whose call `asked` takes too long.
  void SayPresent(int from, int64_t asked);
  // Asks who is in call `number` or beyond and waits a second for answers. Those who are not, in
  // ascending order.
  std::vector<int> AskForMissing(int64_t number);
  // "rank 1 (10.0.0.2:5000) and rank 3 (10.0.0.4:5000)".
  std::string Names(const std::vector<int>& ranks) const;
  // The rank that sent what the control lane handed to the application; -1: this rank's own actor.
  static int SenderOf(const Envelope& envelope);

 private:
  // Sends an envelope to the control lane of every other rank that has not left.
  void Tell(Envelope envelope);
  // What another rank's envelope says about it.
  void Note(const Envelope& envelope);
  // Asks the others now and then whether they are there. Throws PeerLost if some are not.
  void LookAfterOthers(Time now);
  // What this rank tells the others at first, a wire::Register.
  std::string Registration() const;
  // A registration is taken, anything else kept.
  void TakeOrKeep(const Envelope& envelope, std::vector<Envelope>& later);
  // Whether it was started with more ranks than this one. The control lane hands nothing of such a
  // rank on but its registration.
  bool IsSurplus(int rank) const;
  // Its registration: ConfigError until the first call has ended; later the first one is logged.
  void TakeSurplus(const Envelope& envelope);
  void TakeRegister(int rank, const Envelope& envelope);
  // That the rank was started with another number of ranks or lanes.
  std::string UnlikeThis(int rank) const;
  std::vector<int> Others(const std::set<int>& without) const;
  // Of what has to be the same on all ranks. A registration has it doubled, and 1 more if the rank
  // takes all to be on one machine.
  uint64_t Fingerprint() const;

  // Of another rank.
  struct Peer {
    int unanswered = 0;                          // heartbeats since it was last heard
    std::optional<int64_t> left = std::nullopt;  // its last call
    std::string registration;                    // empty: this rank has not met it
    bool failed_to_meet = false;                 // it has given up so (kFailed with step 1)
  };

  const CommunicatorOptions& options_;
  ZmqRuntime& runtime_;
  std::vector<Peer> peers_;  // by rank
  bool on_one_machine_;
  const Payload registration_;
  int64_t call_ = 0;
  bool surplus_is_logged_ = false;
  Time next_heartbeat_ = Time::max();
};

}  // namespace poseidon
