// MonitorServer: serves a job's status over HTTP, on threads of its own that run behind all others.
//
//   StatusBoard board;
//   MonitorServer server({.address = "127.0.0.1", .port = 0, .token = ""}, board);
//   std::cout << server.url();  // http://127.0.0.1:40123/
//
// What clients do costs the job nothing but processor time that nobody else wants: there are
// kThreads of them at most, a request has kPatience to arrive and each part of an answer as long to
// be taken, and a status is put into words once, however many ask.
#pragma once

#include <memory>
#include <string>

#include "core/time.h"
#include "scheduler/monitor/status_board.h"

namespace poseidon {

struct MonitorOptions {
  std::string address;
  int port = 0;       // 0: a free one
  std::string token;  // empty: none is asked for
  // MonitorFile's, which /healthz tells everybody, as it says nothing of the job; empty: none.
  std::string identity = {};
};

class MonitorServer {
 public:
  static constexpr int kThreads = 16;
  // Of these at most so many follow the job live; the next get 503 and ask now and then instead.
  static constexpr int kStreams = 8;
  static constexpr Duration kPatience = Seconds(5);
  // Of the answer to /healthz.
  static constexpr const char* kIdentityHeader = "Poseidon-Monitor";

  // Listens and serves. `board` outlives this. Throws ConfigError if it can't listen there.
  MonitorServer(const MonitorOptions& options, const StatusBoard& board);
  // Those who follow a closed board, by a stream or by asking under a name, are told its last
  // status if they take it within kPatience; then all connections are closed. Nobody else is waited
  // for.
  ~MonitorServer();
  MonitorServer(const MonitorServer&) = delete;
  MonitorServer& operator=(const MonitorServer&) = delete;

  int port() const;
  // Where it is; without the token.
  const std::string& url() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace poseidon
