// What a host says of itself, for the checks of `poseidon doctor`: the script that asks and the
// reader of its answer. Functions without state.
//
//   const HostAnswer answer = AskHere(FactsScript(questions), Seconds(20), nullptr);
//   const HostFacts facts = ParseFacts(answer.text);
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace poseidon {

struct HostQuestions {
  std::string programs;                // directory of this project's programs
  std::vector<std::string> addresses;  // of all hosts, as the hosts are to find them
  std::string next;                    // of these, one to which whole packets are sent; empty: none
  std::vector<std::string> files;      // that all must have alike: solver and nets
  std::vector<std::string> data;       // what training reads: files, or directories of databases
  std::vector<std::string> directories;  // in which there is to be room
  std::string working_directory;
};

struct NetworkInterface {
  std::string name;
  std::string address;  // IPv4 or IPv6
  int mtu = 0;          // bytes
  std::string queueing_discipline;
};

struct Room {
  int64_t bytes = 0;  // free for this user
  bool writable = false;
};

struct Gpu {
  std::string name;
  std::string driver;
};

// What could not be found out is nullopt or not there.
struct HostFacts {
  std::optional<double> clock;  // seconds since 1970
  std::optional<std::string> version;
  std::map<std::string, std::string> programs;  // by name: a fingerprint, "" of one not there
  std::map<std::string, std::string> broken;    // by name: what one says that can't be started
  std::map<std::string, std::string> files;     // fingerprints by path
  std::map<std::string, std::string> resolved;  // by name: the address, "" if there is none
  std::vector<std::string> unasked;             // names that there was no time to look up
  std::map<std::string, std::string> routes;    // by name: the interface that leads there
  std::vector<NetworkInterface> interfaces;
  std::optional<bool> whole_packets;  // whether one of the MTU's size reaches the next host
  std::optional<int> cores;           // that its programs may use
  std::optional<int64_t> memory;      // bytes that are available
  // Limits of a process; -1: none. The hard one of files, to which nodes raise theirs.
  std::optional<int64_t> open_files;
  std::optional<int64_t> processes;
  std::map<std::string, Room> rooms;  // by directory
  std::map<std::string, bool> data;   // by path: whether it can be read
  std::optional<std::string> congestion_control;
  std::vector<Gpu> gpus;
  bool has_working_directory = false;
};

// For /bin/sh. Writes a line a fact: a key and its values, with tabs between them.
std::string FactsScript(const HostQuestions& questions);

// Lines that say nothing sensible are passed over, since a login may print some, too.
HostFacts ParseFacts(const std::string& answer);

}  // namespace poseidon
