# A BVLC Caffe of the user's own, if one is given: target poseidon_bvlc_caffe. With it come the patch
# that makes its solvers distributed (caffe_adapter/), its programs, and the maker of golden files
# (tests/golden). Nothing else needs it.
#   -DCaffe_DIR=DIR             its CMake build directory, wherever its sources are, or where its install
#                               put CaffeConfig.cmake
#   -DPOSEIDON_CAFFE_ROOT=DIR   its root: a source tree built in place by CMake or make, or an install
set(Caffe_DIR "" CACHE PATH "Build directory of a BVLC Caffe, or its installed CaffeConfig.cmake's")
set(POSEIDON_CAFFE_ROOT "" CACHE PATH "Root of a BVLC Caffe that is built or installed")

set(POSEIDON_CAFFE OFF)
if(Caffe_DIR OR POSEIDON_CAFFE_ROOT)
  include(${CMAKE_CURRENT_LIST_DIR}/CaffeFiles.cmake)

  add_library(poseidon_bvlc_caffe INTERFACE)
  target_include_directories(poseidon_bvlc_caffe SYSTEM INTERFACE
    ${POSEIDON_CAFFE_INCLUDE} ${POSEIDON_CAFFE_PROTO_INCLUDE})
  target_link_libraries(poseidon_bvlc_caffe INTERFACE
    ${POSEIDON_CAFFE_LIBRARY} PkgConfig::GLOG gflags protobuf::libprotobuf)
  # Its callbacks' base classes have no virtual destructors.
  target_compile_options(poseidon_bvlc_caffe INTERFACE -Wno-non-virtual-dtor)
  # Caffe's headers must see what its library was built with.
  file(STRINGS ${POSEIDON_CAFFE_LIBRARY} caffe_with_cuda REGEX "libcudart\\.so" LIMIT_COUNT 1)
  if(NOT caffe_with_cuda)
    target_compile_definitions(poseidon_bvlc_caffe INTERFACE CPU_ONLY)
  endif()
  set(POSEIDON_CAFFE ON)
  message(STATUS "Caffe: ${POSEIDON_CAFFE_LIBRARY}")
endif()
