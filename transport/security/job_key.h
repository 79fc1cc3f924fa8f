// JobKey: the secret that all nodes of a job share, and its file.
//
// It is one CurveZMQ key pair. Every node uses it as the server of its connections and as their
// client, so whoever has it can be any node of the job, and whoever has not can be none.
// docs/security.md says against whom that helps.
#pragma once

#include <string>

namespace poseidon {

// Both halves in ZeroMQ's Z85 text, 40 characters each. A value.
struct JobKey {
  std::string public_key;
  std::string secret_key;

  // A new one. Throws Error if the ZeroMQ of this machine was built without CURVE.
  static JobKey Make();
  // Reads what Write has written. Throws ConfigError if the file is not there, is no such file, or
  // if others than its owner may read or write it; owners other than this user and root count as
  // others.
  //
  //   options.key = JobKey::Read("job.key");
  static JobKey Read(const std::string& path);
  // Reads the text of such a file, as a job config may have it. Throws ConfigError if it is none.
  static JobKey Parse(const std::string& text);
  // The text of its file.
  std::string ToText() const;
  // Writes the secret half to a new file that only its owner can read (mode 0600). Throws Error if
  // the file is there already, whose key a job may still use, or can't be written.
  void Write(const std::string& path) const;
};

}  // namespace poseidon
