// The library that has Python in it (python_layer.h). What can be said in Python stands in
// caffe_module.py; here is what can't: the interpreter, its lock, and memory.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
// Python's own header comes first, as it wants.
#include <signal.h>

#include <mutex>
#include <span>
#include <utility>

#include "caffe_adapter/python/caffe_module.h"
#include "caffe_adapter/python/python_layer.h"
#include "core/process/blocked_signals.h"

namespace poseidon {
namespace {

struct Release {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Object = std::unique_ptr<PyObject, Release>;

// As long as it lives the calling thread does not block the signals that end programs. Threads that
// compute do (worker/torch/torch_engine.cc), and a program that a layer starts would inherit that
// and could not be ended. The system calls a handler on the main thread first, which has a stack
// for it.
class UnblockedSignals {
 public:
  UnblockedSignals() {
    sigset_t ending;
    sigemptyset(&ending);
    for (const int signal : kEndingSignals) sigaddset(&ending, signal);
    pthread_sigmask(SIG_UNBLOCK, &ending, &before_);
  }
  ~UnblockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  UnblockedSignals(const UnblockedSignals&) = delete;
  UnblockedSignals& operator=(const UnblockedSignals&) = delete;

 private:
  sigset_t before_;
};

// Python's lock, which every call of Python needs. It is released while a layer does not compute,
// and by NumPy while it does.
class Lock {
 public:
  Lock() : state_(PyGILState_Ensure()) {}
  ~Lock() { PyGILState_Release(state_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  UnblockedSignals signals_;
  PyGILState_STATE state_;
};

constexpr char kModuleName[] = "caffe";

std::string ToText(PyObject* object) {
  const Object text(object == nullptr ? nullptr : PyObject_Str(object));
  const char* bytes = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (bytes == nullptr) PyErr_Clear();
  return bytes == nullptr ? "an error that can't be shown" : bytes;
}

// Throws what Python has thrown.
[[noreturn]] void Throw() {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Object owned_type(type);
  const Object error(value);
  const Object owned_traceback(traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), kModuleName);
  const Object said(module == nullptr ? nullptr
                                      : PyObject_CallMethod(module, "_explain", "O", value));
  const char* what = nullptr;
  const char* where = nullptr;
  if (said && PyArg_ParseTuple(said.get(), "ss", &what, &where) != 0) {
    throw PythonError(what, where);
  }
  PyErr_Clear();
  throw PythonError(ToText(value));
}

Object Checked(PyObject* object) {
  if (object == nullptr) Throw();
  return Object(object);
}

// Memory of ours as Python's buffers have it. Arrays on it keep it, and it its owner.
struct Buffer {
  PyObject base;
  PythonMemory* memory;
};

int GetBuffer(PyObject* self, Py_buffer* view, int flags) {
  const PythonMemory& memory = *reinterpret_cast<Buffer*>(self)->memory;
  return PyBuffer_FillInfo(view, self, memory.values,
                           memory.count * static_cast<Py_ssize_t>(sizeof(float)),
                           memory.writable ? 0 : 1, flags);
}

void FreeBuffer(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<Buffer*>(self)->memory;
  type->tp_free(self);
  Py_DECREF(type);
}

Object MakeBufferType() {
  PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(GetBuffer)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(FreeBuffer)},
                         {0, nullptr}};
  PyType_Spec spec = {"caffe._Buffer", sizeof(Buffer), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  return Checked(PyType_FromSpec(&spec));
}

Object ToBuffers(const Object& type, const std::vector<PythonMemory>& memories) {
  Object list = Checked(PyList_New(static_cast<Py_ssize_t>(memories.size())));
  auto* buffer_type = reinterpret_cast<PyTypeObject*>(type.get());
  for (size_t i = 0; i < memories.size(); ++i) {
    Object buffer = Checked(buffer_type->tp_alloc(buffer_type, 0));
    reinterpret_cast<Buffer*>(buffer.get())->memory = new PythonMemory(memories[i]);
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), buffer.release());
  }
  return list;
}

// The memory of a contiguous array, which stays where it is as long as the array.
std::span<float> MemoryOf(PyObject* array) {
  Py_buffer view;
  if (PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS) != 0) Throw();
  const std::span<float> values(static_cast<float*>(view.buf), view.len / sizeof(float));
  PyBuffer_Release(&view);
  return values;
}

Shape ShapeOf(PyObject* extents) {
  Shape shape;
  const Object tuple = Checked(PySequence_Tuple(extents));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple.get()); ++i) {
    shape.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple.get(), i)));
    if (PyErr_Occurred() != nullptr) Throw();
  }
  return shape;
}

Object ToTuple(const Shape& shape) {
  Object tuple = Checked(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (size_t i = 0; i < shape.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i),
                     Checked(PyLong_FromLongLong(shape[i])).release());
  }
  return tuple;
}

void Append(const Object& list, const Object& item) {
  if (PyList_Append(list.get(), item.get()) != 0) Throw();
}

Object ToText(const std::string& text) {
  return Checked(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

void Initialize() {
  PyPreConfig before;
  PyPreConfig_InitPythonConfig(&before);
  before.configure_locale = 0;  // the programs have one
  before.coerce_c_locale = 0;
  before.utf8_mode = 1;
  PyStatus status = Py_PreInitialize(&before);
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.install_signal_handlers = 0;  // the programs have theirs
  config.parse_argv = 0;
  // Python looks for its modules from where its program is. By default it would take whatever
  // python3 is first in PATH, maybe one of another version.
  if (PyStatus_Exception(status) == 0) {
    status = PyConfig_SetBytesString(&config, &config.program_name, POSEIDON_PYTHON);
  }
  if (PyStatus_Exception(status) == 0) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status) != 0) {
    throw PythonError(std::string("Python does not start: ") +
                      (status.err_msg == nullptr ? "it says not why" : status.err_msg));
  }
  PyEval_SaveThread();  // which releases the lock
}

