// Errors of this project's libraries and programs: what a user, a file or the network can cause.
//
//   try {
//     poseidon::Session session(options);
//   } catch (const poseidon::Error& error) {
//     std::cerr << error.what() << std::endl;  // what happened, where, and what to do
//     return static_cast<int>(error.exit_code());
//   }
//
// Every program of this project ends that way; the codes are part of the interface
// (docs/errors.md) and never change their meaning. What only a bug of the library's own can cause
// is no Error: it ends the process with a message.
#pragma once

#include <stdexcept>
#include <string>

namespace poseidon {

enum class ExitCode : int {
  kSuccess = 0,
  kFailure = 1,           // anything without a code of its own
  kConfigError = 2,       // a flag, a config, a net or a solver is wrong
  kPeerLost = 3,          // a node of the job died or fell silent
  kDeadlineExceeded = 4,  // a wait ended without what it waited for; every node still answered
  kRefused = 5,           // the scheduler did not admit this node
  kDataError = 6,         // training data can't be read
  kProtocolError = 7,     // a peer broke the protocol in a way that can't be skipped
  kGivenUp = 8,           // the job goes on without this process; start it again
  kParametersDiffer = 9,  // the workers ended with different parameters
  kInterrupted = 130,     // SIGINT or SIGTERM, the shell's convention of 128 + 2
};

// Base of all errors. Immutable; safe to copy between threads.
class Error : public std::runtime_error {
 public:
  Error(ExitCode exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  ExitCode exit_code() const { return exit_code_; }

 private:
  ExitCode exit_code_;
};

// A place in a text file; line and column count from 1, 0 means unknown.
struct Location {
  std::string file;
  int line = 0;
  int column = 0;
  // "file:line:column", leaving out what is unknown.
  std::string ToString() const;
};

// Something a user wrote is wrong. The message says what was found and what was meant to be there.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(ExitCode::kConfigError, message) {}
  ConfigError(const Location& where, const std::string& message)
      : Error(ExitCode::kConfigError, where.ToString() + ": " + message) {}
};

// Training data (LMDB, images, labels) is missing, truncated or corrupt. Names file and record.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(ExitCode::kDataError, message) {}
};

// A node of the job is gone. Names role, rank, machine, process and when it was last heard.
class PeerLost : public Error {
 public:
  explicit PeerLost(const std::string& message) : Error(ExitCode::kPeerLost, message) {}
};

// A wait ran out. Names who is missing, for which layer and iteration.
class DeadlineExceeded : public Error {
 public:
  explicit DeadlineExceeded(const std::string& message)
      : Error(ExitCode::kDeadlineExceeded, message) {}
};

// A peer broke the protocol in a way that can't be skipped.
class ProtocolError : public Error {
 public:
  explicit ProtocolError(const std::string& message) : Error(ExitCode::kProtocolError, message) {}
};

// This worker's part is over, and nothing has failed: it has left the job, as it or somebody had
// asked for, and the job goes on without it; or it was a spare, and the job has ended without ever
// needing it. A session's call throws it, or its making; the session is over. What it says is a
// sentence for people, and the exit code kSuccess.
class Left : public Error {
 public:
  explicit Left(const std::string& reason) : Error(ExitCode::kSuccess, reason) {}
};

}  // namespace poseidon
