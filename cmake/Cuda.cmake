# CUDA: devices and kernels of device/cuda, where there is an nvcc. Sets POSEIDON_WITH_CUDA.
#   -DPOSEIDON_CUDA=ON             stop if there is none; OFF: build without
#   -DPOSEIDON_CUDA_ARCHITECTURES  of what devices machine code is made, "80;90"; the PTX that comes
#                                  with it serves newer ones
# Only running needs a driver: the CUDA runtime is linked statically and looks for it when a device
# is asked for.
set(POSEIDON_CUDA AUTO CACHE STRING "CUDA devices: ON, OFF, or AUTO: on where nvcc is")
set(POSEIDON_CUDA_ARCHITECTURES "" CACHE STRING
    "Devices to compile for; empty: this machine's, or 80 and 90 where it has none")

set(POSEIDON_WITH_CUDA OFF)
if(POSEIDON_CUDA AND NOT (POSEIDON_SANITIZER AND POSEIDON_CUDA STREQUAL AUTO))
  if(POSEIDON_SANITIZER)
    message(FATAL_ERROR "POSEIDON_CUDA is ON and POSEIDON_SANITIZER is ${POSEIDON_SANITIZER}; "
                        "nvcc knows no sanitizers")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(POSEIDON_WITH_CUDA ON)
  elseif(NOT POSEIDON_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "POSEIDON_CUDA is ${POSEIDON_CUDA}, but there is no nvcc: put it on the "
                        "PATH or say -DCMAKE_CUDA_COMPILER=.../nvcc")
  endif()
endif()
if(NOT POSEIDON_WITH_CUDA)
  message(STATUS "CUDA: off")
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES ${POSEIDON_CUDA_ARCHITECTURES})
if(NOT CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE capabilities RESULT_VARIABLE status
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(CMAKE_CUDA_ARCHITECTURES 80 90)  # Ampere and Hopper
  if(status EQUAL 0 AND capabilities MATCHES "^[0-9]+\\.[0-9]+")
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" CMAKE_CUDA_ARCHITECTURES "${capabilities}")
    list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "\\." "")
    list(REMOVE_DUPLICATES CMAKE_CUDA_ARCHITECTURES)
  endif()
endif()

set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
set(CMAKE_CUDA_COMPILER_LAUNCHER ${POSEIDON_LAUNCHER})
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # what CMake 3.25 does not know of nvcc 12 and later
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
# Without fused multiply-adds, as the host's update rules, so that a device has the host's bits.
string(APPEND CMAKE_CUDA_FLAGS " -fmad=false --expt-relaxed-constexpr")
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3")
# nvcc makes host code itself that the host's other warnings dislike.
set(POSEIDON_CUDA_WARNINGS -Xcompiler=-Wall,-Wextra)
if(POSEIDON_WARNINGS_ARE_ERRORS)
  list(APPEND POSEIDON_CUDA_WARNINGS -Xcompiler=-Werror -Werror=all-warnings)
endif()

# Several devices in one worker.
find_path(POSEIDON_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(POSEIDON_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
if(POSEIDON_NCCL_INCLUDE_DIR AND POSEIDON_NCCL_LIBRARY)
  add_library(poseidon_nccl INTERFACE)
  target_include_directories(poseidon_nccl SYSTEM INTERFACE ${POSEIDON_NCCL_INCLUDE_DIR})
  target_link_libraries(poseidon_nccl INTERFACE ${POSEIDON_NCCL_LIBRARY})
endif()
message(STATUS "CUDA: nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
