#include "caffe_adapter/stores/lmdb_environment.h"

#include <lmdb.h>

#include <string>

#include "core/error.h"
#include "core/paths/passing_error.h"

namespace poseidon {

void LmdbEnvironmentCloser::operator()(MDB_env* environment) const { mdb_env_close(environment); }

void LmdbTransactionAborter::operator()(MDB_txn* transaction) const { mdb_txn_abort(transaction); }

LmdbEnvironment MakeLmdbEnvironment(const std::string& path) {
  MDB_env* environment = nullptr;
  CheckLmdb(mdb_env_create(&environment), path, "opening");
  return LmdbEnvironment(environment);
}

LmdbTransaction BeginLmdbTransaction(MDB_env* environment, unsigned flags,
                                     const std::string& path) {
  MDB_txn* transaction = nullptr;
  CheckLmdb(mdb_txn_begin(environment, nullptr, flags, &transaction), path,
            "beginning a transaction");
  return LmdbTransaction(transaction);
}

void CheckLmdb(int code, const std::string& path, const std::string& action) {
  if (code == MDB_SUCCESS) return;
  const std::string message = path + ": " + action + ": " + mdb_strerror(code);
  // No fault of the data. LMDB's own codes are below 0, the system's above.
  if (MayPassForWriting(code)) throw Error(ExitCode::kFailure, message);
  throw DataError(message);
}

}  // namespace poseidon
