#include "core/error.h"

namespace poseidon {

std::string Location::ToString() const {
  std::string text = file;
  if (line > 0) text += ":" + std::to_string(line);
  if (line > 0 && column > 0) text += ":" + std::to_string(column);
  return text;
}

void ThrowAs(ExitCode exit_code, const std::string& reason) {
  switch (exit_code) {
    case ExitCode::kConfigError:
      throw ConfigError(reason);
    case ExitCode::kDataError:
      throw DataError(reason);
    case ExitCode::kPeerLost:
      throw PeerLost(reason);
    case ExitCode::kDeadlineExceeded:
      throw DeadlineExceeded(reason);
    case ExitCode::kProtocolError:
      throw ProtocolError(reason);
    default:
      throw Error(exit_code, reason);
  }
}

}  // namespace poseidon
