#include "client/program_error.h"

#include <exception>

namespace poseidon {

Error HandledError() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {  // of no memory, too
    return {ExitCode::kFailure, error.what()};
  } catch (...) {
    return {ExitCode::kFailure, "the program's own code threw what is no exception"};
  }
}

}  // namespace poseidon
