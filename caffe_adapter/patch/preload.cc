// libposeidon_caffe_preload.so: makes an unmodified program that uses BVLC Caffe one of a job's
// workers. `poseidon run -- PROGRAM` puts it into LD_PRELOAD, the job's config into POSEIDON_JOB
// and the worker's rank into POSEIDON_RANK: there is no other way to tell a program that knows
// nothing of us.
//
// It stands before libcaffe.so with functions of the same names: the constructors of
// caffe::Solver<float> and its Solve. They call Caffe's own and, around them, libposeidon_caffe.so,
// which has the patch (caffe_patch.h). This library itself needs neither Caffe nor anything of
// ours, so the shells and interpreters that a script goes through can load it, too.
//
// A program that takes part by itself, with libposeidon.so (include/poseidon/), is left alone.
// One that was built with AddressSanitizer starts as it does without this library.
//
// Refused with a message: a program with Caffe linked statically (nothing can stand before it), a
// libcaffe.so that lacks one of the functions, and a program that has the patch inside, as
// poseidon_caffe has and those that call PatchSolver: it would be there twice.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

constexpr int kRefused = 2;  // ExitCode::kConfigError of core/error.h

// Caffe's names, as g++ has them with the standard library's C++11 strings.
constexpr const char* kConstructor = "_ZN5caffe6SolverIfEC2ERKNS_15SolverParameterE";
constexpr const char* kFileConstructor =
    "_ZN5caffe6SolverIfEC2ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
constexpr const char* kSolve = "_ZN5caffe6SolverIfE5SolveEPKc";
// The names in the run-time type information of every program that has a class, stripped or not:
// one of Caffe's, and one of the patch.
constexpr std::string_view kCaffeType = "N5caffe9SGDSolverIfEE";
constexpr std::string_view kPatchType = "N8poseidon11CaffeSolverE";

[[noreturn]] void Refuse(const std::string& message) {
  std::fprintf(stderr, "poseidon: %s\n", message.c_str());
  std::fflush(stderr);
  _exit(kRefused);
}

std::string LastError() {
  const char* error = dlerror();
  return error == nullptr ? "unknown error" : error;
}

// The paths of the loaded libraries whose names start so.
struct Libraries {
  const char* start;
  int count = 0;
  std::string path = {};
};

int AddLibrary(dl_phdr_info* info, size_t /*size*/, void* to) {
  auto* libraries = static_cast<Libraries*>(to);
  const char* slash = std::strrchr(info->dlpi_name, '/');
  const char* name = slash == nullptr ? info->dlpi_name : slash + 1;
  if (std::strncmp(name, libraries->start, std::strlen(libraries->start)) != 0) return 0;
  libraries->path += (libraries->count++ == 0 ? "" : " and ") + std::string(info->dlpi_name);
  return 0;
}

Libraries FindLibraries(const char* start) {
  Libraries found{start};
  dl_iterate_phdr(AddLibrary, &found);
  return found;
}

Libraries FindCaffe() { return FindLibraries("libcaffe.so"); }

// Whether the program's own file has the class inside.
bool HasInside(std::string_view type) {
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || fstat(file, &status) != 0) return false;
  const auto size = static_cast<size_t>(status.st_size);
  void* const bytes = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (bytes == MAP_FAILED) return false;
  const bool found = memmem(bytes, size, type.data(), type.size()) != nullptr;
  munmap(bytes, size);
  return found;
}

// The program is a worker of its own accord.
bool TakesPartItself() { return FindLibraries("libposeidon.so").count > 0; }

