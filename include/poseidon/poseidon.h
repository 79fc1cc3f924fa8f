// The C interface of libposeidon: Session (poseidon/session.h) and Communicator
// (poseidon/communicator.h) for programs in other languages; python/poseidon_torch is one. What the
// calls do, in which order they go and what memory they hand out is told there; here stands what is
// different.
//
// A program of which each rank is started with its number and the addresses of all, as in
// `./sum 0 10.0.0.1:5000 10.0.0.2:5000` on one machine and `./sum 1 ...` on the other:
//
//   #include <poseidon/poseidon.h>
//
//   #include <stdio.h>
//   #include <stdlib.h>
//
//   int main(int count, char** words) {
//     poseidon_communicator_options options = {0};
//     options.rank = count > 1 ? atoi(words[1]) : 0;
//     options.ranks = count - 2;
//     options.endpoints = (const char* const*)words + 2;
//     poseidon_communicator* all = NULL;
//     float number = (float)(options.rank + 1);
//     if (poseidon_communicator_create(&options, &all) != 0 ||
//         poseidon_communicator_all_reduce(all, &number, 1, NULL) != 0) {
//       fprintf(stderr, "%s\n", poseidon_last_error());
//       return 1;
//     }
//     printf("%g\n", number);
//     poseidon_communicator_destroy(all);
//     return 0;
//   }
//
// Errors: a function that returns int returns 0, or one of the exit codes of docs/errors.md
// (poseidon/error.h: ExitCode); poseidon_last_error() then says what happened, where, and what to
// do. No exception leaves the library. Arguments that a caller can get wrong are errors, too. Of
// code 1 are a null pointer for a handle, for the options of a new one or for a result, a layer
// that is not there, a negative first iteration or time, and calls out of order or with another
// number of items than the model has. Of code 2 is what is given and can't work: options, a model,
// groups' numbers, negative numbers of items, and a null pointer for items, also for those to be
// written.
//
// What the other nodes hear of a mistake where a session is destroyed (poseidon/session.h) holds
// for what the class refuses, and not for what is refused before the class is called: null
// pointers, negative numbers of items, an optimizer that there is not.
//
// In a job with `recovery`, a session's call returns POSEIDON_REWOUND, which is no exit code, where
// the class throws poseidon::Rewound (poseidon/rewound.h); and POSEIDON_LEFT, no exit code either,
// where it throws poseidon::Left (poseidon/error.h): the program may end well.
//
// Text is UTF-8 and ends with a zero. A null pointer or an empty text means that an option is not
// given, and an options structure that is all zeros holds the defaults unless its comment says
// otherwise. What a call is given is copied; the caller keeps it.
//
// Thread safety: calls with one handle may come from any thread; they wait for each other, so that
// a call that waits for the network keeps the others waiting; also those that return a number of
// the handle's. To destroy a handle waits for the call that is going on with it, and has to be the
// last one. poseidon_last_error is of the calling thread.
//
// fork: a handle belongs to the process that made it. In a child that the process forks every call
// with it fails, and destroying it there does nothing; what returns a number of the handle's
// returns that of a null handle.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// "0.1.0"
const char* poseidon_version(void);

// Of the calling thread's last call that failed, up to 4095 bytes; empty before one did. Good until
// its next call.
const char* poseidon_last_error(void);

// What the library says by itself goes to stderr: 0 information, 1 warnings (at first), 2 errors.
// It says it by glog: of a program that uses glog, too, and may set it up before or after, this is
// the FLAGS_minloglevel. That is left as it is where glog has been set up before the first handle
// is made, or where it, or GLOG_minloglevel in the environment, has been chosen. A program that
// sets glog up later, and wants its own information to be seen, calls poseidon_set_log_level(0).
// Where nobody sets glog up, a line of its own goes before the first message: "WARNING: Logging
// before InitGoogleLogging() is written to STDERR".
void poseidon_set_log_level(int least_severity);

// Asked a few times a second while a call waits, in the thread that called; not 0: the call ends
// with code 130. It may call no function of this header with the handle of that call, nor may a
// signal's handler that it runs: such a call fails (code 1). To destroy the handle there is left
// to the call that waits, which does it when it returns.
typedef int (*poseidon_interrupted)(void* context);

// ---- Session ---------------------------------------------------------------------------------

enum { POSEIDON_REWOUND = -1, POSEIDON_LEFT = -2 };

