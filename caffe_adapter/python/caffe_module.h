// The text of caffe_module.py, the module that Python layers import.
#pragma once

namespace poseidon {

extern const char* const kCaffeModule;

}  // namespace poseidon
