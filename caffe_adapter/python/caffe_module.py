"""The module `caffe` that Python layers import: the interface of a layer, as Caffe's own module has it.

    import caffe

    class Double(caffe.Layer):
        def setup(self, bottom, top): ...
        def reshape(self, bottom, top): top[0].reshape(*bottom[0].shape)
        def forward(self, bottom, top): top[0].data[...] = 2 * bottom[0].data
        def backward(self, top, propagate_down, bottom): bottom[0].diff[...] = 2 * top[0].diff

What begins with an underscore is for the C++ beside this file (python_plugin.cc), which compiles this
text into the programs and calls it.
"""

import importlib
import os
import signal
import sys
import threading
import traceback

try:
    import numpy
except ImportError as error:
    raise ImportError(
        f"Python layers need NumPy, which the Python of {sys.prefix} can't import ({error}); "
        "Debian's package is python3-numpy"
    ) from None

# What these programs print to their standard output is read by other programs.
sys.stdout = sys.stderr

# The programs handle these in C++, which Python does not know of.
_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_before_fork = threading.local()


def _block_signals():
    _before_fork.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING_SIGNALS)


def _unblock_signals():
    signal.pthread_sigmask(signal.SIG_SETMASK, _before_fork.blocked)


def _end_on_signals():
    """A fork has the program's handler, which would only note a signal for the training."""
    for number in _ENDING_SIGNALS:
        if signal.getsignal(number) is None:  # neither set by the layer nor ignored
            signal.signal(number, signal.SIG_DFL)
    _unblock_signals()


# A signal that comes before the fork has come that far waits.
os.register_at_fork(
    before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_end_on_signals
)

TRAIN = 0
TEST = 1


class Layer:
    """Base of the layers. Before `setup` a layer is given param_str, phase, rank (of this worker, from 0),
    workers (how many there are) and iteration: the number of the batch, which each forward pass sets.
    """

    def __new__(cls, *_arguments, **_named):
        layer = super().__new__(cls)
        layer.blobs = _Parameters()
        return layer

    def __init__(self, *_arguments, **_named):
        pass


class Blob:
    """A bottom, a top or a parameter. `data` and `diff` are arrays of float32. A top's data stay where they
    are, with their values, from one pass to the next."""

    def __init__(self, name, shape=(), may_reshape=False):
        self._name = name
        self._shape = shape
        self._may_reshape = may_reshape
        self._data = None
        self._diff = None
        self._in_place = False

    @property
    def data(self):
        if self._data is None:
            self._data = numpy.zeros(self._shape, numpy.float32)
        return self._data

    @property
    def diff(self):
        if self._diff is None:
            self._diff = numpy.zeros(self._shape, numpy.float32)
        return self._diff

    @property
    def shape(self):
        return self._shape

    @property
    def count(self):
        count = 1
        for extent in self._shape:
            count *= extent
        return count

    @property
    def num(self):
        return self._extent(0)

    @property
    def channels(self):
        return self._extent(1)

    @property
    def height(self):
        return self._extent(2)

    @property
    def width(self):
        return self._extent(3)

    def _extent(self, axis):
        if len(self._shape) > 4:
            raise ValueError(
                f"{self._name} is {_text(self._shape)}; num, channels, height and width are for "
                "blobs of at most 4 axes"
            )
        return self._shape[axis] if axis < len(self._shape) else 1

    def reshape(self, *extents):
        shape = tuple(int(extent) for extent in extents)
        if shape == self._shape:
            return
        if not self._may_reshape:
            raise _Refusal(
                f"{self._name} is {_text(self._shape)} and would become {_text(shape)}; the sizes "
                "of a net are fixed, so only its own tops may a layer reshape, and those to the "
                "same shape in each iteration"
            )
        self._shape = shape
        self._data = None
        self._diff = None


class _Parameters(list):
    """What a layer learns: `self.blobs`."""

    fixed = False

    def add_blob(self, *extents):
        if self.fixed:
            raise _Refusal("a layer adds its blobs in setup, and here it adds one later")
        self.append(Blob(f"parameter blob {len(self)}", tuple(int(extent) for extent in extents)))