// Caffe's own function. Also where an interpreter has loaded libcaffe.so for itself only, so that
// "the next one" is not found.
template <typename Function>
Function* Original(const char* name) {
  void* function = dlsym(RTLD_NEXT, name);
  if (function == nullptr) {
    const Libraries caffe = FindCaffe();
    void* library = dlopen(caffe.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (caffe.count == 1 && library != nullptr) function = dlsym(library, name);
    if (function == nullptr) {
      Refuse("the libcaffe.so of this program (" + caffe.path + ") has no " + name +
             "; `poseidon run -- PROGRAM` needs BVLC Caffe 1.0 (docs/caffe.md)");
    }
  }
  return reinterpret_cast<Function*>(function);
}

// libposeidon_caffe.so, from this library's own directory.
void* LoadPatch() {
  Dl_info self{};
  dladdr(reinterpret_cast<const void*>(&LoadPatch), &self);
  std::string path = self.dli_fname;
  path = path.substr(0, path.rfind('/') + 1) + "libposeidon_caffe.so";
  if (access(path.c_str(), F_OK) != 0) {
    Refuse(
        "there is no " + path +
        ", which makes programs that use Caffe workers of a job; build Poseidon with -DCaffe_DIR "
        "or -DPOSEIDON_CAFFE_ROOT (docs/caffe.md)");
  }
  const Libraries before = FindCaffe();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Refuse("can't load the patch: " + LastError());
  if (const Libraries now = FindCaffe(); now.count > 1) {
    Refuse("the program uses " + before.path + ", but Poseidon was built with another Caffe: " +
           now.path + "; build it with -DPOSEIDON_CAFFE_ROOT of the program's (docs/caffe.md)");
  }
  return library;
}

template <typename Function>
Function* Patch(const char* name) {
  static void* const library = LoadPatch();
  void* function = dlsym(library, name);
  if (function == nullptr) Refuse(LastError());
  return reinterpret_cast<Function*>(function);
}

// Functions that take the place of the program's own have no object that could keep this.
pid_t joined = 0;  // the process that has; not a child that it forks
bool solving = false;

bool HasJoined() { return joined == getpid(); }

void Join() {
  const char* config = std::getenv("POSEIDON_JOB");
  const char* rank = std::getenv("POSEIDON_RANK");
  if (config == nullptr || rank == nullptr) {
    Refuse("POSEIDON_JOB or POSEIDON_RANK is not set; start programs by `poseidon run -- PROGRAM`");
  }
  Patch<void(const char*, int)>("PoseidonCaffeJoin")(config, std::atoi(rank));
  joined = getpid();
}

// A solver is made from a SolverParameter or from the name of a file: either way a reference.
void MakeSolver(const char* constructor, void* solver, const void* argument) {
  const auto make = Original<void(void*, const void*)>(constructor);
  if (TakesPartItself()) return make(solver, argument);
  Join();
  make(solver, argument);
  Patch<void(void*)>("PoseidonCaffeAttach")(solver);
}

// What can be known before the program starts.
__attribute__((constructor)) void CheckProgram() {
  if (TakesPartItself()) return;
  const Libraries caffe = FindCaffe();
  if (caffe.count == 0 && HasInside(kCaffeType)) {
    Refuse(
        "the program has Caffe linked statically; `poseidon run -- PROGRAM` needs one that uses "
        "libcaffe.so, or use poseidon_caffe (docs/caffe.md)");
  }
  if (HasInside(kPatchType)) {
    Refuse(
        "the program has Poseidon's patch inside, which `poseidon run -- PROGRAM` gives to one "
        "without it; start it with its job and rank, as poseidon_caffe train --solver=S --job=F "
        "--rank=N, or run the caffe program without the patch (docs/caffe.md)");
  }
  if (caffe.count == 0) return;
  for (const char* name : {kConstructor, kFileConstructor, kSolve}) Original<void()>(name);
}

__attribute__((destructor)) void FinishJob() {
  if (HasJoined()) Patch<void()>("PoseidonCaffeFinish")();
}

}  // namespace

extern "C" {

// AddressSanitizer's runtime asks the first library that has this for its options, before those of
// ASAN_OPTIONS. It refuses to start behind a library that it does not know, as this one is in a
// program that was built with it; it works all the same.
__attribute__((visibility("default"))) const char* PoseidonAsanOptions() asm(
    "__asan_default_options");

const char* PoseidonAsanOptions() { return "verify_asan_link_order=0"; }

// The functions that stand before Caffe's.
__attribute__((visibility("default"))) void PoseidonConstruct(
    void* solver, const void* parameter) asm("_ZN5caffe6SolverIfEC2ERKNS_15SolverParameterE");
__attribute__((visibility("default"))) void
PoseidonConstructFromFile(void* solver, const void* file) asm(
    "_ZN5caffe6SolverIfEC2ERKNSt7__cxx1112basic_stringIcSt11"
    "char_traitsIcESaIcEEE");
__attribute__((visibility("default"))) void PoseidonSolve(
    void* solver, const char* resume_file) asm("_ZN5caffe6SolverIfE5SolveEPKc");

void PoseidonConstruct(void* solver, const void* parameter) {
  MakeSolver(kConstructor, solver, parameter);
}

void PoseidonConstructFromFile(void* solver, const void* file) {
  MakeSolver(kFileConstructor, solver, file);
}

// The patch calls Solve again, on worker 0, for Caffe's own.
void PoseidonSolve(void* solver, const char* resume_file) {
  if (solving || !HasJoined()) {
    Original<void(void*, const char*)>(kSolve)(solver, resume_file);
    return;
  }
  solving = true;
  Patch<void(void*, const char*)>("PoseidonCaffeSolve")(solver, resume_file);
  solving = false;
}

}  // extern "C"
