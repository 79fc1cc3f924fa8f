#include "core/paths/passing_error.h"

#include <cerrno>

namespace poseidon {

bool MayPass(int error) {
  switch (error) {
    case EIO:
    case ESTALE:
    case ETIMEDOUT:
    case ECONNRESET:
    case ENOTCONN:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return true;
    default:
      return false;
  }
}

bool MayPassForWriting(int error) {
  return MayPass(error) || error == ENOSPC || error == EDQUOT || error == EFBIG;
}

bool IsDenied(int error) { return error == EACCES || error == EPERM || error == EROFS; }

}  // namespace poseidon
