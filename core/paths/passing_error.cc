#include "core/paths/passing_error.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace poseidon {
namespace {

constexpr std::array<int, 11> kPassingErrors = {EIO,      ESTALE,    ETIMEDOUT,    ECONNRESET,
                                                ENOTCONN, EHOSTDOWN, EHOSTUNREACH, ENETUNREACH,
                                                EMFILE,   ENFILE,    ENOMEM};

}  // namespace

bool MayPass(int error) { return std::ranges::find(kPassingErrors, error) != kPassingErrors.end(); }

bool EndsWithPassingError(std::string_view message) {
  return std::ranges::any_of(kPassingErrors, [message](int error) {
    return message.ends_with(std::string_view(std::strerror(error)));
  });
}

bool MayPassForWriting(int error) {
  return MayPass(error) || error == ENOSPC || error == EDQUOT || error == EFBIG;
}

bool IsDenied(int error) { return error == EACCES || error == EPERM || error == EROFS; }

}  // namespace poseidon