typedef struct poseidon_session poseidon_session;

typedef struct poseidon_session_options {
  const char* job;                   // path of the job config, or
  const char* job_text;              // its text
  const char* host;                  // that other nodes reach this machine at; not given: found out
  const char* trace_directory;       // for `trace: true`; not given: no trace
  int rank;                          // from 0; -1: whichever is free
  poseidon_interrupted interrupted;  // may be null
  void* context;                     // what it is called with
  int goes_back;                     // 1: the program calls poseidon_session_go_back
  uint64_t incarnation;              // poseidon::SessionOptions::incarnation
  uint64_t replaces;                 // poseidon::SessionOptions::replaces
  // poseidon::SessionOptions::allocate, and how what it made is freed; null for the heap. Called by
  // threads of the library's. A block that is null is taken from the heap.
  void* (*allocate)(void* memory_context, uint64_t bytes);
  void (*release)(void* memory_context, void* block);
  void* memory_context;
} poseidon_session_options;

typedef struct poseidon_blob {
  const int64_t* shape;  // each extent at least 1; a model has at most 2^50 floats
  int axes;
  // 0 or more, on all workers the same. Not read: neither optimizer that C offers has multipliers.
  float lr_mult;
  float decay_mult;
  int group;  // poseidon::Blob::group
} poseidon_blob;

typedef struct poseidon_layer {
  const char* name;
  const char* type;  // for tables
  const poseidon_blob* blobs;
  int blob_count;
  // rows > 0: poseidon::InnerProduct; the first blob is outputs x inputs.
  int64_t outputs;
  int64_t inputs;
  int64_t rows;
  int64_t multiply_adds;  // of one sample's forward pass; 0: not known
  double forward_ms;      // of one batch; 0: not known
  double backward_ms;
} poseidon_layer;

typedef struct poseidon_model {
  const char* name;
  const poseidon_layer* layers;  // in forward order, names all different
  int layer_count;
  int64_t batch;       // samples of an iteration on one worker, below 2^31; 0: not known
  int64_t iterations;  // of the whole training; 0: not known
  // Not given: updated by the program, all workers get the mean of their gradients. "TorchSGD",
  // "TorchAdamW": by the servers, all workers get new values (poseidon::OptimizerType).
  const char* optimizer;
} poseidon_model;

// poseidon::ParameterGroup
typedef struct poseidon_parameter_group {
  double learning_rate;
  double weight_decay;
  double momentum;   // AdamW: the first of betas
  double momentum2;  // AdamW: the second of betas
  double dampening;
  double delta;  // AdamW: eps
  int nesterov;
  int maximize;
} poseidon_parameter_group;

// Where a layer's floats are. Sizes are numbers of floats; 0 with a null pointer: not used. Either
// `gradient` is to be written, or, where the plan sends factors, u and v.
typedef struct poseidon_layer_memory {
  float* values;
  int64_t values_size;
  float* gradient;
  int64_t gradient_size;
  float* u;
  int64_t u_size;
  float* v;
  int64_t v_size;
  float* mean_gradient;
  int64_t mean_gradient_size;
} poseidon_layer_memory;

// Joins; waits until all nodes are there.
int poseidon_session_create(const poseidon_session_options* options, poseidon_session** session);
// Tells the other nodes that this one gives up unless poseidon_session_finish has returned 0.
void poseidon_session_destroy(poseidon_session* session);

int poseidon_session_rank(const poseidon_session* session);     // -1 for null
int poseidon_session_workers(const poseidon_session* session);  // -1 for null
// That which is computed, or is next; -1 for null.
int64_t poseidon_session_iteration(const poseidon_session* session);
// As the job says; 1, 1 and 0 in a job that exchanges gradients in every step, -1 for null.
int poseidon_session_local_steps(const poseidon_session* session);
int poseidon_session_fragments(const poseidon_session* session);
int poseidon_session_overlap_steps(const poseidon_session* session);
// 1 if the job goes back after a loss; 0 if not, or for null.
int poseidon_session_recovers(const poseidon_session* session);

int poseidon_session_declare(poseidon_session* session, const poseidon_model* model,
                             int64_t first_iteration);
