// Access: who may read what a monitor serves.
#pragma once

#include <string>

namespace poseidon {

// What a request shows of itself; empty where it has none.
struct Credentials {
  std::string host;           // the header Host
  std::string authorization;  // the header Authorization
  std::string cookie;         // the header Cookie
  std::string target;         // the path and what is behind it, as sent: "/?token=..."
};

// Immutable, so thread-safe.
class Access {
 public:
  // Without a token only names of the loopback device are answered to, so that no page of a foreign
  // site can have a browser of this machine ask. `port` tells jobs of one machine apart.
  Access(std::string token, int port);

  enum class Answer { kAllowed, kTokenNeeded, kForeignHost };
  Answer Check(const Credentials& credentials) const;
  // "name=token; ..." for a browser that has shown the token once; empty if there is none.
  std::string Cookie() const;

 private:
  std::string token_;
  std::string cookie_name_;
};

// The first line of the file. Throws ConfigError if the file can't be read, if others than its
// owner can, or if it is not 16 to 256 letters, digits or "-._~+/=".
std::string ReadToken(const std::string& path);

}  // namespace poseidon