// Ours, whether or not the machine has a Caffe with such a module.
void LoadCaffeModule() {
  const Object code = Checked(Py_CompileString(kCaffeModule, "<caffe>", Py_file_input));
  const Object module = Checked(PyImport_ExecCodeModule(kModuleName, code.get()));
  const Object type = MakeBufferType();
  if (PyObject_SetAttrString(module.get(), "_Buffer", type.get()) != 0) Throw();
}

// Once for the process, which has no more than one Python. Again where it has failed.
void StartPython() {
  static std::once_flag started;
  std::call_once(started, [] {
    if (Py_IsInitialized() == 0) Initialize();
    const Lock lock;
    LoadCaffeModule();
  });
}

class EmbeddedLayer : public PythonLayer {
 public:
  // With the lock.
  explicit EmbeddedLayer(const PythonLayerOptions& options)
      : rank_(options.rank), workers_(options.workers) {
    const Object module = Checked(PyImport_ImportModule(kModuleName));
    buffer_type_ = Checked(PyObject_GetAttrString(module.get(), "_Buffer"));
    const Object bottoms = Checked(PyList_New(0));
    for (const PythonLayerOptions::Bottom& bottom : options.bottoms) {
      Append(bottoms, Checked(Py_BuildValue("(NN)", ToText(bottom.name).release(),
                                            ToTuple(bottom.shape).release())));
    }
    const Object tops = Checked(PyList_New(0));
    for (const std::string& top : options.tops) Append(tops, ToText(top));
    const Object attributes = Checked(
        Py_BuildValue("{sNsisLsLsi}", "param_str", ToText(options.param_str).release(), "phase",
                      options.test ? 1 : 0, "rank", rank_, "workers", workers_, "iteration", 0));
    layer_ = Checked(
        PyObject_CallMethod(module.get(), "_NetLayer", "NNNOOO", ToText(options.module).release(),
                            ToText(options.layer).release(), ToText(options.directory).release(),
                            attributes.get(), bottoms.get(), tops.get()));
    ReadShapes();
  }

  ~EmbeddedLayer() override {
    const Lock lock;
    layer_.reset();
    buffer_type_.reset();
  }

  const std::vector<Shape>& top_shapes() const override { return top_shapes_; }
  const std::vector<Parameter>& parameters() const override { return parameters_; }
  bool has_backward() const override { return has_backward_; }

  void SetPlace(int64_t rank, int64_t workers) override {
    rank_ = rank;
    workers_ = workers;
  }

  std::vector<float*> Forward(int64_t iteration, const std::vector<PythonMemory>& bottoms,
                              const std::vector<PythonMemory>& parameters) override {
    const Lock lock;
    const Object tops = Checked(
        PyObject_CallMethod(layer_.get(), "forward", "{sLsLsL}NN", "iteration", iteration, "rank",
                            rank_, "workers", workers_, ToBuffers(buffer_type_, bottoms).release(),
                            ToBuffers(buffer_type_, parameters).release()));
    return MemoryOfEach(tops);
  }

  std::vector<float*> Backward(const std::vector<PythonMemory>& top_gradients,
                               const std::vector<bool>& propagate_down) override {
    const Lock lock;
    const Object propagate = Checked(PyList_New(0));
    for (const bool down : propagate_down) Append(propagate, Checked(PyBool_FromLong(down)));
    const Object gradients = Checked(
        PyObject_CallMethod(layer_.get(), "backward", "NO",
                            ToBuffers(buffer_type_, top_gradients).release(), propagate.get()));
    return MemoryOfEach(gradients);
  }

 private:
  void ReadShapes() {
    const Object shapes = Checked(PyObject_CallMethod(layer_.get(), "top_shapes", nullptr));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(shapes.get()); ++i) {
      top_shapes_.push_back(ShapeOf(PyList_GET_ITEM(shapes.get(), i)));
    }
    const Object arrays = Checked(PyObject_CallMethod(layer_.get(), "parameters", nullptr));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(arrays.get()); ++i) {
      PyObject* array = PyList_GET_ITEM(arrays.get(), i);
      Parameter& parameter = parameters_.emplace_back();
      parameter.shape = ShapeOf(Checked(PyObject_GetAttrString(array, "shape")).get());
      const std::span<const float> values = MemoryOf(array);
      parameter.values.assign(values.begin(), values.end());
    }
    const Object backward = Checked(PyObject_CallMethod(layer_.get(), "has_backward", nullptr));
    has_backward_ = backward.get() == Py_True;
  }

  static std::vector<float*> MemoryOfEach(const Object& arrays) {
    std::vector<float*> memory;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(arrays.get()); ++i) {
      memory.push_back(MemoryOf(PyList_GET_ITEM(arrays.get(), i)).data());
    }
    return memory;
  }

  int64_t rank_;
  int64_t workers_;
  Object buffer_type_;
  Object layer_;
  std::vector<Shape> top_shapes_;
  std::vector<Parameter> parameters_;
  bool has_backward_ = false;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) PythonLayer* poseidon_make_python_layer(
    const PythonLayerOptions& options) {
  StartPython();
  const Lock lock;
  return new EmbeddedLayer(options);
}

}  // namespace poseidon
