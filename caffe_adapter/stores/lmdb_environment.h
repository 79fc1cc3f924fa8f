// Owns an open LMDB environment.
#pragma once

#include <memory>
#include <string>

struct MDB_env;
struct MDB_txn;

namespace poseidon {

struct LmdbEnvironmentCloser {
  void operator()(MDB_env* environment) const;
};
using LmdbEnvironment = std::unique_ptr<MDB_env, LmdbEnvironmentCloser>;

struct LmdbTransactionAborter {
  void operator()(MDB_txn* transaction) const;
};
// Aborted unless released to mdb_txn_commit. Must go before its environment.
using LmdbTransaction = std::unique_ptr<MDB_txn, LmdbTransactionAborter>;

// An environment for the database at `path`, not open yet. Throws DataError.
LmdbEnvironment MakeLmdbEnvironment(const std::string& path);

LmdbTransaction BeginLmdbTransaction(MDB_env* environment, unsigned flags, const std::string& path);

// Throws DataError "PATH: ACTION: what LMDB says" unless `code` is MDB_SUCCESS; Error of kFailure
// if it is an error of the system's that may pass or a disk that is full.
void CheckLmdb(int code, const std::string& path, const std::string& action);

}  // namespace poseidon
