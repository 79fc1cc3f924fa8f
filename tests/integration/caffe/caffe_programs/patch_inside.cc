// What a program has inside that was built with the patch: its classes.
namespace poseidon {

class CaffeSolver {
 public:
  virtual ~CaffeSolver();
};

CaffeSolver::~CaffeSolver() = default;

}  // namespace poseidon
