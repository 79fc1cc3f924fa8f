// What failures cost a job that is not recovered but started again, all of it, from its newest
// snapshot: the expectation, in closed form. Nothing is simulated here.
//
// J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps",
// Future Generation Computer Systems 22 (2006), 303-312. Failures come at exponential intervals,
// while snapshots are written and the job starts again, too; each throws the job back to the
// snapshot before. Pure functions; all times are seconds.
#pragma once

namespace poseidon {

struct SnapshotRestarts {
  double mtbf = 0;   // mean time between failures of the whole job, above 0
  double write = 0;  // training stands still while a snapshot is written
  // From a failure until the job trains from its snapshot.
  double restart = 0;
};

// Of training between two snapshots, which costs least in expectation, by Daly's series for
// Young's problem. Where a snapshot takes more than twice the time between failures it is that
// time.
double BestInterval(const SnapshotRestarts& restarts);

// Training that is kept, as a share of the time, with `interval` seconds of training between two
// snapshots, above 0. 0 where that is too small for a number.
double GoodputOfRestarts(const SnapshotRestarts& restarts, double interval);

}  // namespace poseidon
