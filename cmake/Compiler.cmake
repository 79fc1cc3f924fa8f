# Flags for our own code: applied per target by Rooms.cmake, so that generated code is spared.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # ccache keeps precompiled headers, and what is compiled with them, only where it may overlook that
  # they hide macros and times.
  set(POSEIDON_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
                        ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${POSEIDON_LAUNCHER})
  set(CMAKE_C_COMPILER_LAUNCHER ${POSEIDON_LAUNCHER})
endif()
# A build links a hundred programs; mold takes half the time of the compilers' own linker for one.
find_program(POSEIDON_MOLD mold)
if(POSEIDON_MOLD AND NOT (CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12.1))
  add_link_options($<$<NOT:$<LINK_LANGUAGE:CUDA>>:-fuse-ld=mold>)
endif()
# clang takes a precompiled header only where every macro of the command line is the same, and its
# build is the one that finds what a source forgot to include.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()

# On where the tree is kept free of warnings: Debian 12's compilers. Others warn of more, in headers of
# libraries, too (GCC 14 of Protobuf's), which must not keep anybody from building this; neither must those
# of a project that has this one in a folder.
set(POSEIDON_KNOWN_COMPILER OFF)
if(PROJECT_IS_TOP_LEVEL AND "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" MATCHES "^(GNU 12|Clang 14)\\.")
  set(POSEIDON_KNOWN_COMPILER ON)
endif()
option(POSEIDON_WARNINGS_ARE_ERRORS "Stop at the first warning" ${POSEIDON_KNOWN_COMPILER})
set(POSEIDON_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
if(POSEIDON_WARNINGS_ARE_ERRORS)
  list(APPEND POSEIDON_WARNINGS -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies in every "literal" + std::string (its bug 105651).
  list(APPEND POSEIDON_WARNINGS -Wno-restrict)
endif()

# -O3 also in RelWithDebInfo: the reductions and update rules rely on auto-vectorization.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -g1")

if(POSEIDON_SANITIZER)
  add_compile_options(-fsanitize=${POSEIDON_SANITIZER} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # With AddressSanitizer GCC 12 takes members of std::regex for not set (its bug 105562).
    list(APPEND POSEIDON_WARNINGS -Wno-maybe-uninitialized)
  endif()
  if(POSEIDON_SANITIZER STREQUAL thread)
    # Fences, which ThreadSanitizer does not know, and of which GCC warns: Boost.Asio has them for
    # handlers that several threads run, and here one thread runs each context.
    add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
  add_link_options(-fsanitize=${POSEIDON_SANITIZER})
endif()

# What tests run with. A library that is loaded into other programs (docs/caffe.md) comes before
# AddressSanitizer's runtime, which works all the same.
set(POSEIDON_TEST_ENVIRONMENT TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp
                              ASAN_OPTIONS=verify_asan_link_order=0)

# By how much tests' time limits and deadlines are stretched for builds with sanitizers, which are
# slower: simulations with ThreadSanitizer ten to twenty times, four of them side by side on two
# threads.
set(POSEIDON_SLOWDOWN 1)
if(POSEIDON_SANITIZER MATCHES thread)
  set(POSEIDON_SLOWDOWN 16)
elseif(POSEIDON_SANITIZER)
  set(POSEIDON_SLOWDOWN 4)
endif()
