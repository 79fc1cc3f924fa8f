// Communicator: all-reduce and all-gather for any program, without job, scheduler or servers.
//
// A program of which each rank is started with its number and the addresses of all, as in
// `./sum 0 10.0.0.1:5000 10.0.0.2:5000` on one machine and `./sum 1 ...` on the other:
//
//   #include <poseidon/communicator.h>
//
//   #include <cstdio>
//   #include <cstdlib>
//
//   int main(int count, char** words) {
//     poseidon::Communicator all({.rank = std::atoi(words[1]),
//                                 .endpoints = {words + 2, words + count}});
//     std::vector<float> gradient(1000, static_cast<float>(all.rank() + 1));
//     all.AllReduce(gradient);  // in place: the sum of all ranks' gradients
//     std::printf("%g\n", gradient[0]);
//   }
//
// All ranks must make the same calls in the same order: the same call, size and options. A call
// blocks; when it returns the caller may overwrite the floats at once. All ranks have the same bits
// afterwards, which do not depend on the order in which anything arrived.
//
// No call waits for longer than the deadline and two seconds. Errors (poseidon/error.h):
//   ConfigError        what can't work: options, sizes, endpoints, a port in use, ranks that were
//                      started with different numbers of ranks or lanes
//   PeerLost           names the ranks that are dead or can't be reached, or have ended their
//                      communicator before this call, or have been started again since the first
//   DeadlineExceeded   names the ranks that did not take part
//   ProtocolError      names a rank that made another call than this one
// A rank that was started with more ranks than the others ends them, too, until their first call
// has ended. Later it alone throws, and they log a warning and go on. All this as far as they let
// its connection in: with a key, by `allow`, or from a machine that has a rank of theirs. Else it
// waits for its deadline, and they hear nothing of it.
// A rank that throws tells the others why, so that they end at once, with the same kind of error.
// Then the floats hold anything and the communicator is of no more use: every call throws that
// error again. Not so where a call's own arguments are a ConfigError: nobody is told. The floats
// are as they were, and the rank can still make the call, for which the others wait until their
// deadline. Nor is anybody told what the constructor throws before it waits for the others, such as
// a port in use or a key that can't be read: they wait for this rank until their deadline.
//
// A child that the program forks can't use the communicator: calls throw Error in it, and its
// destructor does nothing.
//
// Thread safety: one thread at a time. Several communicators (on other ports) are independent.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "poseidon/error.h"

namespace poseidon {

// Who sends what to whom. The result differs in the order of the sums only.
enum class CollectiveScheme {
  // kTorus if there is a grid, else kHalvingDoubling for what is so small that latency costs more
  // than bytes, and kRing.
  kAutomatic,
  kRing,             // the fewest bytes a rank, in as many steps as there are ranks
  kHalvingDoubling,  // as many steps as the number of ranks has bits
  kTorus,            // along the dimensions of a grid of ranks; all-reduce only
};

// How floats cross the wire. Sums are added up in float32 and packed where they are sent, so with
// kFp16 they have to stay below 65,504: also the whole sum, which is not divided.
enum class CollectiveCodec {
  kFp32,
  kFp16,  // IEEE 754 binary16: half the bytes; what overflows becomes infinite
  kBf16,  // the upper half of a float: half the bytes
};

// How a call is carried out; the same on all ranks.
struct CollectiveOptions {
  // A dimension of a torus. Rank r has the coordinate (r / product of the sizes before) mod size.
  struct Dimension {
    int size = 1;
    CollectiveScheme scheme = CollectiveScheme::kRing;  // or kHalvingDoubling
  };

  CollectiveScheme scheme = CollectiveScheme::kAutomatic;
  CollectiveCodec codec = CollectiveCodec::kFp32;  // all-gather: kFp32 only
  // kTorus: sizes, whose product is the number of ranks.
  std::vector<Dimension> grid = {};
  // The floats are cut into chunks of so many bytes, several of which are under way at the same
  // time; at least 1024, and not so many that a frame has more than 1 GiB. 0: by scheme and number
  // of ranks, so that the largest frames are of 1 MiB.
  int64_t chunk_bytes = 0;
};

struct CommunicatorOptions {
  int rank = 0;
  // "host:port" of all ranks, in their order; this rank listens on its own port. Moreover it takes
  // a free port for each lane.
  std::vector<std::string> endpoints = {};
  // Address that the sockets are bound to; "*" is all interfaces. Empty: that of this rank's own
  // endpoint if no other machine reaches it (127.0.0.1), else all interfaces.
  std::string bind_host = {};
  // Lanes: sockets, threads and connections to each peer. One fills a link of 10 Gb/s; beyond that,
  // and with cores to spare, more are faster.
  int lanes = 1;
  // How long a call, and the constructor, waits for the other ranks.
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
  // How long a rank may say nothing at all, while a call waits for the others, before it is taken
  // for lost. It answers whatever its program does meanwhile, unless its process is dead or
  // stopped, or its machine out of reach.
  std::chrono::nanoseconds silence = std::chrono::seconds(30);
  // Asked a few times a second while a call waits; if true, the call throws Error with
  // ExitCode::kInterrupted. What it throws itself leaves the call, too, as an error. May be empty.
  std::function<bool()> interrupted = {};
  // File of a key that `poseidon keys` has made, the same for all ranks: all connections are
  // encrypted, and who has not the key can't be a rank. Empty: none (docs/security.md).
  std::string key_file = {};
  // Addresses and networks ("10.0.0.0/8") that connections may come from. Without a key those of
  // the endpoints always may; with one and an empty list all may.
  std::vector<std::string> allow = {};
};

class Communicator {
 public:
  // Listens, then waits until all ranks are there.
  explicit Communicator(const CommunicatorOptions& options);
  // Does not wait for other ranks; what they still need from this one is sent.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int workers() const;

  // floats[i] becomes the sum of all ranks' floats[i]. Any size, also 0.
  void AllReduce(std::span<float> floats, const CollectiveOptions& options = {});

  // `all` is every rank's block, one behind the other: counts[r] floats of rank r. Each rank has
  // its own in place before and all of them afterwards.
  void AllGather(std::span<float> all, const std::vector<int64_t>& counts,
                 const CollectiveOptions& options = {});
  // Blocks as equal as can be: that of rank r starts at float floor(r all.size() / ranks).
  void AllGather(std::span<float> all, const CollectiveOptions& options = {});

  // Returns when all ranks have called it.
  void Barrier();

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace poseidon