int poseidon_session_begin(poseidon_session* session);
// Asked in every iteration anew, as the memory may alternate: after the layer's
// poseidon_session_wait_fresh, or before poseidon_session_begin.
int poseidon_session_memory(poseidon_session* session, int layer, poseidon_layer_memory* memory);
int poseidon_session_gradient_ready(poseidon_session* session, int layer);
int poseidon_session_wait_fresh(poseidon_session* session, int layer);
// poseidon::Session::layers_sent_with: `count` layers, from `first` on.
int poseidon_session_layers_sent_with(poseidon_session* session, int layer, int* first, int* count);
// poseidon::Session::SetGroups
int poseidon_session_set_groups(poseidon_session* session, const poseidon_parameter_group* groups,
                                int count);
// Worker 0, where the servers update: poseidon::Session::RestoreOptimizerState and
// CollectOptimizerState, of `count` floats.
int poseidon_session_restore_optimizer_state(poseidon_session* session, const float* state,
                                             int64_t count);
int poseidon_session_collect_optimizer_state(poseidon_session* session, float* state,
                                             int64_t count);
// `loss`: the worker's, of its samples; NaN: not known. `plan_changed`, which may be null, becomes
// 1 if the layers' memory is elsewhere now, else 0.
int poseidon_session_end_iteration(poseidon_session* session, float loss, int* plan_changed);
// 1 if the job plans by how long layers compute (policy TIME); 0 if not, or for null.
int poseidon_session_wants_layer_times(const poseidon_session* session);
// Milliseconds of one batch's passes through each of the `layer_count` layers, as measured; once,
// in any iteration. When all workers have said theirs, the job may go over to a better plan.
int poseidon_session_report_layer_times(poseidon_session* session, const double* forward_ms,
                                        const double* backward_ms, int layer_count);
int poseidon_session_finish(poseidon_session* session);
// After POSEIDON_REWOUND: poseidon::Session::GoBack.
int poseidon_session_go_back(poseidon_session* session);
// poseidon::Session::SendsStatistics and so on; 0 for null. Awaited statistics are written to
// `count` floats.
int poseidon_session_sends_statistics(const poseidon_session* session);
int poseidon_session_awaits_statistics(const poseidon_session* session);
int poseidon_session_send_statistics(poseidon_session* session, const float* statistics,
                                     int64_t count);
int poseidon_session_await_statistics(poseidon_session* session, float* statistics, int64_t count);
// Ends the job for all nodes, which say `reason`.
int poseidon_session_fail(poseidon_session* session, const char* reason);

// ---- Communicator ----------------------------------------------------------------------------

// A rank whose call fails tells the others why, and later calls fail with the same error. Not so
// where a call's own arguments are the error: nobody is told. The rank can still make the call, for
// which the others wait until their deadline. Nor is anybody told why a communicator can't be
// created, unless it has begun to wait for the others.
typedef struct poseidon_communicator poseidon_communicator;

typedef struct poseidon_communicator_options {
  int rank;
  int ranks;
  const char* const* endpoints;  // `ranks` of them: "host:port"
  const char* bind_host;         // not given: the loopback interface for a rank on it, else all
  int lanes;                     // 0: 1
  double deadline_seconds;       // 0: 60
  poseidon_interrupted interrupted;
  void* context;
  const char* key_file;      // of a key that all ranks share; not given: none
  const char* const* allow;  // `networks` addresses and networks that connections may come from,
  int networks;              // besides, without a key, the endpoints' addresses
} poseidon_communicator_options;

typedef struct poseidon_collective_options {
  int scheme;           // poseidon::CollectiveScheme: 0 automatic, 1 ring, 2 halving and doubling
  int codec;            // poseidon::CollectiveCodec: 0 FP32, 1 FP16, 2 BF16
  int64_t chunk_bytes;  // 0: by scheme and number of ranks
} poseidon_collective_options;

int poseidon_communicator_create(const poseidon_communicator_options* options,
                                 poseidon_communicator** communicator);
void poseidon_communicator_destroy(poseidon_communicator* communicator);
// `options` may be null. In place: the sum of all ranks' floats.
int poseidon_communicator_all_reduce(poseidon_communicator* communicator, float* floats,
                                     int64_t count, const poseidon_collective_options* options);
// `floats` is every rank's block, counts[r] floats of rank r, one behind the other.
int poseidon_communicator_all_gather(poseidon_communicator* communicator, float* floats,
                                     const int64_t* counts,
                                     const poseidon_collective_options* options);
int poseidon_communicator_barrier(poseidon_communicator* communicator);

#ifdef __cplusplus
}
#endif
