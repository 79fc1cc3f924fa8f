# Everything here comes from Debian's packages; tools/setup installs them.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gflags REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(GLOG REQUIRED IMPORTED_TARGET libglog)
find_package(Boost REQUIRED CONFIG)  # headers only: Asio's networks of addresses
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
find_package(nlohmann_json 3 REQUIRED)
pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)

find_path(LMDB_INCLUDE_DIR lmdb.h REQUIRED)
find_library(LMDB_LIBRARY lmdb REQUIRED)
add_library(poseidon_lmdb INTERFACE)
target_include_directories(poseidon_lmdb INTERFACE ${LMDB_INCLUDE_DIR})
target_link_libraries(poseidon_lmdb INTERFACE ${LMDB_LIBRARY})

# What some data layers need, where it is there: poseidon_opencv for image files, poseidon_hdf5,
# poseidon_leveldb. A name alone finds none of them: headers stand in folders of their own.
function(poseidon_optional_library name header folders libraries package use)
  find_path(POSEIDON_${name}_INCLUDE_DIR ${header} PATH_SUFFIXES ${folders})
  set(found ${POSEIDON_${name}_INCLUDE_DIR})
  set(files)
  foreach(library ${libraries})
    find_library(POSEIDON_${library}_LIBRARY ${library} PATH_SUFFIXES ${folders})
    list(APPEND files ${POSEIDON_${library}_LIBRARY})
    if(NOT POSEIDON_${library}_LIBRARY)
      set(found OFF)
    endif()
  endforeach()
  if(NOT found)
    message(STATUS "No ${package}: without ${use}")
    return()
  endif()
  add_library(poseidon_${name} INTERFACE)
  target_include_directories(poseidon_${name} SYSTEM INTERFACE ${POSEIDON_${name}_INCLUDE_DIR})
  target_link_libraries(poseidon_${name} INTERFACE ${files})
endfunction()
poseidon_optional_library(opencv opencv2/imgcodecs.hpp opencv4
                          "opencv_imgcodecs;opencv_imgproc;opencv_core" libopencv-imgcodecs-dev
                          "image files")
poseidon_optional_library(hdf5 hdf5.h hdf5/serial hdf5_serial libhdf5-dev "HDF5 files")
poseidon_optional_library(leveldb leveldb/db.h "" leveldb libleveldb-dev "LevelDB databases")

# What Python layers of Caffe nets run in. Not by find_package(Python3), which the tests use: their
# interpreter may be any, and this one has to have a shared library.
pkg_check_modules(PYTHON_EMBED IMPORTED_TARGET python3-embed>=3.10)
if(PYTHON_EMBED_FOUND)
  pkg_get_variable(python_prefix python3-embed exec_prefix)
  set(PYTHON_EMBED_PROGRAM ${python_prefix}/bin/python3)
else()
  message(STATUS "No python3-dev: without Python layers")
endif()

# Tests only: another reader of Caffe's files.
poseidon_optional_library(opencv_dnn opencv2/dnn.hpp opencv4 "opencv_dnn;opencv_core"
                          libopencv-dnn-dev "comparison with OpenCV's dnn module")

pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)

if(POSEIDON_TORCH)
  # Where libtorch has CUDA it wants to know what its extensions are compiled for, or compiles a
  # program that asks the GPU; and has all CUDA code compiled as those are. There are none here.
  set(own_cuda_flags "${CMAKE_CUDA_FLAGS}")
  set(own_cuda_architectures ${CMAKE_CUDA_ARCHITECTURES})
  list(TRANSFORM own_cuda_architectures REPLACE "([0-9][a-z]?)$" ".\\1" OUTPUT_VARIABLE TORCH_CUDA_ARCH_LIST)
  # Its parts are looked for wherever the system has libraries and CMake's files, and only then
  # beside it; the system may have another libtorch.
  if(Torch_DIR)
    set(Caffe2_DIR ${Torch_DIR}/../Caffe2)
    list(PREPEND CMAKE_LIBRARY_PATH ${Torch_DIR}/../../../lib)
  endif()
  find_package(Torch REQUIRED)
  set(CMAKE_CUDA_FLAGS "${own_cuda_flags}")
  set(CMAKE_CUDA_ARCHITECTURES ${own_cuda_architectures})
  # The oneDNN that libtorch itself computes with, if it is a library of its own: it lies beside it.
  # The wheels' libtorch holds another one, with which this would get mixed up.
  get_filename_component(torch_folder "${TORCH_LIBRARY}" DIRECTORY)
  find_library(POSEIDON_ONEDNN dnnl PATHS ${torch_folder} NO_DEFAULT_PATH)
  find_path(POSEIDON_ONEDNN_HEADERS dnnl.h)
  if(NOT POSEIDON_ONEDNN OR NOT POSEIDON_ONEDNN_HEADERS)
    message(STATUS "No libdnnl-dev for this libtorch: products of matrices by libtorch")
    set(POSEIDON_ONEDNN "")
  endif()
endif()
if(POSEIDON_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()
