// From the front door's SessionOptions (include/poseidon/session.h) to those of WorkerSession.
#pragma once

#include "client/worker_session.h"
#include "poseidon/session.h"

namespace poseidon {

// Reads and checks the job config. Throws ConfigError, also unless exactly one of job and job_text
// is given.
WorkerSessionOptions ToWorkerSessionOptions(const SessionOptions& options);

}  // namespace poseidon