class _Refusal(Exception):
    """What a layer may do in Caffe and not here."""


class _NetLayer:
    """A layer with its bottoms and tops. Memory that changes from pass to pass is given to each."""

    def __init__(self, module, name, directory, attributes, bottoms, tops):
        self.layer = _find(module, name, directory)()
        for attribute, value in attributes.items():
            setattr(self.layer, attribute, value)
        self.bottoms = [Blob(f'bottom "{blob}"', shape) for blob, shape in bottoms]
        self.tops = [Blob(f'top "{blob}"', may_reshape=True) for blob in tops]
        for i, top in enumerate(tops):
            if i < len(bottoms) and bottoms[i][0] == top:  # one blob, as in Caffe
                self.tops[i] = self.bottoms[i]
                self.tops[i]._in_place = True
        self.layer.setup(self.bottoms, self.tops)
        self.layer.reshape(self.bottoms, self.tops)
        for top in self.tops:
            top._may_reshape = False
        self.layer.blobs.fixed = True

    def top_shapes(self):
        return [top.shape for top in self.tops]

    def parameters(self):
        return [blob.data for blob in self.layer.blobs]

    def has_backward(self):
        return hasattr(self.layer, "backward")

    def forward(self, attributes, bottoms, parameters):
        for attribute, value in attributes.items():
            setattr(self.layer, attribute, value)
        for blob, memory in zip(self.bottoms, bottoms):
            if blob._in_place:
                blob.data[...] = _array(memory, blob.shape)
            else:
                blob._data = _array(memory, blob.shape)
        for blob, memory in zip(self.layer.blobs, parameters):
            blob._data = _array(memory, blob.shape)
        # A layer may leave something for its backward pass there, but not for the next iteration.
        for blob in (*self.bottoms, *self.layer.blobs):
            if blob._diff is not None:
                blob._diff.fill(0)
        self.layer.reshape(self.bottoms, self.tops)
        self.layer.forward(self.bottoms, self.tops)
        return [top.data for top in self.tops]

    def backward(self, top_gradients, propagate_down):
        for top, memory in zip(self.tops, top_gradients):
            if top._in_place:
                top.diff[...] = _array(memory, top.shape)
            else:
                top._diff = _array(memory, top.shape)
        self.layer.backward(self.tops, propagate_down, self.bottoms)
        # They would keep what they were computed from until the next pass.
        for bottom in self.bottoms:
            if not bottom._in_place:
                bottom._data = None
        for top in self.tops:
            if not top._in_place:
                top._diff = None
        return [blob.diff for blob in (*self.bottoms, *self.layer.blobs)]


def _array(memory, shape):
    return numpy.frombuffer(memory, numpy.float32).reshape(shape)


def _text(shape):
    return " x ".join(str(extent) for extent in shape) or "scalar"


def _find(module, name, directory):
    if directory and directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # of a module that the layer's module imports
        raise _Refusal(
            f'there is no module "{module}"; modules are looked for in the net file\'s directory, '
            f"{directory}, and in those of PYTHONPATH"
        ) from None
    layer = getattr(found, name, None)
    if not (isinstance(layer, type) and issubclass(layer, Layer)):
        raise _Refusal(
            f'module "{module}" ({getattr(found, "__file__", "built in")}) has no class "{name}" '
            "that is derived from caffe.Layer"
        )
    return layer


def _explain(error):
    """What a layer has thrown, for the user: in a line, and where in the user's code that was, if there."""
    known = traceback.TracebackException(type(error), error, error.__traceback__)
    each = known
    while each is not None:
        each.stack[:] = [frame for frame in each.stack if _is_users(frame.filename)]
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    is_refusal = isinstance(error, _Refusal)
    said = str(error) if is_refusal else "".join(known.format_exception_only())
    if not known.stack:
        where = []
    elif is_refusal:
        where = ["Traceback (most recent call last):\n", *known.stack.format()]
    else:
        where = known.format()
    return " ".join(said.split()), "".join(where)


def _is_users(file):
    ours = (_explain.__code__.co_filename, importlib.__file__)
    return file not in ours and not file.startswith("<frozen ")
